"""Notices that a daemon has died, and lets its configuration run again, which starts it: with growing pauses.

A look at what runs is cheap, a configuration is not; so this looks every few seconds, and configurations verify
themselves much less often.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from quartermaster.engine.cache import Caches
from quartermaster.engine.controller import Scope
from quartermaster.engine.waiting import first_of
from quartermaster.host.daemons import DaemonRuntime, DaemonState
from quartermaster.support.backoff import Backoff
from quartermaster.support.deadlines import within
from quartermaster.support.errors import QuartermasterError
from quartermaster.support.log import logger

_BACKOFF = Backoff(first_s=0.5, limit_s=300.0)
# A daemon that has run for so long is well again, and its next end is its first.
_FORGIVEN_AFTER_S = 600.0
_TIMEOUT_S = 30.0

_log = logger("orchestration.daemons")


class _Record:
    def __init__(self) -> None:
        self.deaths = 0
        self.retry_at = 0.0
        self.alive_since: float | None = None


class DaemonWatch:
    """A service of an agent's runtime. `dead(name)` is called with the daemon's name when it is due to be restarted."""

    name = "daemons"

    def __init__(self, daemons: DaemonRuntime, dead: Callable[[str], None], *, every_s: float) -> None:
        self._daemons = daemons
        self._dead = dead
        self._every_s = every_s
        self._records: dict[str, _Record] = {}

    def prepare(self, caches: Caches) -> None:
        """None."""

    async def run(self, scope: Scope) -> None:
        while not scope.stopping.is_set():
            try:
                async with within(_TIMEOUT_S):
                    await self.look()
            except (QuartermasterError, TimeoutError, OSError) as error:
                _log.warning("cannot look at the daemons", error=f"{type(error).__name__}: {error}")
            await first_of(scope.stopping, timeout_s=self._every_s)

    async def look(self) -> None:
        now = asyncio.get_running_loop().time()
        found = await self._daemons.list()
        for status in found:
            record = self._records.setdefault(status.name, _Record())
            if status.state is DaemonState.RUNNING:
                if record.alive_since is None:
                    record.alive_since = now
                elif now - record.alive_since > _FORGIVEN_AFTER_S:
                    record.deaths = 0
            elif status.state is DaemonState.DEAD and now >= record.retry_at:
                record.alive_since = None
                record.retry_at = now + _BACKOFF.delay_s(record.deaths)
                record.deaths += 1
                _log.warning("a daemon has died", daemon=status.name, deaths=record.deaths, how=status.message)
                self._dead(status.name)
        names = [status.name for status in found]
        self._records = {name: record for name, record in self._records.items() if name in names}
