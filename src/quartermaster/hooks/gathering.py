"""What belongs to a watched object, found through indexes of the caches, and whom a change concerns.

An object belongs to a watched object where they share a join key (`AttachmentRule`), and where it bears the mark of
having been made for it. Both ways are indexes that the caches keep up to date, so the cost of a call grows with what
belongs to one object, and that of a change with whom it concerns, not with what there is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from quartermaster.backends.cstor.hook import AttachmentRule, Attachments, Hook, Look, everything
from quartermaster.backends.cstor.inventory import Inventory
from quartermaster.engine import Cache, Caches, Request, Watch, mapped
from quartermaster.hooks.deciding import Observed
from quartermaster.hooks.merging import OWNER_ANNOTATION
from quartermaster.resources.model import Key, Object

_BY_MARK = "hooks/mark"
_BY_UID = "hooks/uid"
_EVERY = "*"  # the one key that `everything` gives


def mark_of(obj: Object) -> str:
    """The uid of the watched object for which this one was made; "" if for none."""
    return obj.metadata.annotations.get(OWNER_ANNOTATION, "")


class SharedInventory:
    """One inventory for all hooks of a process, fed by the caches of the kinds that are indexed."""

    def __init__(self) -> None:
        self.inventory = Inventory()
        self._fed: list[Cache[Any]] = []

    def feed(self, cache: Cache[Any]) -> None:
        """From now on the inventory follows the cache; a second time changes nothing."""
        if any(fed is cache for fed in self._fed):
            return
        self._fed.append(cache)
        cache.subscribe(self._follow)

    def _follow(self, old: Object | None, new: Object | None) -> None:
        if new is not None:
            self.inventory.put(new)
        elif old is not None:
            self.inventory.remove(old)


class Gatherer:
    """The view of one hook on the caches."""

    def __init__(
        self, hook: Hook, caches: Caches, shared: SharedInventory | None, namespace: str | None = None
    ) -> None:
        self._hook = hook
        self._shared = shared  # None: the caller has to send every object
        self.watches: Cache[Any] = caches.of(hook.watch, namespace)
        self.watches.add_index(_BY_UID, lambda watch: (watch.metadata.uid,))
        self._caches: dict[type[Object], Cache[Any]] = {}
        for number, rule in enumerate(hook.attachments):
            cache = self._caches[rule.kind] = caches.of(rule.kind)
            if rule.keys_of_object is not everything and self._is_asked(rule):
                cache.add_index(self._index(number), rule.keys_of_object)
            if rule.keys_of_watch is not everything:
                self.watches.add_index(self._index(number), rule.keys_of_watch)
            if rule.access == "own":
                cache.add_index(_BY_MARK, lambda obj: tuple(filter(None, (mark_of(obj),))))
            if rule.indexed and shared is not None:
                shared.feed(cache)

    def _is_asked(self, rule: AttachmentRule) -> bool:
        """Whether objects are looked up by their keys: what is in the inventory only before something irreversible."""
        return not rule.indexed or self._shared is None or rule.confirm is not None

    @property
    def inventory(self) -> Inventory | None:
        return None if self._shared is None else self._shared.inventory

    def cache(self, kind: type[Object]) -> Cache[Any]:
        return self.watches if kind is self._hook.watch else self._caches[kind]

    def attachments(self, watch: Object) -> Attachments:
        """What the hook is handed; kinds that are in the inventory are not handed over again."""
        found: dict[tuple[type[Object], Key], Object] = {}
        for number, rule in enumerate(self._hook.attachments):
            if rule.indexed and self._shared is not None:
                continue
            for obj in (*self._joined(number, rule, watch), *self.own(rule, watch)):
                found[rule.kind, obj.key] = obj
        return Attachments(found.values())

    def observed(self, watch: Object, attachments: Attachments) -> Observed:
        """What the answer is compared with: what the hook was shown, so that a write is refused if that has changed."""

        def find(kind: type[Object], key: Key) -> Object | None:
            shown: Object | None = attachments.get(kind, key.namespace, key.name)
            return shown if shown is not None else self.cache(kind).get(key)

        return Observed(own={rule.kind: self.own(rule, watch) for rule in self._hook.attachments}, find=find)

    def own(self, rule: AttachmentRule, watch: Object) -> tuple[Object, ...]:
        """What was made for the watched object."""
        return self._caches[rule.kind].by_index(_BY_MARK, watch.metadata.uid) if rule.access == "own" else ()

    def overtake(self, rule: AttachmentRule, watch: Object, look: Look, fresh: Iterable[Object]) -> None:
        """The inventory learns what the store shows already and the cache does not; its news come after, and agree."""
        if self._shared is None:
            return
        found = tuple(fresh)
        there = {obj.key for obj in found}
        number = self._hook.attachments.index(rule)
        for obj in self._joined(number, rule, watch):
            if look.covers(obj) and obj.key not in there:
                self._shared.inventory.remove(obj)
        for obj in found:
            self._shared.inventory.put(obj)

    def wakers(self) -> list[Watch]:
        """For each kind whose changes concern watched objects, who they are."""
        return [
            mapped(rule.kind, self._concerned(number, rule), predicate=rule.matters)
            for number, rule in enumerate(self._hook.attachments)
        ]

    def _joined(self, number: int, rule: AttachmentRule, watch: Object) -> Iterable[Object]:
        cache = self._caches[rule.kind]
        keys = tuple(rule.keys_of_watch(watch))
        if rule.keys_of_object is everything:
            return cache.list() if _EVERY in keys else ()
        return (obj for key in keys for obj in cache.by_index(self._index(number), key))

    def _concerned(self, number: int, rule: AttachmentRule) -> Callable[[Object], Iterable[Request]]:
        def concerned(obj: Object) -> Iterator[Request]:
            keys = tuple(rule.keys_of_object(obj))
            if rule.keys_of_watch is everything:
                if _EVERY in keys:
                    yield from self.watches.keys()
                    return
            else:
                for key in keys:
                    yield from (watch.key for watch in self.watches.by_index(self._index(number), key))
            if rule.access == "own" and (uid := mark_of(obj)):
                yield from (watch.key for watch in self.watches.by_index(_BY_UID, uid))

        return concerned

    def _index(self, number: int) -> str:
        return f"hooks/{self._hook.name}/{number}"
