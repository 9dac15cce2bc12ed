"""A second look, at the store itself, before something is done that cannot be taken back.

Caches are a little late, and that matters for one sort of decision only: what is taken away because nobody uses it. A
volume replica that was made a moment ago is in the store and not yet in the cache, and its pool must not go. So what
the rules name as evidence (`AttachmentRule.confirm`) is read anew, and the hook decides again with that.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from quartermaster.backends.cstor.hook import AttachmentRule, Attachments, Hook, Look, SyncResponse, everything
from quartermaster.hooks.deciding import Writes
from quartermaster.hooks.gathering import Gatherer
from quartermaster.resources.kind import kind_of
from quartermaster.resources.model import Object
from quartermaster.stores.base import Store
from quartermaster.support.errors import NotFoundError, UnreadableError


class Picture(msgspec.Struct, frozen=True):
    """A watched object and what belongs to it, of one moment."""

    watch: Object
    attachments: Attachments


def takes_away(response: SyncResponse, writes: Writes, *, finalizing: bool) -> bool:
    """Whether the answer does something that cannot be undone."""
    return response.irreversible or bool(writes.deletes) or (finalizing and response.finalized)


class Confirming:
    """Reads anew for the watched objects of one hook."""

    def __init__(self, hook: Hook, store: Store, gatherer: Gatherer) -> None:
        self._hook = hook
        self._store = store
        self._gatherer = gatherer

    async def look_again(self, seen: Picture) -> Picture | None:
        """What there is now, or None where the watched object is gone.

        What the store shows of kinds that are in the inventory is put there: it is newer than what the cache has told.
        """
        watch = await self._read(self._hook.watch, seen.watch.metadata.namespace, seen.watch.metadata.name)
        if watch is None or watch.metadata.uid != seen.watch.metadata.uid:
            return None
        found = {(type(obj), obj.key): obj for obj in seen.attachments.everything()}
        for rule in self._hook.attachments:
            look = rule.confirm(watch) if rule.confirm is not None else None
            if look is None:
                continue
            fresh = [obj for obj in await self._look(rule.kind, look) if _belongs(rule, watch, obj)]
            if rule.indexed and self._gatherer.inventory is not None:
                self._gatherer.overtake(rule, watch, look, fresh)
                continue
            known = [place for place, obj in found.items() if place[0] is rule.kind and look.covers(obj)]
            for place in known:
                del found[place]
            found.update({(rule.kind, obj.key): obj for obj in fresh})
        return Picture(watch, Attachments(found.values()))

    async def _look(self, kind: type[Object], look: Look) -> Iterable[Object]:
        if look.name:
            obj = await self._read(kind, look.namespace or "", look.name)
            return () if obj is None else (obj,)
        labels = ",".join(f"{name}={value}" for name, value in look.labels.items())
        page = await self._store.list(kind, look.namespace, labels=labels)
        if page.skipped:
            resource = kind_of(kind).resource
            raise UnreadableError(
                f"cannot be sure that nobody uses it: {page.skipped} {resource} cannot be read",
                hint=f"qm get {resource} names them",
            )
        return [_as_cached(obj) for obj in page.items]

    async def _read(self, kind: type[Object], namespace: str, name: str) -> Object | None:
        try:
            return _as_cached(await self._store.get(kind, name, namespace))
        except NotFoundError:
            return None


def _belongs(rule: AttachmentRule, watch: Object, obj: Object) -> bool:
    if rule.keys_of_object is everything or rule.keys_of_watch is everything:
        return True
    keys = set(rule.keys_of_watch(watch))
    return any(key in keys for key in rule.keys_of_object(obj))


def _as_cached(obj: Object) -> Object:
    if not obj.metadata.managed_fields:
        return obj
    return msgspec.structs.replace(obj, metadata=msgspec.structs.replace(obj.metadata, managed_fields=()))
