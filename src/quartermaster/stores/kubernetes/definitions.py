"""Puts the CustomResourceDefinitions of our own kinds where they are missing, and waits until they are served.

A definition that is there and says something else may belong to a newer version, or somebody changed it on purpose: it
is kept and named, and replaced only when asked for.
"""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import msgspec

from quartermaster.resources.codec import Document, encode_document
from quartermaster.resources.crd import crd_of, own_kinds
from quartermaster.resources.kind import kind_of
from quartermaster.resources.model import Object
from quartermaster.stores.kubernetes.paths import collection_path, query
from quartermaster.stores.kubernetes.request import Request
from quartermaster.stores.kubernetes.store import KubernetesStore
from quartermaster.support.deadlines import within
from quartermaster.support.errors import AlreadyExistsError, ConflictError, DeadlineError, NotFoundError

Verdict = Literal["created", "unchanged", "differs", "upgraded"]

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
    metadata: dict[str, Any] = {}
    spec: dict[str, Any] = {}
    status: _Status = _Status()

    @property
    def established(self) -> bool:
        return any(c.type == "Established" and c.status == "True" for c in self.status.conditions or ())

    @property
    def refusal(self) -> str:
        return "; ".join(c.message for c in self.status.conditions or () if c.status == "False" and c.message)


async def ensure_crds(store: KubernetesStore, *, upgrade: bool = False, timeout_s: float = 30.0) -> dict[str, Verdict]:
    """Create what is missing of our kinds' definitions; one that differs is replaced with `upgrade`, else kept.

    Says of each what became of it. When it returns, objects of every kind can be written; what an upgrade changed may
    take the server a moment more.
    """
    verdicts: dict[str, Verdict] = {}
    for kind in own_kinds():
        name = kind_of(kind).resource
        verdicts[name] = await _ensure(store, crd_of(kind), name, upgrade=upgrade)
    for kind in own_kinds():
        await _served(store, kind, timeout_s)
    return verdicts


async def _ensure(store: KubernetesStore, wanted: Document, name: str, *, upgrade: bool) -> Verdict:
    found = await _read(store, name)
    if found is None:
        if await _create(store, wanted, name):
            return "created"
        found = await _read(store, name) or _Definition()  # somebody else was quicker
    if found.metadata.get("deletionTimestamp"):
        raise ConflictError(
            f"cannot install the definition {name}: it is being deleted, and the objects of that kind with it",
            hint="run it again when it is gone",
        )
    if _says_the_same(found.spec, wanted["spec"]):
        return "unchanged"
    if not upgrade:
        return "differs"
    version = {"resourceVersion": found.metadata.get("resourceVersion", "")}
    labels = {**found.metadata.get("labels", {}), **wanted["metadata"]["labels"]}
    metadata = {**found.metadata, **wanted["metadata"], "labels": labels, **version}
    body = encode_document({**wanted, "metadata": metadata, "spec": {**found.spec, **wanted["spec"]}})
    path = f"{_PATH}/{name}{query(fieldManager='quartermaster')}"
    await store.transport.send(Request("PUT", path, "update", _NOUN, name=name, body=body, repeatable=True))
    return "upgraded"


def _says_the_same(found: Document, wanted: Document) -> bool:
    """Whether the server would gain nothing by our definition: it adds some fields of its own to what it is given."""
    return all(
        found.get(part) == value if part != "names" else value.items() <= found.get(part, {}).items()
        for part, value in wanted.items()
    )


async def _create(store: KubernetesStore, wanted: Document, name: str) -> bool:
    path = _PATH + query(fieldManager="quartermaster")
    try:
        await store.transport.send(Request("POST", path, "create", _NOUN, name=name, body=encode_document(wanted)))
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
        async with within(timeout_s):
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
