"""Objects of one kind, kept up to date by one list and one watch, for everybody who reads them.

Reading never waits and never asks the store. What is read may be a little old: decide by it, and let the store's
resourceVersion catch a decision that was made on something older than what is there.

- Handlers are called with (old, new): (None, new) added, (old, new) changed, (old, None) gone. An object of the same
  name and another uid is another object: first gone, then added. One who subscribes late is told of all that is there.
- After ExpiredError everything is listed again and compared, and the difference is told as if it had been watched.
- While the store does not answer, the cache keeps what it has and tries again with growing delays, for ever. After a
  minute of that it warns, and the process is not ready: what is read may be older than anybody expects. A watch on
  which nothing happens proves itself by staying open for a while.
- Lists come ordered by namespace and name, whatever the order of arrival.
- `metadata.managedFields` are left out unless asked for: they are often half of an object, and no reconciler reads
  them. Both homes take an update without them as "leave them as they are".
"""

from __future__ import annotations

import asyncio
import contextlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, NamedTuple, TypeVar, cast

import msgspec

from quartermaster.engine.metrics import (
    CACHE_OBJECTS,
    CACHE_STALE,
    HANDLER_ERRORS,
    SILENT,
    WATCH_RELISTS,
    WATCH_RESTARTS,
    Metrics,
)
from quartermaster.engine.waiting import Signal
from quartermaster.resources.kind import kind_of
from quartermaster.resources.model import Key, Object
from quartermaster.resources.selectors import LabelSelector
from quartermaster.stores.base import Event, Store, StreamsInitialState
from quartermaster.support.backoff import Backoff
from quartermaster.support.deadlines import within
from quartermaster.support.errors import (
    DeadlineError,
    ExpiredError,
    ForbiddenError,
    RefusedError,
    UnauthorizedError,
    UnavailableError,
)
from quartermaster.support.log import logger

T = TypeVar("T", bound=Object)
Handler = Callable[[T | None, T | None], None]
IndexFunction = Callable[[T], Iterable[str]]

PAGE_SIZE = 500
WATCH_BACKOFF = Backoff(first_s=0.2, limit_s=30.0)
# A cache that has failed for longer than this is stale.
STALE_AFTER_S = 60.0
# A watch that has stayed open for so long works, for stores give up on a server that does not answer before that.
_PROOF_S = 45.0
# How many changes are told in a row before other work of the loop has its turn.
_STEP = 1_000

_log = logger("engine.cache")


class CacheKey(NamedTuple):
    """What a cache holds. Whoever asks for the same shares it."""

    kind: type[Object]
    namespace: str | None = None
    labels: str = ""
    fields: str = ""

    def __str__(self) -> str:
        parts = (kind_of(self.kind).resource, self.namespace or "", self.labels, self.fields)
        return " ".join(part for part in parts if part)


class Cache(Generic[T]):
    """Starts empty; `run` fills it and keeps it so until it is cancelled."""

    def __init__(
        self,
        store: Store,
        kind: type[T],
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        managed_fields: bool = False,
        metrics: Metrics = SILENT,
        backoff: Backoff = WATCH_BACKOFF,
    ) -> None:
        self.key = CacheKey(kind, namespace, labels, fields)
        self.synced = Signal()
        self._store = store
        # Found by structure: a store that has the method offers it.
        self._streaming = cast(StreamsInitialState, store) if hasattr(store, "watch_from_start") else None
        self._kind = kind
        self._selection: dict[str, str] = {"labels": labels, "fields": fields}
        self._keep_managed_fields = managed_fields
        self._backoff = backoff
        self._objects: dict[Key, T] = {}
        self._order: tuple[Key, ...] | None = ()  # the keys in order; None when it has to be made again
        self._handlers: dict[int, Handler[T]] = {}
        self._next_handler = 0
        self._index_functions: dict[str, IndexFunction[T]] = {}
        self._indexes: dict[str, dict[str, dict[Key, None]]] = {}
        self._revision = ""
        self._failures = 0
        self._failing_since: float | None = None
        self._changed: asyncio.Future[None] | None = None
        self._count = metrics.gauge(CACHE_OBJECTS, str(self.key))
        self._stale = metrics.gauge(CACHE_STALE, str(self.key))
        self._restarts = metrics.counter(WATCH_RESTARTS, str(self.key))
        self._relists = metrics.counter(WATCH_RELISTS, str(self.key))
        self._handler_errors = metrics.counter(HANDLER_ERRORS, str(self.key))

    def __len__(self) -> int:
        return len(self._objects)

    @property
    def stale_s(self) -> float:
        """For how long it has failed to follow the store, if that is longer than a hiccup; else 0."""
        if self._failing_since is None:
            return 0.0
        failing_s = asyncio.get_running_loop().time() - self._failing_since
        return failing_s if failing_s >= STALE_AFTER_S else 0.0

    def get(self, key: Key) -> T | None:
        return self._objects.get(key)

    def keys(self, namespace: str | None = None) -> tuple[Key, ...]:
        if self._order is None:
            self._order = tuple(sorted(self._objects))
        if namespace is None:
            return self._order
        # No name sorts before "", and no namespace lies between this one and itself with a NUL.
        low = bisect_left(self._order, Key(namespace, ""))
        return self._order[low : bisect_left(self._order, Key(namespace + "\0", ""))]

    def list(self, namespace: str | None = None, labels: str = "") -> tuple[T, ...]:
        """Ordered by namespace and name; `labels` is a selector as kubectl takes it."""
        found = tuple([self._objects[key] for key in self.keys(namespace)])
        if not labels:
            return found
        selector = LabelSelector.parse(labels)
        return tuple([obj for obj in found if selector.matches(obj.metadata.labels)])

    def add_index(self, name: str, function: IndexFunction[T]) -> None:
        """Make objects findable by the values that `function` gives for each. A second of that name is the same."""
        if name in self._indexes:
            return
        self._index_functions[name] = function
        self._indexes[name] = {}
        for key, obj in self._objects.items():
            self._index(name, key, None, obj)

    def by_index(self, name: str, value: str) -> tuple[T, ...]:
        """Ordered as a list is."""
        return tuple([self._objects[key] for key in sorted(self._indexes[name].get(value, ()))])

    def subscribe(self, handler: Handler[T]) -> Callable[[], None]:
        """Tell `handler` of every object there is and of every change from now on; returns how to end that."""
        number = self._next_handler
        self._next_handler += 1
        self._handlers[number] = handler
        for key in self.keys():
            self._tell(handler, None, self._objects[key])
        return lambda: cast(None, self._handlers.pop(number, None))

    async def wait_until(self, condition: Callable[[Cache[T]], bool], *, timeout_s: float = 30.0) -> None:
        """Wait for a state of the cache, for instance for one's own write to arrive. DeadlineError if it does not."""
        try:
            async with within(timeout_s):
                while not condition(self):
                    if self._changed is None:
                        self._changed = asyncio.get_running_loop().create_future()
                    await asyncio.shield(self._changed)
        except TimeoutError:
            raise DeadlineError(
                f"cannot see the wanted state of {self.key} within {timeout_s} s", hint="is the store reachable?"
            ) from None

    async def run(self) -> None:
        """List, watch, and again after whatever goes wrong; ends by being cancelled."""
        while True:
            try:
                if self._revision:
                    await self._watch()
                elif not await self._stream():
                    await self._list()
                    continue
                error: Exception = UnavailableError(f"cannot watch {self.key}: the watch ended")
            except ExpiredError as expired:
                self._revision = ""
                self._relists.inc()
                error = expired
            except Exception as failed:  # whatever it is, a cache that gives up would be read as the truth for ever
                error = failed
            await self._pause(error)

    async def _pause(self, error: Exception) -> None:
        self._restarts.inc()
        delay_s = self._backoff.delay_s(self._failures)
        if isinstance(error, UnavailableError):
            delay_s = max(delay_s, error.retry_after_s)
        if isinstance(error, ExpiredError) and self._failures == 0:
            delay_s = 0.0  # expected after a long silence, and cured by the list that follows
        self._failures += 1
        self._report(error, delay_s)
        await asyncio.sleep(delay_s)

    def _report(self, error: Exception, delay_s: float) -> None:
        now = asyncio.get_running_loop().time()
        if self._failing_since is None:
            self._failing_since = now
        failing_s = now - self._failing_since
        self._stale.set(failing_s)
        values = {"cache": str(self.key), "error": f"{type(error).__name__}: {error}", "delay_s": round(delay_s, 3)}
        if failing_s >= STALE_AFTER_S:
            _log.warning("cache is stale", stale_s=round(failing_s), **values)
        else:
            _log.info("watch restarts", **values)

    def _follows(self) -> None:
        """What is here is what the store has: it has just said so."""
        self._failures = 0
        if self._failing_since is not None:
            self._failing_since = None
            self._stale.set(0)

    @contextlib.contextmanager
    def _proving(self) -> Iterator[None]:
        """Around a watch, which may have nothing to tell for a long time."""
        if self._failing_since is None:
            yield
            return
        proof = asyncio.get_running_loop().call_later(_PROOF_S, self._follows)
        try:
            yield
        finally:
            proof.cancel()

    async def _stream(self) -> bool:
        """Begin with a watch that sends what is there, where the store offers that; False where it does not."""
        if self._streaming is None:
            return False
        fresh: dict[Key, T] | None = {}
        events = self._streaming.watch_from_start(self._kind, self.key.namespace, **self._selection)
        try:
            async with contextlib.aclosing(events):
                async for event in events:
                    if fresh is None:
                        self._follow(event)
                    elif event.object is not None:
                        self._note(fresh, event.object)
                    else:
                        await self._replace(fresh)
                        fresh = None
                        self._arrived(event.revision)
        except (UnauthorizedError, ForbiddenError):
            raise
        except RefusedError as error:
            _log.info("cache lists instead of streaming", cache=str(self.key), error=str(error))
            self._streaming = None
            return False
        return True

    async def _list(self) -> None:
        try:
            fresh, revision = await self._collect(PAGE_SIZE)
        except ExpiredError:
            # In parts it takes longer than the store remembers, and would the next time too.
            fresh, revision = await self._collect(0)
        await self._replace(fresh)
        self._arrived(revision)

    async def _collect(self, limit: int) -> tuple[dict[Key, T], str]:
        fresh: dict[Key, T] = {}
        continues = ""
        while True:
            page = await self._store.list(
                self._kind, self.key.namespace, limit=limit, continues=continues, **self._selection
            )
            for obj in page.items:
                self._note(fresh, obj)
            continues = page.continues
            if not continues:
                return fresh, page.revision

    def _note(self, fresh: dict[Key, T], obj: T) -> None:
        """What has not changed keeps the instance that is there: a list of the same takes no second room."""
        known = self._objects.get(obj.key)
        if known is not None and _same_version(known, obj):
            fresh[known.key] = known
        else:
            fresh[obj.key] = self._trim(obj)

    async def _replace(self, fresh: dict[Key, T]) -> None:
        told = 0
        for key in [key for key in self.keys() if key not in fresh]:
            self._change(key, self._objects[key], None)
            told += 1
            if told % _STEP == 0:
                await asyncio.sleep(0)
        for key, obj in fresh.items():
            known = self._objects.get(key)
            if known is obj:
                continue
            self._put(key, obj)
            told += 1
            if told % _STEP == 0:
                await asyncio.sleep(0)

    def _arrived(self, revision: str) -> None:
        self._revision = revision
        self._follows()
        self.synced.set()
        self._wake()

    async def _watch(self) -> None:
        events = self._store.watch(self._kind, self.key.namespace, since=self._revision, **self._selection)
        with self._proving():
            async with contextlib.aclosing(events):
                async for event in events:
                    self._follow(event)

    def _follow(self, event: Event[T]) -> None:
        self._apply(event)
        self._revision = event.revision
        self._follows()

    def _apply(self, event: Event[T]) -> None:
        if event.object is None:
            return
        key = event.object.key
        if event.type == "DELETED":
            self._change(key, self._trim(event.object), None)
        else:
            self._put(key, self._trim(event.object))

    def _put(self, key: Key, obj: T) -> None:
        known = self._objects.get(key)
        if known is not None and known.metadata.uid != obj.metadata.uid:
            self._change(key, known, None)
            known = None
        self._change(key, known, obj)

    def _change(self, key: Key, old: T | None, new: T | None) -> None:
        """The one place where content changes. `old` may be newer than what is held: the last state of what went."""
        held = self._objects.get(key)
        if new is not None:
            if held is None:
                self._order = None
            self._objects[key] = new
        elif held is not None:
            del self._objects[key]
            self._order = None
        else:
            return
        if held is None or new is None:
            self._count.set(len(self._objects))
        for name in self._indexes:
            self._index(name, key, held, new)
        for handler in list(self._handlers.values()):
            self._tell(handler, old, new)
        self._wake()

    def _index(self, name: str, key: Key, old: T | None, new: T | None) -> None:
        index = self._indexes[name]
        before, after = self._values(name, old), self._values(name, new)
        for value in before:
            if value not in after and value in index:
                index[value].pop(key, None)
                if not index[value]:
                    del index[value]
        for value in after:
            index.setdefault(value, {})[key] = None

    def _values(self, name: str, obj: T | None) -> tuple[str, ...]:
        if obj is None:
            return ()
        try:
            return tuple(self._index_functions[name](obj))
        except Exception:  # somebody else's function must not end everybody's cache
            self._handler_errors.inc()
            _log.exception("index function failed", cache=str(self.key), index=name, object=str(obj.key))
            return ()

    def _tell(self, handler: Handler[T], old: T | None, new: T | None) -> None:
        try:
            handler(old, new)
        except Exception:  # as above
            self._handler_errors.inc()
            _log.exception("handler failed", cache=str(self.key))

    def _wake(self) -> None:
        if self._changed is not None:
            if not self._changed.done():
                self._changed.set_result(None)
            self._changed = None

    def _trim(self, obj: T) -> T:
        if self._keep_managed_fields or not obj.metadata.managed_fields:
            return obj
        return msgspec.structs.replace(obj, metadata=msgspec.structs.replace(obj.metadata, managed_fields=()))


def _same_version(one: Object, other: Object) -> bool:
    return one.metadata.resource_version == other.metadata.resource_version and one.metadata.uid == other.metadata.uid


class Caches:
    """The caches of one process: one for each kind and selection, however many ask for it."""

    def __init__(self, store: Store, *, metrics: Metrics = SILENT) -> None:
        self.store = store
        self._metrics = metrics
        self._caches: dict[CacheKey, Cache[Any]] = {}
        self._start: Callable[[Cache[Any]], None] | None = None

    def of(self, kind: type[T], namespace: str | None = None, *, labels: str = "", fields: str = "") -> Cache[T]:
        key = CacheKey(kind, namespace, labels, fields)
        cache = self._caches.get(key)
        if cache is None:
            cache = Cache(self.store, kind, namespace, labels=labels, fields=fields, metrics=self._metrics)
            self._caches[key] = cache
            if self._start is not None:
                self._start(cache)
        return cache

    def all(self) -> tuple[Cache[Any], ...]:
        return tuple(self._caches.values())

    def start_with(self, start: Callable[[Cache[Any]], None]) -> None:
        """From now on every cache runs: those that were asked for, and each new one."""
        self._start = start
        for cache in self.all():
            start(cache)
