"""Puts the CustomResourceDefinitions of our own kinds where they are missing, and waits until they are served."""

from __future__ import annotations

import asyncio

import msgspec

from quartermaster.resources.codec import encode_document
from quartermaster.resources.crd import crd_of, own_kinds
from quartermaster.resources.kind import kind_of
from quartermaster.resources.model import Object
from quartermaster.stores.kubernetes.paths import collection_path, query
from quartermaster.stores.kubernetes.request import Request
from quartermaster.stores.kubernetes.store import KubernetesStore
from quartermaster.support.errors import AlreadyExistsError, DeadlineError, NotFoundError

_PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_NOUN = "customresourcedefinition"
_POLL_S = 0.1


class _Condition(msgspec.Struct, frozen=True):
    type: str
    status: str
    message: str = ""


class _Status(msgspec.Struct, frozen=True):
    conditions: list[_Condition] | None = None  # null in a definition that was just made


class _Definition(msgspec.Struct, frozen=True):
    status: _Status = _Status()

    @property
    def established(self) -> bool:
        return any(c.type == "Established" and c.status == "True" for c in self.status.conditions or ())

    @property
    def refusal(self) -> str:
        return "; ".join(c.message for c in self.status.conditions or () if c.status == "False" and c.message)


async def ensure_crds(store: KubernetesStore, *, timeout_s: float = 30.0) -> tuple[str, ...]:
    """Create what is missing of our kinds' definitions; those that are there stay as they are.

    Returns the names of the created ones. When it returns, objects of every kind can be written.
    """
    kinds = own_kinds()
    created = []
    for kind in kinds:
        name = kind_of(kind).resource
        if await _read(store, name) is None and await _create(store, kind, name):
            created.append(name)
    for kind in kinds:
        await _served(store, kind, timeout_s)
    return tuple(created)


async def _create(store: KubernetesStore, kind: type[Object], name: str) -> bool:
    path = _PATH + query(fieldManager="quartermaster")
    try:
        await store.transport.send(
            Request("POST", path, "create", _NOUN, name=name, body=encode_document(crd_of(kind)))
        )
    except AlreadyExistsError:
        return False
    return True


async def _read(store: KubernetesStore, name: str) -> _Definition | None:
    try:
        body = await store.transport.send(Request("GET", f"{_PATH}/{name}", "get", _NOUN, name=name, repeatable=True))
    except NotFoundError:
        return None
    return msgspec.json.decode(body, type=_Definition)


async def _served(store: KubernetesStore, kind: type[Object], timeout_s: float) -> None:
    name = kind_of(kind).resource
    found: _Definition | None = None
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                found = await _read(store, name)
                if found is not None and found.established and await _answers(store, kind):
                    return
                await asyncio.sleep(_POLL_S)
    except TimeoutError:
        cause = (found.refusal if found is not None else "it was deleted") or "the server does not serve it yet"
        raise DeadlineError(f'cannot use {_NOUN} "{name}" after {timeout_s:.0f} s: {cause}') from None


async def _answers(store: KubernetesStore, kind: type[Object]) -> bool:
    """The paths come a moment after the condition says that they are there."""
    path = collection_path(kind, None) + query(limit=1)
    try:
        await store.transport.send(Request("GET", path, "list", kind_of(kind).plural, repeatable=True))
    except NotFoundError:
        return False
    return True
