"""Puts one brick of a volume in place of another. Whether the copy is whole is watched by the coordinator.

What the leader decided by may be minutes old: right before the old brick is given up it is looked at again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from quartermaster.backends.base import AgentContext
from quartermaster.backends.glusterfs.daemon import recorded_identity
from quartermaster.backends.glusterfs.facts import MOVE, MOVE_PREFIX, NODE
from quartermaster.backends.glusterfs.looking import Looks
from quartermaster.backends.glusterfs.model import VolumeInfo
from quartermaster.backends.glusterfs.pool_agent import ADOPTED_OPTION, ALLOW_OPTION, LOCK, LOCK_S
from quartermaster.backends.glusterfs.reasons import IN_USE, LACKING
from quartermaster.backends.glusterfs.tool import Gluster
from quartermaster.backends.glusterfs.wholeness import KNOWING_LESS
from quartermaster.host.files import remove, write_whole
from quartermaster.support.errors import HostError

_BEFORE_OPTION = "old.auth.allow"  # of gluster itself, for as long as it is not started again


class MoveConfig(msgspec.Struct, frozen=True):
    volume: str
    old: str
    new: str
    dead: bool = False  # nothing can be read from the old one
    sources: tuple[str, ...] = ()  # the new one is made from these
    needed: int = 0  # of them; none where the volume is being deleted
    returns: bool = False  # the old one may be back by now
    spared: bool = False  # it is not given up while it runs: its host is no node, and perhaps nobody gave it up
    forced: bool = False  # it is being deleted whoever uses it
    beside: tuple[str, ...] = ()  # copies of the same files on the host of the new one that are dead
    allow: str = ""  # who may mount the volume
    processes: dict[str, str] = {}  # source → the one that ran it when it was known to be whole


class MoveAgent:
    name = MOVE

    def __init__(self, looks: Looks) -> None:
        self._looks = looks

    async def initialize(self, context: AgentContext) -> None:
        context.directory.mkdir(parents=True, exist_ok=True)

    async def configure_local_service(self, context: AgentContext) -> dict[str, Any]:
        config = msgspec.convert(context.desired, MoveConfig)
        gluster = Gluster(context.machine.commands)
        await _admit_after_all(context, gluster, config.volume)
        found = await gluster.volume(config.volume)
        if found is None:
            raise HostError(f"cannot move a brick of {config.volume}: there is no such volume")
        names = [brick.name for brick in found.bricks]
        if config.old in names:
            await context.report(f"replacing {config.old} by {config.new}")
            async with context.machine.locks.hold(LOCK, timeout_s=LOCK_S):
                await _refuse_two_on_a_host(gluster, config)
                await _refuse_used(gluster, config, found)
                if not found.started and config.dead and not config.needed:
                    await gluster.start(config.volume)  # no brick of a stopped volume is replaced
                await _refuse_lacking(gluster, config, found)
                await _refuse_last_copy(gluster, config, found)  # last: who goes away after this look is not noticed
                note = _note_of(context, config.volume)
                write_whole(note, _allowed(config, found).encode())
                if found.width == 1 and not config.needed:
                    await gluster.exchange_brick(found, config.old, config.new)
                else:
                    await gluster.replace_brick(config.volume, config.old, config.new)
                await _admit_anew(gluster, config.volume, note)
            self._looks.forget(context)
        elif config.new not in names:
            raise HostError(
                f"cannot move a brick of {config.volume}: neither {config.old} nor {config.new} is one of its bricks"
            )
        return {"brick": config.new}

    async def destroy_local_service(self, context: AgentContext) -> None:
        """A brick that is not to move after all stays where it is; who may mount its volume is said all the same. A
        host that was let go meanwhile does not: it has no glusterd any more that could.
        """
        volume = context.instance.removeprefix(MOVE_PREFIX)
        if recorded_identity(context.directory.parent / NODE) is None:
            remove(_note_of(context, volume))
        else:
            await _admit_after_all(context, Gluster(context.machine.commands), volume)


def _note_of(context: AgentContext, volume: str) -> Path:
    """Who may mount the volume, from before a brick of it is replaced until that was said again."""
    return context.directory / f"{volume}.allow"


def _allowed(config: MoveConfig, found: VolumeInfo) -> str:
    """Of a volume that somebody else made, what he has set: without the peers that gluster has added while a brick was
    replaced by a host that could not take them away any more.
    """
    now, before = found.options.get(ALLOW_OPTION, ""), found.options.get(_BEFORE_OPTION, "")
    if config.allow and ADOPTED_OPTION not in found.options:
        return config.allow
    return before if before and now.startswith(f"{before},") else now


async def _admit_after_all(context: AgentContext, gluster: Gluster, volume: str) -> None:
    """What an earlier run could not: it was cut off, or gluster refused. A replacement that failed has told some of the
    hosts to admit the peers, and others not.
    """
    note = _note_of(context, volume)
    if not note.exists():
        return
    async with context.machine.locks.hold(LOCK, timeout_s=LOCK_S):
        if await gluster.volume(volume) is None:
            remove(note)
        else:
            await _admit_anew(gluster, volume, note)


async def _admit_anew(gluster: Gluster, volume: str, note: Path) -> None:
    """Who may mount the volume, in our words. While a brick is replaced every glusterd admits the peers by the names
    that it has for them itself, and does not take that back: two that differ in it refuse each other when one of them
    is started again.
    """
    if allowed := _noted(note):
        await gluster.set_options(volume, {ALLOW_OPTION: allowed})
    remove(note)


def _noted(note: Path) -> str:
    return note.read_text()


async def _refuse_two_on_a_host(gluster: Gluster, config: MoveConfig) -> None:
    """A move that was taken back may have been done all the same, and another one been decided meanwhile. A copy that
    does not run at this moment, for its host is cut off, is one all the same.
    """
    found, running = await gluster.volume(config.volume), await gluster.running(config.volume)
    names = [brick.name for brick in found.bricks] if found is not None else []
    if found is None or config.old not in names or not config.needed:
        return
    width, host = found.width, config.new.partition(":")[0]
    begin = names.index(config.old) // width * width
    beside = [name for name in names[begin : begin + width] if name != config.old and name.partition(":")[0] == host]
    if any(name in running or name not in config.beside for name in beside):
        raise HostError(
            f"cannot give up the brick {config.old} of {config.volume}: {host} has another copy of the same files",
            hint="another node takes it",
        )


async def _refuse_used(gluster: Gluster, config: MoveConfig, found: VolumeInfo) -> None:
    """Nothing in it was wanted when that was looked at last, which may be minutes ago. Whoever is to delete it looks
    again, and says so.
    """
    if config.needed or config.forced or not found.started:
        return
    if await gluster.users(config.volume):
        raise HostError(
            f"cannot give up the brick {config.old} of {config.volume}: it is in use",
            hint="it is tried again when nobody uses it",
            reason=IN_USE,
        )


async def _refuse_lacking(gluster: Gluster, config: MoveConfig, found: VolumeInfo) -> None:
    """A copy that was cut off for less time than it takes to be noticed runs as ever, and lacks what was written then.
    Whoever took that knows of it. Bricks are asked one after the other while somebody writes: so one that knew of less
    is asked again, and lacks something if it does not know by then what another one knew before.
    """
    if not (config.dead and config.returns and config.needed):
        return
    first = await _pending_beside(gluster, config, found)
    readable = [brick for brick in config.sources if brick in first]
    if len(readable) < config.needed:
        # The process of a brick runs on for a while after its disk has died.
        raise HostError(
            f"cannot give up the brick {config.old} of {config.volume}: {len(readable)} of the copies that are whole "
            f"can be read, and {config.needed} are needed",
            hint="bring their hosts or disks back",
        )
    most = max(first.values(), default=0)
    whole = [brick for brick in readable if first[brick] >= most]
    if len(whole) < config.needed:
        again = await _pending_beside(gluster, config, found)
        whole = [brick for brick in readable if again.get(brick, -1) >= most]
    if len(whole) < config.needed:
        raise HostError(
            f"cannot give up the brick {config.old} of {config.volume}: copies that were whole {KNOWING_LESS}",
            hint="it stays until they are healed, or somebody gives it up by name",
            reason=LACKING,
        )


async def _pending_beside(gluster: Gluster, config: MoveConfig, found: VolumeInfo) -> dict[str, int]:
    """Brick → entries to be healed that it knows of, of those that answer in the set of the old one."""
    names, width = [brick.name for brick in found.bricks], found.width
    begin = names.index(config.old) // width * width
    counts = await gluster.heal_counts(found)
    members = names[begin : begin + width]
    return {one.brick: one.pending for one in counts if one.connected and one.brick in members}


def _unknown_beside(config: MoveConfig, found: VolumeInfo) -> str:
    """A brick of the same set that was none when this was decided: of an erasure-coded volume gluster counts nothing of
    what it lacks at first.
    """
    names = [brick.name for brick in found.bricks]
    begin = names.index(config.old) // found.disperse * found.disperse if found.disperse else len(names)
    beside = names[begin : begin + found.disperse]
    return next((name for name in beside if name != config.old and name not in config.sources), "")


async def _refuse_last_copy(gluster: Gluster, config: MoveConfig, found: VolumeInfo) -> None:
    running = await gluster.running(config.volume)
    sources = [brick for brick in config.sources if brick in running]
    if len(sources) < config.needed:
        raise HostError(
            f"cannot give up the brick {config.old} of {config.volume}: {len(sources)} of the copies that are whole "
            f"run, and {config.needed} are needed",
            hint="bring their hosts back",
        )
    same = [brick for brick in sources if config.processes.get(brick, running[brick]) == running[brick]]
    if len(same) < config.needed:
        raise HostError(
            f"cannot give up the brick {config.old} of {config.volume}: {len(same)} of the copies that were whole "
            f"have run since, and {config.needed} are needed",
            hint="what they missed while they did not run is looked at first",
        )
    if config.dead and (config.returns or config.spared) and config.old in running:
        raise HostError(
            f"cannot give up the brick {config.old} of {config.volume}: it was dead, and runs again",
            hint="it stays where it is",
        )
    if config.dead:
        return
    if new := _unknown_beside(config, found):
        raise HostError(
            f"cannot give up the brick {config.old} of {config.volume}: {new} took its place since that was decided, "
            "and may be empty",
            hint="it is tried again when that one was filled",
        )
    counts = await gluster.heal_counts(found)
    pending = sum(one.pending for one in counts)
    if pending or not all(one.connected for one in counts):
        raise HostError(
            f"cannot give up the brick {config.old} of {config.volume}: "
            + (f"{pending} entries are to be healed" if pending else "not all of its bricks answer"),
            hint="it is tried again when they are whole",
        )
