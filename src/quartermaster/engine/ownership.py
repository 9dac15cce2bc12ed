"""What becomes of one object by reason of its owners and its dependants, as Kubernetes has it.

What is in a cache may be old, so it only raises a suspicion. Before anything is deleted, the object and each of its
owners are read from the store, and the deletion names the uid and the version that were read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from quartermaster.resources.kind import all_kinds, kind_of
from quartermaster.resources.model import Key, Object, OwnerReference
from quartermaster.resources.references import FOREGROUND, ORPHAN
from quartermaster.stores.base import Page, Propagation, Store
from quartermaster.stores.modify import modify
from quartermaster.support.errors import ConflictError, ExpiredError, NotFoundError, UnreadableError

T = TypeVar("T", bound=Object)
PAGE_SIZE = 500


class Item(msgspec.Struct, frozen=True, order=True):
    """Names an object among all kinds."""

    resource: str  # storagenodes.coreos.com
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.resource}/{Key(self.namespace, self.name)}"


class View(Protocol):
    """What is known without asking the store: perhaps old, never decisive."""

    def get(self, kind: type[Object], key: Key) -> Object | None: ...

    def covers(self, kind: type[Object]) -> bool:
        """Whether `get` knows of that kind at all."""
        ...

    def dependants(self, uid: str) -> Sequence[Object]: ...


class Collected(msgspec.Struct):
    """How often what was done."""

    deleted: int = 0
    orphaned: int = 0
    released: int = 0
    trimmed: int = 0

    @property
    def total(self) -> int:
        return self.deleted + self.orphaned + self.released + self.trimmed


def item_of(obj: Object) -> Item:
    return Item(kind_of(obj).resource, obj.metadata.namespace, obj.metadata.name)


def owner_uids(obj: Object) -> Iterable[str]:
    """The index by which dependants are found."""
    return [reference.uid for reference in obj.metadata.owner_references]


def is_waiting(obj: Object) -> bool:
    """Being deleted, its dependants first."""
    return obj.metadata.deletion_timestamp is not None and FOREGROUND in obj.metadata.finalizers


def has_part(obj: Object) -> bool:
    """Whether ownership may concern the object at all."""
    meta = obj.metadata
    return bool(meta.owner_references) or (
        meta.deletion_timestamp is not None and (FOREGROUND in meta.finalizers or ORPHAN in meta.finalizers)
    )


def find_owner(reference: OwnerReference, dependant: Object) -> tuple[type[Object], Key] | None:
    """What a reference names; None where that cannot be told.

    By group and kind: the version in a reference may be one that is no longer served. Nothing in a namespace owns
    what is in none.
    """
    group = reference.api_version.rpartition("/")[0]
    for cls in all_kinds():
        info = kind_of(cls)
        if info.kind == reference.kind and info.group == group:
            if not info.namespaced:
                return cls, Key("", reference.name)
            namespace = dependant.metadata.namespace
            return (cls, Key(namespace, reference.name)) if namespace else None
    return None


def is_suspect(view: View, obj: Object) -> bool:
    """Whether a look at the store is worth while, by what the view shows."""
    if obj.metadata.deletion_timestamp is not None:
        return has_part(obj)
    for reference in obj.metadata.owner_references:
        named = find_owner(reference, obj)
        if named is None:
            continue
        owner = view.get(*named) if view.covers(named[0]) else None
        if owner is None or owner.metadata.uid != reference.uid or is_waiting(owner):
            return True
    return False


class Cascade:
    """Settles one object at a time; each step is safe to repeat."""

    def __init__(
        self, store: Store, kinds: Sequence[type[Object]], view: View, count: Callable[[str], None] = lambda _: None
    ) -> None:
        self._store = store
        self._kinds = {kind_of(cls).resource: cls for cls in kinds}
        self._view = view
        self._count = count
        self.collected = Collected()

    async def settle(self, item: Item) -> None:
        obj = await self._read(self._kinds[item.resource], Key(item.namespace, item.name))
        if obj is None:
            return
        if obj.metadata.deletion_timestamp is None:
            await self._settle_owners(obj)
        elif ORPHAN in obj.metadata.finalizers:
            await self._orphan(obj)
        elif FOREGROUND in obj.metadata.finalizers:
            await self._release_when_alone(obj)

    async def _settle_owners(self, obj: Object) -> None:
        uids: dict[str, list[str]] = {"standing": [], "waiting": [], "gone": []}
        for reference in obj.metadata.owner_references:
            uids[await self._owner_state(reference, obj)].append(reference.uid)
        waiting, gone = uids["waiting"], uids["gone"]
        if not waiting and not gone:
            return
        if uids["standing"]:
            await self._drop_references(obj, [*waiting, *gone])
            self._done("trimmed")
            return
        propagation: Propagation = "Background"
        if ORPHAN in obj.metadata.finalizers:
            propagation = "Orphan"
        elif FOREGROUND in obj.metadata.finalizers or (waiting and self._view.dependants(obj.metadata.uid)):
            propagation = "Foreground"
        meta = obj.metadata
        await self._store.delete(
            type(obj),
            meta.name,
            meta.namespace,
            uid=meta.uid,
            revision=meta.resource_version,
            propagation=propagation,
        )
        self._done("deleted")

    async def _owner_state(self, reference: OwnerReference, obj: Object) -> str:
        named = find_owner(reference, obj)
        if named is None:
            return "standing"  # what cannot be looked up cannot be known to be gone
        try:
            owner = await self._read(*named)
        except UnreadableError:
            return "standing"  # it is there, whatever it is
        if owner is None or owner.metadata.uid != reference.uid:
            return "gone"
        return "waiting" if reference.block_owner_deletion and is_waiting(owner) else "standing"

    async def _release_when_alone(self, obj: Object) -> None:
        uid = obj.metadata.uid
        if any(_blocks(dependant, uid) for dependant in self._view.dependants(uid)):
            return  # its end brings us back
        for dependant in await self._stored_dependants(obj, complete=False):
            if _blocks(dependant, uid):
                raise ConflictError(f"cannot release {item_of(obj)}: {item_of(dependant)} came just now")
        await self._release(obj, FOREGROUND)

    async def _orphan(self, obj: Object) -> None:
        """One that was overlooked would be deleted when its owner is gone, so none may be left out."""
        for dependant in await self._stored_dependants(obj, complete=True):
            await self._drop_references(dependant, [obj.metadata.uid])
            self._done("orphaned")
        await self._release(obj, ORPHAN)

    async def _stored_dependants(self, obj: Object, *, complete: bool) -> list[Object]:
        """From the store: the view may not have seen yet what was made a moment ago."""
        found: list[Object] = []
        for cls in self._kinds.values():
            if obj.metadata.namespace and not kind_of(cls).namespaced:
                continue
            stored = await list_all(self._store, cls, obj.metadata.namespace or None, complete=complete)
            found.extend(dependant for dependant in stored if obj.metadata.uid in owner_uids(dependant))
        return found

    async def _release(self, obj: Object, finalizer: str) -> None:
        def without(current: Object) -> Object:
            if current.metadata.uid != obj.metadata.uid:
                return current
            kept = tuple(f for f in current.metadata.finalizers if f != finalizer)
            return _with_meta(current, finalizers=kept)

        await self._modify(obj, without)
        self._done("released")

    async def _drop_references(self, obj: Object, uids: Sequence[str]) -> None:
        def without(current: Object) -> Object:
            if current.metadata.uid != obj.metadata.uid:
                return current
            kept = tuple(r for r in current.metadata.owner_references if r.uid not in uids)
            return _with_meta(current, owner_references=kept)

        await self._modify(obj, without)

    async def _modify(self, obj: Object, change: Callable[[Object], Object]) -> None:
        try:
            await modify(self._store, type(obj), obj.metadata.name, obj.metadata.namespace, change)
        except NotFoundError:
            return  # gone meanwhile, which is as good

    async def _read(self, cls: type[Object], key: Key) -> Object | None:
        try:
            return await self._store.get(cls, key.name, key.namespace)
        except NotFoundError:
            return None

    def _done(self, action: str) -> None:
        setattr(self.collected, action, getattr(self.collected, action) + 1)
        self._count(action)


def _blocks(dependant: Object, uid: str) -> bool:
    return any(r.uid == uid and r.block_owner_deletion for r in dependant.metadata.owner_references)


async def list_all(store: Store, kind: type[T], namespace: str | None = None, *, complete: bool = False) -> list[T]:
    """With `complete` UnreadableError says that some of them do not fit their type, and were left out."""
    try:
        pages = await _pages(store, kind, namespace, PAGE_SIZE)
    except ExpiredError:  # in parts it takes longer than the store remembers
        pages = await _pages(store, kind, namespace, 0)
    skipped = sum(page.skipped for page in pages)
    if complete and skipped:
        raise UnreadableError(
            f"cannot read all {kind_of(kind).plural}: {skipped} of them do not fit their type",
            hint="the log names them; apply them anew, or delete them",
        )
    return [obj for page in pages for obj in page.items]


async def _pages(store: Store, kind: type[T], namespace: str | None, limit: int) -> list[Page[T]]:
    pages = [await store.list(kind, namespace, limit=limit)]
    while pages[-1].continues:
        pages.append(await store.list(kind, namespace, limit=limit, continues=pages[-1].continues))
    return pages


def _with_meta(obj: T, **changes: Any) -> T:
    return msgspec.structs.replace(obj, metadata=msgspec.structs.replace(obj.metadata, **changes))
