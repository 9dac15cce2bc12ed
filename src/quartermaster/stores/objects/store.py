"""Our own object semantics, written once, over any revisioned key-value store.

Reading and writing as an API server does it: rules.py says what becomes of a document, apply.py who owns which field,
and here each write is one transaction that compares the revision that was read (and the leader's fence).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from typing import NamedTuple, TypeVar, cast

from quartermaster.resources import Lease
from quartermaster.resources.admission import fill_defaults, validate, validate_update
from quartermaster.resources.codec import Document, encode_document, to_document
from quartermaster.resources.kind import Kind, applied_class, kind_of
from quartermaster.resources.model import Object
from quartermaster.resources.names import DEFAULT_NAMESPACE
from quartermaster.resources.schema import full_schema_of
from quartermaster.stores.addressing import require_namespace
from quartermaster.stores.base import Event, Fence, Page, Propagation, Written
from quartermaster.stores.kv.base import Compare, Entry, KeyValue, Operation, Outcome, Put, Remove
from quartermaster.stores.objects import rules
from quartermaster.stores.objects.apply import apply_document, track_update
from quartermaster.stores.objects.keys import held_key, object_key
from quartermaster.stores.objects.leases import LeaseHolder, held_value
from quartermaster.stores.objects.reading import (
    deletable_document,
    list_objects,
    mendable_document,
    read_written,
    stored_document,
    watch_objects,
)
from quartermaster.stores.objects.remembered import Remembered
from quartermaster.stores.unreadable import last_seen, typed
from quartermaster.support import clock, entropy
from quartermaster.support.errors import (
    AlreadyExistsError,
    ConflictError,
    FencedError,
    InvalidError,
    NotFoundError,
    Problem,
)

T = TypeVar("T", bound=Object)
_Prepare = Callable[[Document], Document]  # from what is stored to what is to be
_GENERATE_ATTEMPTS = 8
_APPLY_ATTEMPTS = 16
_GENERATED_NAME_LIMIT = 63 - 5
_READ_AGAIN = "read it again and repeat the change"


class _OvertakenError(ConflictError):
    """Another writer came between our read and our write.

    `absent` says that nothing has the name now; `gone` that what was read is there no more, and that an attempt of ours
    whose answer was lost may have been it.
    """

    absent = False
    gone = False


class _Manner(NamedTuple):
    """How a write is made."""

    fence: Fence | None
    dry_run: bool


class ObjectStore:
    """A `Store` over a `KeyValue`."""

    fences = True

    def __init__(self, kv: KeyValue, *, manager: str = "quartermaster") -> None:
        self.kv = kv
        self._manager = manager
        self._leases = LeaseHolder(kv)
        self._remembered = Remembered()

    @property
    def url(self) -> str:
        return self.kv.url

    async def get(self, kind: type[T], name: str, namespace: str = "") -> T:
        info = kind_of(kind)
        entry = await self._entry(info, name, namespace)
        self._remembered.keep(entry)
        return typed(kind, stored_document(info, entry))

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
        return await list_objects(
            self.kv, kind, namespace, labels=labels, fields=fields, limit=limit, continues=continues
        )

    def watch(
        self, kind: type[T], namespace: str | None = None, *, since: str, labels: str = "", fields: str = ""
    ) -> AsyncGenerator[Event[T], None]:
        return watch_objects(self.kv, kind, namespace, since=since, labels=labels, fields=fields)

    async def written(self, kind: type[Object], namespace: str, *, since: str = "") -> Written:
        return await read_written(self.kv, kind, namespace, since=since)

    async def create(self, obj: T, *, fence: Fence | None = None, dry_run: bool = False) -> T:
        info = kind_of(obj)
        document = _with_namespace(info, to_document(obj))
        meta = document["metadata"]
        if meta.get("name") or not meta.get("generateName"):
            return cast(T, await self._create(type(obj), document, _Manner(fence, dry_run)))
        base = meta["generateName"][:_GENERATED_NAME_LIMIT]
        for attempt in range(_GENERATE_ATTEMPTS):
            candidate = {**document, "metadata": {**meta, "name": base + entropy.name_suffix()}}
            try:
                return cast(T, await self._create(type(obj), candidate, _Manner(fence, dry_run)))
            except AlreadyExistsError:
                if attempt == _GENERATE_ATTEMPTS - 1:
                    raise
        raise AssertionError("unreachable")

    async def update(self, obj: T, *, fence: Fence | None = None, dry_run: bool = False) -> T:
        info = kind_of(obj)
        sent = _with_namespace(info, to_document(obj))

        def prepare(stored: Document) -> Document:
            return rules.prepare_update(info, stored, fill_defaults(sent))

        return cast(T, await self._write_back(type(obj), sent, prepare, _Manner(fence, dry_run)))

    async def update_status(self, obj: T, *, fence: Fence | None = None, dry_run: bool = False) -> T:
        info = kind_of(obj)
        if not info.status_subresource:
            raise InvalidError(f"cannot write the status of {info.kind}: the kind has none")
        sent = _with_namespace(info, to_document(obj))

        def prepare(stored: Document) -> Document:
            return rules.prepare_status(info, stored, fill_defaults(sent))

        return cast(T, await self._write_back(type(obj), sent, prepare, _Manner(fence, dry_run), "status"))

    async def apply(
        self,
        document: Document,
        *,
        manager: str = "",
        force: bool = False,
        status: bool = False,
        fence: Fence | None = None,
        dry_run: bool = False,
    ) -> Object:
        cls = applied_class(document)
        info = kind_of(cls)
        applied = _with_namespace(info, document)
        key = _key(info, applied)
        for _ in range(_APPLY_ATTEMPTS):
            entry = await self.kv.get(key)
            stored = mendable_document(info, entry) if entry else None
            _check_apply_preconditions(info, stored, applied, status=status)
            new = apply_document(
                full_schema_of(cls),
                stored,
                applied,
                manager=manager or self._manager,
                api_version=info.api_version,
                force=force,
                now=clock.timestamp(),
                subresource="status" if status else "",
            )
            body = {name: part for name, part in new.items() if name != "metadata"}
            _require_valid("apply", info, applied, rules.null_problems(full_schema_of(cls), body))
            try:
                if stored is None or entry is None:
                    return await self._insert(cls, _created(info, new), _Manner(fence, dry_run))
                merged = _merged(info, stored, new, status=status)
                return await self._replace(cls, entry, stored, merged, _Manner(fence, dry_run))
            except (_OvertakenError, AlreadyExistsError):
                # Somebody wrote between our read and our write; an apply states an intent, so it is merged anew.
                continue
        raise ConflictError(f"cannot apply {rules.describe(info, applied)}: it changes all the time", hint="try again")

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
        info = kind_of(kind)
        for _ in range(_APPLY_ATTEMPTS):
            entry = await self._entry(info, name, namespace)
            stored = deletable_document(info, entry)
            rules.check_uid(info, stored, uid)
            if revision and revision != str(entry.modified):
                raise _changed(info, stored)
            marked = rules.prepare_delete(info, stored, propagation, now=clock.timestamp())
            try:
                if marked is not None:
                    stored = await self._mark(info, entry, stored, marked, _Manner(fence, dry_run))
                elif not dry_run:
                    await self._remove(info, entry, stored, fence)
                return last_seen(kind, stored, namespace, name)
            except _OvertakenError as error:
                # Whoever has the name now took it after the object that was to be deleted had gone.
                if error.gone:
                    return last_seen(kind, stored, namespace, name)
                if revision:
                    raise
        raise ConflictError(
            f"cannot delete {rules.named(info, namespace, name)}: it changes all the time", hint="try again"
        )

    async def lease_held(self, namespace: str, name: str) -> bool | None:
        return await self.kv.get(held_key(kind_of(Lease), namespace, name)) is not None

    async def close(self) -> None:
        await self.kv.close()

    async def _entry(self, info: Kind, name: str, namespace: str) -> Entry:
        if info.namespaced and not namespace:
            namespace = DEFAULT_NAMESPACE
        require_namespace(info, namespace)
        entry = await self.kv.get(object_key(info, namespace if info.namespaced else "", name))
        if entry is None:
            raise NotFoundError(f"cannot find {rules.named(info, namespace if info.namespaced else '', name)}")
        return entry

    async def _write_back(
        self, cls: type[Object], sent: Document, prepare: _Prepare, manner: _Manner, subresource: str = ""
    ) -> Object:
        """Put what becomes of `sent` in the place of the version that it names."""
        info = kind_of(cls)

        def changed(entry: Entry) -> tuple[Document, Document]:
            stored = stored_document(info, entry)
            new = track_update(
                full_schema_of(cls),
                stored,
                prepare(stored),
                manager=self._manager,
                api_version=info.api_version,
                now=clock.timestamp(),
                subresource=subresource,
            )
            _strip_version(stored)
            _strip_version(new)
            return stored, new

        entry = self._remembered.version(_key(info, sent), sent["metadata"].get("resourceVersion", ""))
        stored, new = changed(entry) if entry is not None else ({}, {})
        if entry is None or new == stored or manner.dry_run:
            # Nothing that is written would find out whether that version is still the one in the store.
            entry = await self._read_for_update(info, sent)
            stored, new = changed(entry)
        try:
            return await self._replace(cls, entry, stored, new, manner)
        except _OvertakenError as error:
            if error.absent:
                raise NotFoundError(f"cannot find {rules.describe(info, sent)}") from None
            raise

    async def _read_for_update(self, info: Kind, sent: Document) -> Entry:
        meta = sent["metadata"]
        entry = await self._entry(info, meta.get("name", ""), meta.get("namespace", ""))
        given = meta.get("resourceVersion")
        if not given:
            problem = Problem("metadata.resourceVersion", "is missing", "read the object, change it, write it back")
            raise InvalidError(f"cannot update {rules.describe(info, sent)}", [problem])
        if given != str(entry.modified):
            raise _changed(info, sent)
        return entry

    async def _create(self, cls: type[Object], sent: Document, manner: _Manner) -> Object:
        info = kind_of(cls)
        new = fill_defaults(rules.prepare_create(info, sent, uid=entropy.new_uid(), now=clock.timestamp()))
        new = track_update(
            full_schema_of(cls),
            None,
            new,
            manager=self._manager,
            api_version=info.api_version,
            now=clock.timestamp(),
        )
        return await self._insert(cls, new, manner)

    async def _insert(self, cls: type[Object], new: Document, manner: _Manner) -> Object:
        info = kind_of(cls)
        _require_valid("create", info, new, validate(new, unknown_ok=True))
        key = _key(info, new)
        value = encode_document(new)
        if manner.dry_run:
            if await self.kv.get(key) is not None:
                raise AlreadyExistsError(f"cannot create {rules.describe(info, new)}: it is there already")
            return _typed(cls, new, 0)
        outcome = await self._put(info, [Compare(key, modified=0)], Put(key, value), new, manner.fence)
        if not outcome.succeeded:
            have = outcome.current.get(key)
            # Sent twice after a broken connection: the uid in the value is ours alone, so the first one made it.
            if have is None or have.value != value:
                raise AlreadyExistsError(f"cannot create {rules.describe(info, new)}: it is there already")
            return _typed(cls, new, have.modified)
        return _typed(cls, new, outcome.revision)

    async def _replace(
        self, cls: type[Object], entry: Entry, stored: Document, new: Document, manner: _Manner
    ) -> Object:
        info = kind_of(cls)
        _strip_version(stored)
        _strip_version(new)
        if new == stored and not self._leases.concerns(info):
            return _typed(cls, stored, entry.modified)
        _require_valid("update", info, new, [*validate(new, unknown_ok=True), *validate_update(stored, new)])
        if manner.dry_run:
            return _typed(cls, new, entry.modified)
        if rules.is_released(new):
            await self._remove(info, entry, new, manner.fence)
            return _typed(cls, new, entry.modified)
        return _typed(cls, new, await self._overwrite(info, entry, new, manner.fence))

    async def _mark(self, info: Kind, entry: Entry, stored: Document, marked: Document, manner: _Manner) -> Document:
        """What is marked for deletion is not judged: an object that would be refused today can be deleted."""
        _strip_version(stored)
        _strip_version(marked)
        if marked == stored or manner.dry_run:
            revision = entry.modified
        else:
            revision = await self._overwrite(info, entry, marked, manner.fence)
        return {**marked, "metadata": {**marked["metadata"], "resourceVersion": str(revision)}}

    async def _overwrite(self, info: Kind, entry: Entry, new: Document, fence: Fence | None) -> int:
        """Put `new` in the place of what was read; returns its revision."""
        value = encode_document(new)
        compares = [Compare(entry.key, modified=entry.modified)]
        outcome = await self._put(info, compares, Put(entry.key, value), new, fence)
        have = outcome.current.get(entry.key)
        if outcome.succeeded:
            written = Entry(entry.key, value, entry.created, outcome.revision)
        elif outcome.repeated and have is not None and have.value == value:
            written = have
        else:
            raise _overtaken(info, new, entry, outcome)
        self._remembered.keep(written)
        return written.modified

    async def _put(
        self, info: Kind, compares: Sequence[Compare], put: Put, new: Document, fence: Fence | None
    ) -> Outcome:
        """Write a document, and for a Lease what stands behind it."""
        if not self._leases.concerns(info):
            return await self._transact(info, compares, [put], fence)
        try:
            return await self._transact(info, compares, [put, *await self._leases.operations(info, new)], fence)
        except NotFoundError:
            # What the key behind it is attached to ended after it was kept alive: that is no verdict on the Lease.
            self._leases.forget(_held_key(info, new))
            return await self._transact(info, compares, [put, *await self._leases.operations(info, new)], fence)

    async def _remove(self, info: Kind, entry: Entry, stored: Document, fence: Fence | None) -> None:
        operations: list[Operation] = [Remove(entry.key)]
        if self._leases.concerns(info):
            operations.append(Remove(_held_key(info, stored)))
        outcome = await self._transact(info, [Compare(entry.key, modified=entry.modified)], operations, fence)
        overtaken = None if outcome.succeeded else _overtaken(info, stored, entry, outcome)
        if overtaken is not None and not overtaken.gone:
            raise overtaken
        if self._leases.concerns(info):
            self._leases.forget(_held_key(info, stored))

    async def _transact(
        self, info: Kind, compares: Sequence[Compare], operations: Sequence[Operation], fence: Fence | None
    ) -> Outcome:
        if fence is None:
            return await self.kv.transact(compares, operations)
        guard = Compare(held_key(kind_of(Lease), fence.namespace, fence.lease), value=held_value(fence))
        outcome = await self.kv.transact([*compares, guard], operations)
        held = outcome.current.get(guard.key)
        if not outcome.succeeded and (held is None or held.value != guard.value):
            raise FencedError(
                f"cannot write {info.kind}: {fence.holder} no longer leads in epoch {fence.epoch}",
                hint="stop; the next leader goes on",
            )
        return outcome


def _typed(cls: type[Object], document: Document, revision: int) -> Object:
    if revision:
        document["metadata"]["resourceVersion"] = str(revision)
    return typed(cls, document)


def _key(info: Kind, document: Document) -> str:
    meta = document["metadata"]
    return object_key(info, meta.get("namespace", ""), meta.get("name", ""))


def _held_key(info: Kind, lease: Document) -> str:
    return held_key(info, lease["metadata"].get("namespace", ""), lease["metadata"]["name"])


def _with_namespace(info: Kind, document: Document) -> Document:
    """A copy with its own metadata; a namespaced kind is in "default" unless it says otherwise."""
    meta = dict(document.get("metadata", {}))
    if info.namespaced:
        meta["namespace"] = meta.get("namespace") or DEFAULT_NAMESPACE
    else:
        meta.pop("namespace", None)
    return {**document, "metadata": meta}


def _strip_version(document: Document) -> None:
    document["metadata"].pop("resourceVersion", None)


def _created(info: Kind, applied: Document) -> Document:
    """An apply to nothing: what was merged, as a new object. The owners that were computed stay."""
    new = fill_defaults(rules.prepare_create(info, applied, uid=entropy.new_uid(), now=clock.timestamp()))
    return _with_owners_of(applied, new)


def _merged(info: Kind, stored: Document, new: Document, *, status: bool) -> Document:
    # Defaults first: a default that takes the place of an equal value changes nothing.
    filled = fill_defaults(new)
    prepared = rules.prepare_status(info, stored, filled) if status else rules.prepare_update(info, stored, filled)
    return _with_owners_of(new, prepared)


def _with_owners_of(source: Document, document: Document) -> Document:
    meta = {k: v for k, v in document["metadata"].items() if k != "managedFields"}
    if source["metadata"].get("managedFields"):
        meta["managedFields"] = source["metadata"]["managedFields"]
    return {**document, "metadata": meta}


def _check_apply_preconditions(info: Kind, stored: Document | None, applied: Document, *, status: bool) -> None:
    meta = applied["metadata"]
    if not meta.get("name"):
        problem = Problem("metadata.name", "is missing", "an apply needs a name; generateName works with create only")
        raise InvalidError(f"cannot apply {info.singular}", [problem])
    if stored is None:
        if status:
            raise NotFoundError(f"cannot find {rules.describe(info, applied)}")
        if meta.get("uid") or meta.get("resourceVersion"):
            raise ConflictError(f"cannot apply {rules.describe(info, applied)}: it names a version, and is not there")
        return
    if meta.get("resourceVersion") and meta["resourceVersion"] != stored["metadata"]["resourceVersion"]:
        raise _changed(info, applied)


def _changed(info: Kind, document: Document) -> ConflictError:
    return ConflictError(_changed_text(info, document), hint=_READ_AGAIN)


def _overtaken(info: Kind, document: Document, entry: Entry, outcome: Outcome) -> _OvertakenError:
    error = _OvertakenError(_changed_text(info, document), hint=_READ_AGAIN)
    have = outcome.current.get(entry.key)
    error.absent = have is None
    error.gone = outcome.repeated and (have is None or have.created != entry.created)
    return error


def _changed_text(info: Kind, document: Document) -> str:
    return f"cannot write {rules.describe(info, document)}: somebody else changed it in between"


def _require_valid(verb: str, info: Kind, document: Document, problems: Sequence[Problem]) -> None:
    if problems:
        raise InvalidError(f"cannot {verb} {rules.describe(info, document)}", problems)
