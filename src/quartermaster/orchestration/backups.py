"""Backups that the leader makes by itself, on its own host: for the day on which all members of etcd are lost.

They are those of `qm store backup`, and `qm store restore` reads them. The oldest go.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from quartermaster.engine.cache import Caches
from quartermaster.engine.controller import Scope
from quartermaster.engine.waiting import first_of
from quartermaster.orchestration.restoring import back_up
from quartermaster.stores import open_store
from quartermaster.stores.objects.copying import unfinished
from quartermaster.support import clock
from quartermaster.support.errors import QuartermasterError
from quartermaster.support.log import logger

_PATTERN = "store-*.qmb"
_CUT_OFF = unfinished(Path(_PATTERN)).name
_log = logger("orchestration.backups")


class BackupSchedule(msgspec.Struct, frozen=True):
    every_s: float = 3600.0
    first_s: float = 60.0  # after the lead was taken
    keep: int = 24


class Backups:
    """A service of the leader's runtime. It has a connection of its own, which is open while it writes."""

    name = "backups"

    def __init__(self, url: str, directory: Path, schedule: BackupSchedule | None = None) -> None:
        self._url = url
        self._directory = directory
        self._schedule = schedule or BackupSchedule()

    def prepare(self, caches: Caches) -> None:
        """It reads everything at one moment, which no cache shows."""

    async def run(self, scope: Scope) -> None:
        pause_s = self._schedule.first_s
        while not scope.stopping.is_set():
            await first_of(scope.stopping, timeout_s=pause_s)
            pause_s = self._schedule.every_s
            if not scope.stopping.is_set():
                await self._write()

    async def _write(self) -> None:
        """A backup that fails is a line in the log, and tried again at its next time."""
        path = self._directory / f"store-{clock.timestamp().replace(':', '')}.qmb"
        try:
            self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            for cut_off in self._directory.glob(_CUT_OFF):  # by the end of an earlier process
                cut_off.unlink()
            store = await open_store(self._url)
            try:
                made = await back_up(store, path)
            finally:
                await store.close()
            _log.info("the store was backed up", path=str(path), objects=made.objects)
            for old in sorted(self._directory.glob(_PATTERN))[: -self._schedule.keep]:
                old.unlink()
        except (QuartermasterError, OSError) as error:
            _log.warning("the store cannot be backed up", path=str(path), error=str(error))
