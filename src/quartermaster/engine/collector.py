"""Owner references on our own stores: what a garbage collector does on Kubernetes.

- Background: what an owner that is gone has left behind is deleted. A uid that is not there counts as gone, whether
  or not it ever was. With several owners all must be gone; until then the dangling references are taken out.
- Foreground: dependants that block their owner's deletion go first, then the owner's finalizer.
- Orphan: the references are taken out of the dependants, then the owner's finalizer.

The leader runs `Collector`; where nobody leads, `collect_once` does the same for a command that has just deleted. On
Kubernetes, which collects by itself, `Collector` does nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from quartermaster.engine.cache import Cache, Caches
from quartermaster.engine.controller import Scope, all_synced
from quartermaster.engine.metrics import COLLECTED
from quartermaster.engine.ownership import (
    Cascade,
    Collected,
    Item,
    find_owner,
    has_part,
    is_suspect,
    is_waiting,
    item_of,
    list_all,
    owner_uids,
)
from quartermaster.engine.queue import DEFAULT_BOUND, WorkQueue, queue_meters
from quartermaster.engine.workers import DONE, Result, Workers
from quartermaster.resources.kind import all_kinds, kind_of
from quartermaster.resources.model import Key, Object
from quartermaster.stores.base import Store
from quartermaster.support.errors import ConflictError, UnreadableError
from quartermaster.support.log import logger

_log = logger("engine.collector")

_OWNERS = "owner-uids"
# A chain of owners takes one pass per link at most; nobody builds longer ones.
_PASSES = 64


def collected_kinds() -> tuple[type[Object], ...]:
    return tuple(cls for cls in all_kinds() if not kind_of(cls).stands_alone)


class Collector:
    """A service of the engine."""

    name = "collector"

    def __init__(
        self,
        kinds: Sequence[type[Object]] = (),
        *,
        workers: int = 4,
        timeout_s: float = 60.0,
        queue_bound: int = DEFAULT_BOUND,
    ) -> None:
        self._kinds = tuple(kinds) or collected_kinds()
        self._workers = workers
        self._timeout_s = timeout_s
        self._queue_bound = queue_bound

    def prepare(self, caches: Caches) -> None:
        if caches.store.fences:
            self._indexed(caches)

    def _indexed(self, caches: Caches) -> dict[type[Object], Cache[Any]]:
        found: dict[type[Object], Cache[Any]] = {cls: caches.of(cls) for cls in self._kinds}
        for cache in found.values():
            cache.add_index(_OWNERS, owner_uids)
        return found

    async def run(self, scope: Scope) -> None:
        if not scope.store.fences:
            return
        caches = self._indexed(scope.caches)
        view = _CacheView(caches)
        queue: WorkQueue[Item] = WorkQueue(
            bound=self._queue_bound,
            meters=queue_meters(scope.metrics, self.name),
            everything=lambda: _concerned(caches),
        )
        counters = {name: scope.metrics.counter(COLLECTED, name) for name in Collected.__struct_fields__}
        cascade = Cascade(scope.store, self._kinds, view, lambda action: counters[action].inc())
        by_resource = {kind_of(cls).resource: cls for cls in self._kinds}

        async def settle(item: Item) -> Result:
            obj = view.get(by_resource[item.resource], Key(item.namespace, item.name))
            if obj is not None and is_suspect(view, obj):
                await cascade.settle(item)
            return DONE

        unsubscribe = [cache.subscribe(_handler(queue, view)) for cache in caches.values()]
        try:
            if not await all_synced(self.name, tuple(caches.values()), scope.stopping):
                return
            workers = Workers(
                self.name, queue, settle, count=self._workers, timeout_s=self._timeout_s, metrics=scope.metrics
            )
            await workers.run(scope.stopping, drain_s=scope.drain_s)
        finally:
            for end in unsubscribe:
                end()
            queue.close(drop=True)


async def collect_once(store: Store, kinds: Sequence[type[Object]] = ()) -> Collected:
    """Go over everything until nothing is left to do. For a command; not beside a leader that collects."""
    kinds = tuple(kinds) or collected_kinds()
    total = Collected()
    for _ in range(_PASSES):
        view = await _Snapshot.take(store, kinds)
        cascade = Cascade(store, kinds, view)
        overtaken = False
        for obj in [obj for obj in view.objects() if is_suspect(view, obj)]:
            try:
                await cascade.settle(item_of(obj))
            except ConflictError:
                overtaken = True
            except UnreadableError as error:  # what it concerns stays as it is; everything else goes on
                _log.warning("cannot collect an object", object=str(obj.key), error=str(error))
        for action in Collected.__struct_fields__:
            setattr(total, action, getattr(total, action) + getattr(cascade.collected, action))
        if not cascade.collected.total and not overtaken:
            break
    return total


def _concerned(caches: dict[type[Object], Cache[Any]]) -> Iterator[Item]:
    for cache in caches.values():
        for obj in cache.list():
            if has_part(obj):
                yield item_of(obj)


def _handler(queue: WorkQueue[Item], view: _CacheView) -> Callable[[Any, Any], None]:
    """Whom a change concerns: the object itself, those it owns, and those that wait for it to go."""

    def handle(old: Object | None, new: Object | None) -> None:
        if new is not None and has_part(new) and (old is None or _ownership(old) != _ownership(new)):
            queue.add(item_of(new))
        goes = new is None or is_waiting(new)
        obj = new or old
        if obj is not None and goes:
            for dependant in view.dependants(obj.metadata.uid):
                queue.add(item_of(dependant))
        if old is not None and (new is None or old.metadata.owner_references != new.metadata.owner_references):
            for owner in view.owners(old):
                if is_waiting(owner):
                    queue.add(item_of(owner))

    return handle


def _ownership(obj: Object) -> tuple[object, ...]:
    return obj.metadata.owner_references, obj.metadata.finalizers, obj.metadata.deletion_timestamp


class _CacheView:
    def __init__(self, caches: dict[type[Object], Cache[Any]]) -> None:
        self._caches = caches

    def covers(self, kind: type[Object]) -> bool:
        return kind in self._caches

    def get(self, kind: type[Object], key: Key) -> Object | None:
        return self._caches[kind].get(key)

    def dependants(self, uid: str) -> list[Object]:
        return [obj for cache in self._caches.values() for obj in cache.by_index(_OWNERS, uid)]

    def owners(self, obj: Object) -> list[Object]:
        found = []
        for reference in obj.metadata.owner_references:
            named = find_owner(reference, obj)
            owner = self.get(*named) if named is not None and self.covers(named[0]) else None
            if owner is not None and owner.metadata.uid == reference.uid:
                found.append(owner)
        return found


class _Snapshot:
    """Everything, as it was a moment ago."""

    def __init__(self) -> None:
        self._objects: dict[tuple[type[Object], Key], Object] = {}
        self._dependants: dict[str, list[Object]] = {}
        self._kinds: tuple[type[Object], ...] = ()

    @classmethod
    async def take(cls, store: Store, kinds: Sequence[type[Object]]) -> _Snapshot:
        snapshot = cls()
        snapshot._kinds = tuple(kinds)
        for kind in kinds:
            for obj in await list_all(store, kind):
                snapshot._objects[kind, obj.key] = obj
                for uid in owner_uids(obj):
                    snapshot._dependants.setdefault(uid, []).append(obj)
        return snapshot

    def objects(self) -> list[Object]:
        return list(self._objects.values())

    def covers(self, kind: type[Object]) -> bool:
        return kind in self._kinds

    def get(self, kind: type[Object], key: Key) -> Object | None:
        return self._objects.get((kind, key))

    def dependants(self, uid: str) -> list[Object]:
        return self._dependants.get(uid, [])
