"""Everything that may call for an orchestration flows together into one pending event.

Hosts that come, go or change, hosts that fall silent or are heard again, and whatever the managers' refresh keys name.
What a host reports of its own health and what the leader itself writes about it is none of that: a heartbeat, or a
leader's answer to one, must not wake anybody.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from typing import Any

from quartermaster.backends.base import RefreshEvent, RefreshKey, Touched
from quartermaster.engine.cache import Cache, Caches
from quartermaster.engine.waiting import Signal
from quartermaster.resources.kind import kind_of
from quartermaster.resources.model import Object
from quartermaster.resources.orchestration import Host

# More objects than this in one event are not worth naming: everything is looked at then.
TOUCHED_LIMIT = 1_000
NOTHING = RefreshEvent()


def merged(earlier: RefreshEvent, later: RefreshEvent) -> RefreshEvent:
    """Both in one. A host that was removed and is there again has changed; one that came and went is removed."""
    if earlier == NOTHING:
        return later
    if later == NOTHING:
        return earlier
    state: dict[str, str] = {}
    for event in (earlier, later):
        for kind, names in (("added", event.added), ("removed", event.removed), ("changed", event.changed)):
            for name in names:
                state[name] = _combined(state.get(name, ""), kind)
    touched = tuple(dict.fromkeys((*earlier.touched, *later.touched)))
    overflow = len(touched) > TOUCHED_LIMIT
    return RefreshEvent(
        added=_named(state, "added"),
        removed=_named(state, "removed"),
        changed=_named(state, "changed"),
        unhealthy=tuple(sorted({*earlier.unhealthy, *later.unhealthy})),
        keys=tuple(dict.fromkeys((*earlier.keys, *later.keys))),
        touched=() if overflow else touched,
        full=earlier.full or later.full or overflow,
        since=earlier.since,
    )


def _combined(before: str, now: str) -> str:
    if before == "added" and now == "changed":
        return "added"
    if before == "removed" and now == "added":
        return "changed"
    return now


def _named(state: dict[str, str], kind: str) -> tuple[str, ...]:
    return tuple(sorted(name for name, its in state.items() if its == kind))


class Pending:
    """What has happened since it was last taken. Changes are noted one by one and put in order when they are taken."""

    def __init__(self) -> None:
        self.there = Signal()
        self._hosts: dict[str, str] = {}
        self._unhealthy: dict[str, None] = {}
        self._keys: dict[RefreshKey, None] = {}
        self._touched: dict[Touched, None] = {}
        self._full = False
        self._since = 0.0

    def note(
        self,
        *,
        host: tuple[str, str] | None = None,
        unhealthy: str = "",
        key: RefreshKey | None = None,
        touched: Touched | None = None,
        full: bool = False,
    ) -> None:
        """`host` is its name and what became of it: added, removed or changed."""
        if not self.there.is_set():
            self._since = asyncio.get_running_loop().time()
            self.there.set()
        if host is not None:
            name, kind = host
            self._hosts[name] = _combined(self._hosts.get(name, ""), kind)
        if unhealthy:
            self._unhealthy[unhealthy] = None
        if key is not None:
            self._keys[key] = None
        if touched is not None and not self._full:
            self._touched[touched] = None
            full = full or len(self._touched) > TOUCHED_LIMIT
        if full:
            self._full = True
            self._touched.clear()

    def take(self) -> RefreshEvent:
        event = RefreshEvent(
            added=_named(self._hosts, "added"),
            removed=_named(self._hosts, "removed"),
            changed=_named(self._hosts, "changed"),
            unhealthy=tuple(sorted(self._unhealthy)),
            keys=tuple(self._keys),
            touched=tuple(self._touched),
            full=self._full,
            since=self._since,
        )
        self._hosts.clear()
        self._unhealthy.clear()
        self._keys.clear()
        self._touched.clear()
        self._full = False
        self.there.clear()
        return event


def cache_of(caches: Caches, kind: type[Object], namespace: str) -> Cache[Any]:
    """The cache that everybody who serves this namespace shares."""
    return caches.of(kind, namespace if kind_of(kind).namespaced else None)


def watch_hosts(hosts: Cache[Host], pending: Pending) -> Callable[[], None]:
    def handle(old: Host | None, new: Host | None) -> None:
        if new is None:
            if old is not None:
                pending.note(host=(old.metadata.name, "removed"))
        elif old is None:
            pending.note(host=(new.metadata.name, "added"))
        elif essence(old) != essence(new):
            pending.note(host=(new.metadata.name, "changed"))

    return hosts.subscribe(handle)


def essence(host: Host) -> tuple[Any, ...]:
    """What of a host may matter to a manager: not what the leader itself says of it."""
    meta = host.metadata
    return meta.labels, meta.annotations, meta.deletion_timestamp, host.spec, host.status.inventory


def watch_keys(
    caches: Caches, keys: Sequence[RefreshKey], namespace: str, pending: Pending
) -> list[Callable[[], None]]:
    return [_watch_key(caches, key, namespace, pending) for key in dict.fromkeys(keys)]


def _watch_key(caches: Caches, key: RefreshKey, namespace: str, pending: Pending) -> Callable[[], None]:
    cache = selection(caches, key, namespace)
    path = _steps(key.field)

    def handle(old: Object | None, new: Object | None) -> None:
        if old is None or new is None or not path or _at(old, path) != _at(new, path) or _ends(old) != _ends(new):
            obj = new or old
            if obj is not None:
                pending.note(key=key, touched=Touched(key.kind, obj.key))

    return cache.subscribe(handle)


def selection(caches: Caches, key: RefreshKey, namespace: str) -> Cache[Any]:
    where = namespace if kind_of(key.kind).namespaced else None
    return caches.of(key.kind, where, labels=key.labels, fields=key.fields)


def _ends(obj: Object) -> str | None:
    """A deletion that begins concerns whoever watches any field: finalizers are waited for."""
    return obj.metadata.deletion_timestamp


def _at(obj: Any, path: Sequence[tuple[str, str]]) -> Any:
    for name, attribute in path:
        if obj is None:
            return None
        obj = obj.get(name) if isinstance(obj, dict) else getattr(obj, attribute, None)
    return obj


def _steps(path: str) -> tuple[tuple[str, str], ...]:
    """Each step as the API spells it and as the struct does."""
    names = tuple(filter(None, path.split(".")))
    return tuple((name, re.sub(r"(?=[A-Z])", "_", name).lower()) for name in names)
