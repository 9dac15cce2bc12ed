"""One look at all volumes of the pool, for everybody on the host who only verifies that nothing has changed.

A host may keep a hundred volumes, and each is verified by an assignment of its own: a command for each of them would be
most of what gluster has to answer. The coordinator's look serves them, or else the first of them looks for all. Beside
the coordinator nobody asks again before the host's own glusterd has written something down about a volume. Who finds
in it that something is to be done looks again for himself before he does it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from quartermaster.backends.base import AgentContext
from quartermaster.backends.glusterfs.daemon import Written, written_by_glusterd
from quartermaster.backends.glusterfs.facts import NODE
from quartermaster.backends.glusterfs.model import VolumeInfo
from quartermaster.backends.glusterfs.tool import Gluster

# Longer than the time between two runs of the coordinator, so that on its host nobody else has to look.
KEPT_S = 90.0
UNCHANGED_S = 3_600.0


class _Look(msgspec.Struct, frozen=True):
    at: float  # time of the loop
    volumes: dict[str, VolumeInfo]
    written: Written | None = None  # before it was taken, where that is known


class Looks:
    """Shared by the agents of a process; by host, for in a model several hosts live in one process."""

    def __init__(self) -> None:
        self._kept: dict[str, _Look] = {}
        self._turns: dict[str, asyncio.Lock] = {}

    def saw(self, context: AgentContext, volumes: Sequence[VolumeInfo], written: Written | None = None) -> None:
        at = asyncio.get_running_loop().time()
        self._kept[context.host] = _Look(at, {volume.name: volume for volume in volumes}, written)

    def forget(self, context: AgentContext) -> None:
        """After a change: what was seen before it is not so any more."""
        self._kept.pop(context.host, None)

    async def volume(self, context: AgentContext, name: str) -> VolumeInfo | None:
        """As it was within the last KEPT_S, or when the glusterd of this host last wrote something down."""
        async with self._turns.setdefault(context.host, asyncio.Lock()):
            kept = self._kept.get(context.host)
            if kept is None or not _holds(context, kept):
                before = _written(context)
                self.saw(context, await Gluster(context.machine.commands).volumes(), before)
                kept = self._kept[context.host]
        return kept.volumes.get(name)


def _holds(context: AgentContext, look: _Look) -> bool:
    age_s = asyncio.get_running_loop().time() - look.at
    if age_s <= KEPT_S:
        return True
    return age_s <= UNCHANGED_S and look.written is not None and look.written == _written(context)


def _written(context: AgentContext) -> Written | None:
    return written_by_glusterd(context.directory.parent / NODE)
