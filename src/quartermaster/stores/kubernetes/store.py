"""The `Store` on a real API server, which has the object semantics itself: this is a thin client and no more.

What differs from our own stores, and who makes up for it:

- `fences` is False: an API server cannot compare the Lease in the same write. The leader's own clock is asked before
  each attempt to send. What is on its way then may still arrive late: agents refuse what carries a lower epoch, and
  created names are deterministic, so it is either refused by the resourceVersion that it carries or has no effect.
- `lease_held` is None: nobody but the holders judges a Lease here; see the engine's leader election.
- Immutability, defaults and validation are those of the CRD that is installed.
- A watch cannot know what an object was before it ceased to fit its type: there the caller lists again (watch.py).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from quartermaster.resources.codec import Document, decode_document, encode, encode_document
from quartermaster.resources.kind import applied_class, kind_of
from quartermaster.resources.model import Object
from quartermaster.stores.base import Event, Fence, Page, Propagation, in_order
from quartermaster.stores.kubernetes.connection import Connection, in_cluster_connection
from quartermaster.stores.kubernetes.kubeconfig import connection_of, kubeconfig_paths, read_kubeconfig
from quartermaster.stores.kubernetes.paths import collection_path, default_namespace, object_path, query
from quartermaster.stores.kubernetes.request import APPLY, Request
from quartermaster.stores.kubernetes.transport import PATIENCE_S, Transport
from quartermaster.stores.kubernetes.watch import SILENCE_S, Watch
from quartermaster.stores.unreadable import last_seen, metadata_of, typed, typed_or_left_out
from quartermaster.support.errors import ConflictError, ExpiredError, InvalidError, NotFoundError, Problem, StoreError

T = TypeVar("T", bound=Object)

MANAGER = "quartermaster"
_PAGE = 500
_DELETE_ATTEMPTS = 8


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continues: str = msgspec.field(default="", name="continue")


class _List(msgspec.Struct):
    metadata: _ListMeta
    items: list[Document] | None = None


_LIST_DECODER = msgspec.json.Decoder(_List)


class KubernetesStore:
    """A `Store` over an API server. Nothing is opened before the first call; `close` ends all connections for good."""

    fences = False

    def __init__(
        self,
        connection: Connection,
        *,
        manager: str = MANAGER,
        patience_s: float = PATIENCE_S,
        silence_s: float = SILENCE_S,
    ) -> None:
        """`patience_s` bounds a call while the server does not answer, `silence_s` the silence of a watch."""
        self.connection = connection
        self.transport = Transport(connection, patience_s=patience_s)
        self._manager = manager
        self._silence_s = silence_s
        # The hot path appends one of these and builds nothing.
        self._write_query = {dry_run: query(fieldManager=manager, dryRun="All" * dry_run) for dry_run in (False, True)}

    @classmethod
    async def open(
        cls,
        context: str = "",
        *,
        kubeconfig: Path | None = None,
        manager: str = MANAGER,
        patience_s: float = PATIENCE_S,
        silence_s: float = SILENCE_S,
    ) -> KubernetesStore:
        """The server of a kubeconfig's context ("": the current one), found as kubectl finds it."""
        connection = connection_of(read_kubeconfig(kubeconfig_paths(kubeconfig)), context)
        return cls(connection, manager=manager, patience_s=patience_s, silence_s=silence_s)

    @classmethod
    async def in_cluster(cls, *, manager: str = MANAGER, patience_s: float = PATIENCE_S) -> KubernetesStore:
        """The server of the cluster in which this process is a pod."""
        return cls(in_cluster_connection(), manager=manager, patience_s=patience_s)

    @property
    def url(self) -> str:
        return f"kubernetes:{self.connection.name} ({self.connection.address})"

    @property
    def namespace(self) -> str:
        """The namespace that the context names, for a person who names none."""
        return self.connection.namespace

    async def get(self, kind: type[T], name: str, namespace: str = "") -> T:
        return typed(kind, await self._read(kind, name, namespace))

    async def list(
        self,
        kind: type[T],
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        limit: int = 0,
        continues: str = "",
    ) -> Page[T]:
        """With `limit` 0 the parts are fetched here; all of them show the moment of the first."""
        selectors = {"labelSelector": labels, "fieldSelector": fields}
        if limit:
            return await self._page(kind, namespace, selectors, limit, continues)
        items: list[T] = []
        skipped = 0
        from_the_start = not continues
        while True:
            try:
                page = await self._page(kind, namespace, selectors, _PAGE, continues)
            except ExpiredError:
                if not continues or not from_the_start:
                    raise
                # The list took so long that its moment is forgotten: one answer, however large, has no parts.
                page = await self._page(kind, namespace, selectors, 0, "")
                items, skipped = [], 0
            items.extend(page.items)
            skipped += page.skipped
            continues = page.continues
            if not continues:
                return Page(in_order(items), page.revision, skipped=skipped)

    def watch(
        self, kind: type[T], namespace: str | None = None, *, since: str, labels: str = "", fields: str = ""
    ) -> AsyncGenerator[Event[T], None]:
        if not since.isdecimal():
            problem = Problem("since", f'"{since}" is not what a list returned', "list again")
            raise InvalidError("cannot watch", [problem])
        return self._watch(kind, namespace, labels, fields).since(since)

    def watch_from_start(
        self, kind: type[T], namespace: str | None = None, *, labels: str = "", fields: str = ""
    ) -> AsyncGenerator[Event[T], None]:
        """See `StreamsInitialState`: one stream in place of a list and a watch, where the server offers it."""
        return self._watch(kind, namespace, labels, fields).from_start()

    async def create(self, obj: T, *, fence: Fence | None = None, dry_run: bool = False) -> T:
        kind, info, meta = type(obj), kind_of(obj), obj.metadata
        namespace = default_namespace(info, meta.namespace)
        if meta.resource_version:  # the server would call that an error of its own
            problem = Problem("metadata.resourceVersion", "must not be set on a new object", "leave it out")
            raise InvalidError(f"cannot create {info.singular}", [problem])
        request = Request(
            "POST",
            f"{collection_path(kind, namespace)}{self._write_query[dry_run]}&fieldValidation=Strict",
            "create",
            info.singular,
            namespace,
            meta.name or f"{meta.generate_name}…",
            body=_body(obj, namespace),
            repeatable=dry_run,
            check=_check_of(fence),
        )
        return await self._object(kind, request)

    async def update(self, obj: T, *, fence: Fence | None = None, dry_run: bool = False) -> T:
        return await self._replace(obj, "", dry_run, fence)

    async def update_status(self, obj: T, *, fence: Fence | None = None, dry_run: bool = False) -> T:
        info = kind_of(obj)
        if not info.status_subresource:
            raise InvalidError(f"cannot write the status of {info.kind}: the kind has none")
        return await self._replace(obj, "/status", dry_run, fence)

    async def apply(
        self,
        document: dict[str, Any],
        *,
        manager: str = "",
        force: bool = False,
        status: bool = False,
        fence: Fence | None = None,
        dry_run: bool = False,
    ) -> Object:
        kind = applied_class(document)
        info = kind_of(kind)
        meta = document.get("metadata") or {}
        namespace, name = default_namespace(info, meta.get("namespace") or ""), meta.get("name") or ""
        if not name:
            problem = Problem(
                "metadata.name", "is missing", "an apply needs a name; generateName works with create only"
            )
            raise InvalidError(f"cannot apply {info.singular}", [problem])
        path = object_path(kind, namespace, name) + "/status" * status
        parameters = query(
            fieldManager=manager or self._manager,
            force="true" * force,
            fieldValidation="Strict",
            dryRun="All" * dry_run,
        )
        body = encode_document({**document, "metadata": {**meta, **_namespace_field(namespace)}})
        request = Request(
            "PATCH",
            path + parameters,
            "apply",
            info.singular,
            namespace,
            name,
            body,
            APPLY,
            repeatable=True,
            check=_check_of(fence),
        )
        return await self._object(kind, request)

    async def delete(
        self,
        kind: type[T],
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        revision: str = "",
        propagation: Propagation = "Background",
        fence: Fence | None = None,
        dry_run: bool = False,
    ) -> T:
        """The server answers with the object or with a mere Status, depending on kind: so the object is read first.

        Its uid goes along as a precondition: the delete can then be repeated, and cannot meet another object.
        """
        info = kind_of(kind)
        namespace = default_namespace(info, namespace)
        for attempt in range(_DELETE_ATTEMPTS):
            seen = await self._read(kind, name, namespace)
            seen_uid = str(metadata_of(seen).get("uid", ""))
            preconditions = {"uid": uid or seen_uid, **({"resourceVersion": revision} if revision else {})}
            # A DELETE with a body takes its options from there alone: a dryRun in the query would be passed over.
            dry = {"dryRun": ["All"]} if dry_run else {}
            body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions, **dry}
            request = Request(
                "DELETE",
                object_path(kind, namespace, name),
                "delete",
                info.singular,
                namespace,
                name,
                body=encode_document({**body, "propagationPolicy": propagation}),
                repeatable=True,
                check=_check_of(fence),
            )
            try:
                answer = _decoded(request, await self.transport.send(request))
            except NotFoundError:
                if not request.repeated:
                    raise
                answer = seen
            except ConflictError:
                # An attempt whose answer was lost may have deleted it: whoever has the name now came afterwards.
                if request.repeated and await self._uid(kind, name, namespace) != seen_uid:
                    answer = seen
                elif uid or revision or attempt == _DELETE_ATTEMPTS - 1:
                    raise
                else:
                    continue  # another object took the name since it was read, and the caller means whichever has it
            return last_seen(kind, seen if answer.get("kind") == "Status" else answer, namespace, name)
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def lease_held(self, namespace: str, name: str) -> bool | None:  # noqa: ARG002 - as every store has it
        return None

    async def close(self) -> None:
        await self.transport.close()

    async def _read(self, kind: type[Object], name: str, namespace: str) -> Document:
        info = kind_of(kind)
        path, namespace = object_path(kind, namespace, name), default_namespace(info, namespace)
        request = Request("GET", path, "get", info.singular, namespace, name, repeatable=True)
        return _decoded(request, await self.transport.send(request))

    async def _uid(self, kind: type[Object], name: str, namespace: str) -> str:
        """Of what has that name now; "" if nothing has."""
        try:
            return str(metadata_of(await self._read(kind, name, namespace)).get("uid", ""))
        except NotFoundError:
            return ""

    async def _object(self, kind: type[T], request: Request) -> T:
        return typed(kind, _decoded(request, await self.transport.send(request)))

    async def _replace(self, obj: T, subresource: str, dry_run: bool, fence: Fence | None) -> T:
        kind, info, meta = type(obj), kind_of(obj), obj.metadata
        namespace = default_namespace(info, meta.namespace)
        request = Request(
            "PUT",
            f"{object_path(kind, namespace, meta.name)}{subresource}{self._write_query[dry_run]}",
            "update",
            info.singular,
            namespace,
            meta.name,
            repeatable=True,
            check=_check_of(fence),
        )
        # The server would take some kinds without a version, overwriting whatever is there.
        if not meta.resource_version:
            problem = Problem("metadata.resourceVersion", "is missing", "read the object, change it, write it back")
            raise InvalidError(f"cannot {request.describe()}", [problem])
        request.body = _body(obj, namespace)
        return await self._object(kind, request)

    async def _page(
        self, kind: type[T], namespace: str | None, selectors: dict[str, str], limit: int, continues: str
    ) -> Page[T]:
        path = collection_path(kind, namespace) + query(**selectors, limit=limit, **{"continue": continues})
        request = Request("GET", path, "list", kind_of(kind).plural, repeatable=True)
        body = await self.transport.send(request)
        try:
            found = _LIST_DECODER.decode(body)
        except msgspec.MsgspecError as error:
            raise _nonsense(request) from error
        documents = found.items or ()
        items = tuple(obj for document in documents if (obj := typed_or_left_out(kind, document)) is not None)
        return Page(items, found.metadata.resource_version, found.metadata.continues, len(documents) - len(items))

    def _watch(self, kind: type[T], namespace: str | None, labels: str, fields: str) -> Watch[T]:
        return Watch(self.transport, kind, namespace, labels=labels, fields=fields, silence_s=self._silence_s)


def _decoded(request: Request, body: bytes) -> Document:
    try:
        document = decode_document(body)
    except msgspec.DecodeError as error:
        raise _nonsense(request) from error
    if not isinstance(document, dict):
        raise _nonsense(request)
    return document


def _nonsense(request: Request) -> StoreError:
    doubt = "; the write may have happened" if request.writes else ""
    return StoreError(
        f"cannot {request.describe()}: the answer is not an API server's{doubt}", hint="is this the right address?"
    )


def _body(obj: Object, namespace: str) -> bytes:
    """The object as it is sent. Who manages which field is the server's to say: it keeps what it has."""
    return encode(replace(obj, metadata=replace(obj.metadata, namespace=namespace, managed_fields=())))


def _check_of(fence: Fence | None) -> Callable[[], None] | None:
    return fence.check if fence is not None else None


def _namespace_field(namespace: str) -> Document:
    return {"namespace": namespace} if namespace else {}
