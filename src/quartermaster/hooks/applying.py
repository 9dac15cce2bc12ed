"""Makes the writes that were decided, in their order: explicit updates, creates and updates, then deletes.

One object that cannot be written does not hold up its siblings, but the next phase does not begin: what depends on it
is not deleted, and no status promises what was not done. Each write states what it is based on (uid and version), so a
decision by an old picture is refused by the store and made again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial

from quartermaster.backends.cstor.hook import Hook
from quartermaster.engine import Request, Scope
from quartermaster.engine.metrics import HOOK_WRITES
from quartermaster.hooks.deciding import Create, Delete, Patch, Update, Writes, taken
from quartermaster.hooks.expectations import Expectations
from quartermaster.hooks.gathering import Gatherer, mark_of
from quartermaster.resources.codec import from_document
from quartermaster.resources.kind import kind_of
from quartermaster.resources.model import Object
from quartermaster.support.errors import (
    AlreadyExistsError,
    ConflictError,
    FencedError,
    NotFoundError,
    QuartermasterError,
)

_ACTIONS = ("create", "update", "patch", "delete", "metadata", "status")


class Applier:
    """Writes for the watched objects of one hook, and notes what the caches should show afterwards."""

    def __init__(self, hook: Hook, scope: Scope, gatherer: Gatherer, expectations: Expectations) -> None:
        self._hook = hook
        self._store = scope.store
        self._gatherer = gatherer
        self._expectations = expectations
        self._counters = {action: scope.metrics.counter(HOOK_WRITES, hook.name, action) for action in _ACTIONS}

    async def apply(self, watch: Object, writes: Writes) -> None:
        """Raises what went wrong in the first phase in which anything did; the others are notes to it."""
        await self._phase([partial(self._patch, watch, patch) for patch in writes.patches])
        changes = [partial(self._create, watch, create) for create in writes.creates]
        changes += [partial(self._update, watch, update) for update in writes.updates]
        await self._phase(changes, writes.foreign)
        await self._phase([partial(self._delete, watch, delete) for delete in writes.deletes])

    async def write_watch(self, before: Object, after: Object, *, status: bool = False) -> Object:
        """The watched object itself; what is equal is not written."""
        if after is before:
            return before
        write: Callable[[Object], Awaitable[Object]] = self._store.update_status if status else self._store.update
        try:
            written = await write(after)
        except NotFoundError as error:
            raise _overtaken(after) from error
        self._counters["status" if status else "metadata"].inc()
        self._expect(before.key, before, written)
        return written

    async def _phase(
        self, writes: Iterable[Callable[[], Awaitable[None]]], errors: Iterable[QuartermasterError] = ()
    ) -> None:
        failed = list(errors)
        for write in writes:
            try:
                await write()
            except FencedError:
                raise
            except QuartermasterError as error:
                failed.append(error)
        if failed:
            raise _first(failed)

    async def _create(self, watch: Object, create: Create) -> None:
        cls, key = create.cls, create.key
        try:
            await self._store.create(from_document(cls, create.document))
        except AlreadyExistsError:
            there = await self._read(cls, create)
            if mark_of(there) != watch.metadata.uid:
                raise taken(watch, there) from None
            # Ours: a call before this one made it, and the cache is late, or the answer was lost.
        else:
            self._counters["create"].inc()
        self._expectations.expect(watch.key, self._gatherer.cache(cls), key, None)

    async def _update(self, watch: Object, update: Update) -> None:
        try:
            written = await self._store.update(update.after)
        except NotFoundError as error:
            raise _overtaken(update.before) from error
        self._counters["update"].inc()
        self._expect(watch.key, update.before, written)

    async def _patch(self, watch: Object, patch: Patch) -> None:
        manager = f"{self._hook.name}:{watch.metadata.uid}"
        try:
            written = await self._store.apply(patch.document, manager=manager, force=True)
        except NotFoundError as error:
            raise _overtaken(patch.before) from error
        self._counters["patch"].inc()
        self._expect(watch.key, patch.before, written)

    async def _delete(self, watch: Object, delete: Delete) -> None:
        meta = delete.before.metadata
        try:
            await self._store.delete(
                type(delete.before), meta.name, meta.namespace, uid=meta.uid, revision=meta.resource_version
            )
        except NotFoundError:
            return
        self._counters["delete"].inc()
        cache = self._gatherer.cache(type(delete.before))
        self._expectations.expect(watch.key, cache, delete.before.key, delete.before)

    async def _read(self, cls: type[Object], create: Create) -> Object:
        try:
            return await self._store.get(cls, create.key.name, create.key.namespace)
        except NotFoundError as error:
            raise ConflictError(f"cannot create {kind_of(cls).kind} {create.key}: it was there a moment ago") from error

    def _expect(self, request: Request, before: Object, written: Object) -> None:
        if written.metadata.resource_version != before.metadata.resource_version:
            self._expectations.expect(request, self._gatherer.cache(type(before)), before.key, before)


def _overtaken(obj: Object) -> ConflictError:
    return ConflictError(f"cannot write {kind_of(obj).kind} {obj.key}: it is gone", hint="decide again")


def _first(failed: list[QuartermasterError]) -> QuartermasterError:
    """Of several the first that is more than a conflict, which the next try settles by itself."""
    serious = [error for error in failed if not isinstance(error, ConflictError)]
    first, *others = [*serious, *(error for error in failed if error not in serious)]
    for other in others:
        first.add_note(f"and: {other}")
    return first
