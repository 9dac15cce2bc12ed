"""How long each host has been silent: the leader's own monotonic time since it last saw the heartbeat change.

No two clocks are compared, and a new leader starts all of them anew, so each host has its full grace. Before silence is
believed the heartbeat is read from the store itself: news that is late must not make a host unhealthy.

Heartbeats are by far the most frequent change there is. One costs two moves between ordered dicts here, wakes nobody,
and no passage over all hosts is ever made: within a level, hosts stand in the order in which they were last seen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from quartermaster.orchestration.timings import Timings
from quartermaster.planning.health import HostHealth, HostState
from quartermaster.support.deadlines import within
from quartermaster.support.errors import StoreError
from quartermaster.support.log import logger

__all__ = ["Heartbeats", "HostHealth", "HostState"]

# The version of a host's heartbeat as the store has it now; "" where there is none.
ReadVersion = Callable[[str], Awaitable[str]]

_RETRY_S = 2.0
_CHECKS_BEFORE_A_PAUSE = 100

_log = logger("orchestration.health")


class _Beat:
    __slots__ = ("level", "seen", "version")

    def __init__(self, seen: float, version: str) -> None:
        self.seen = seen
        self.version = version
        self.level = 0


class Heartbeats:
    """The `HostHealth` of one term. Made inside a running loop.

    `changed(host)` is called when a host passes one of the times, and when one that had passed any is heard again.
    """

    def __init__(self, timings: Timings, changed: Callable[[str], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._timings = timings
        self._changed = changed
        self._beats: dict[str, _Beat] = {}
        self._times = sorted({timings.unhealthy_after_s, timings.move_data_after_s})
        self._levels: list[dict[str, _Beat]] = [{} for _ in range(len(self._times) + 1)]
        self._wake = asyncio.Event()

    def __len__(self) -> int:
        return len(self._beats)

    @property
    def look_every_s(self) -> float:
        """How often it is worth while to ask for heartbeats."""
        return min(1.0, self._times[0] / 4)

    def known(self, host: str) -> None:
        """The host is there; its grace begins now if nothing was heard of it yet."""
        if host not in self._beats:
            self._put(host, _Beat(self._loop.time(), ""), 0)

    def heard(self, host: str, version: str) -> None:
        """The heartbeat has this version. Only a change of it is a sign of life."""
        beat = self._beats.get(host)
        if beat is None:
            self._put(host, _Beat(self._loop.time(), version), 0)
            return
        if beat.version == version:
            return
        was = beat.level
        del self._levels[was][host]
        beat.seen, beat.version = self._loop.time(), version
        self._put(host, beat, 0)
        if was:
            self._changed(host)

    def forget(self, host: str) -> None:
        beat = self._beats.pop(host, None)
        if beat is not None:
            del self._levels[beat.level][host]

    def of(
        self, host: str, *, unhealthy_after_s: float | None = None, move_data_after_s: float | None = None
    ) -> HostState:
        unhealthy_s = self._time(unhealthy_after_s, self._timings.unhealthy_after_s)
        lost_s = max(unhealthy_s, self._time(move_data_after_s, self._timings.move_data_after_s))
        beat = self._beats.get(host)
        seen = beat.seen if beat is not None else self._began
        # A level is passed only after the store was asked; until then the host has the benefit of the doubt.
        passed_s = (0.0, *self._times)[beat.level] if beat is not None else self._loop.time() - seen
        return HostState(
            healthy=passed_s < unhealthy_s, lost=passed_s >= lost_s, silent_s=max(0.0, self._loop.time() - seen)
        )

    async def run(self, read_version: ReadVersion) -> None:
        """Notice silence when it has lasted long enough; ends by being cancelled."""
        while True:
            self._wake.clear()
            due = self._next_due()
            if due is None or due > self._loop.time():
                await self._wait(None if due is None else due - self._loop.time())
                continue
            if not await self._advance(read_version):
                await asyncio.sleep(_RETRY_S)

    async def _wait(self, seconds: float | None) -> None:
        try:
            async with within(seconds):
                await self._wake.wait()
        except TimeoutError:
            pass

    def _next_due(self) -> float | None:
        """When the next host passes a time: of each level only the one that was seen longest ago can."""
        due: float | None = None
        for level, after_s in enumerate(self._times):
            first = next(iter(self._levels[level].values()), None)
            if first is not None and (due is None or first.seen + after_s < due):
                due = first.seen + after_s
        return due

    async def _advance(self, read_version: ReadVersion) -> bool:
        """Ask the store about those that are overdue; False when it does not answer."""
        checked = 0
        for level, after_s in enumerate(list(self._times)):
            for host, beat in list(self._levels[level].items()):
                if beat.seen + after_s > self._loop.time():
                    break
                try:
                    version = await read_version(host)
                except (StoreError, TimeoutError) as error:
                    _log.info("cannot ask for a heartbeat", host=host, error=f"{type(error).__name__}: {error}")
                    return False
                self._judge(host, beat, version, level)
                checked += 1
                if checked >= _CHECKS_BEFORE_A_PAUSE:
                    return True
        return True

    def _judge(self, host: str, beat: _Beat, version: str, level: int) -> None:
        if self._beats.get(host) is not beat or beat.level != level:
            return  # heard, or forgotten, while the store was asked
        if version and version != beat.version:
            self.heard(host, version)
            return
        del self._levels[level][host]
        self._put(host, beat, level + 1)
        _log.info("host is silent", host=host, silent_s=round(self._loop.time() - beat.seen, 1))
        self._changed(host)

    def _put(self, host: str, beat: _Beat, level: int) -> None:
        beat.level = level
        self._beats[host] = beat
        alone = not self._levels[level]
        self._levels[level][host] = beat
        if alone:
            self._wake.set()  # nobody may be waiting for this level yet

    def _time(self, asked_s: float | None, usual_s: float) -> float:
        if asked_s is None:
            return usual_s
        if asked_s not in self._times:
            self._learn(asked_s)
        return asked_s

    def _learn(self, after_s: float) -> None:
        """One more time to watch for. Nobody has passed it yet, however long silent: the store is asked first."""
        place = next((n for n, known in enumerate(self._times) if known > after_s), len(self._times))
        self._times.insert(place, after_s)
        self._levels.insert(place + 1, {})
        for level in range(place, len(self._levels)):
            for beat in self._levels[level].values():
                beat.level = level
        self._wake.set()
