"""One volume: made, limited to its size, started, grown, deleted; and the agent that puts one of its bricks elsewhere.

Each looks at the volume first and does what is missing. A volume that was made once and is gone is not made again: an
empty one in its place would hide that its files are lost. Only who keeps a volume deletes it.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from quartermaster.backends.base import AgentContext
from quartermaster.backends.glusterfs.facts import MOVE, VOLUME
from quartermaster.backends.glusterfs.keeping import NOT_KEPT
from quartermaster.backends.glusterfs.layouts import Layout
from quartermaster.backends.glusterfs.looking import Looks
from quartermaster.backends.glusterfs.model import VolumeInfo
from quartermaster.backends.glusterfs.pool_agent import ADOPTED_OPTION, LOCK, LOCK_S, OWNER_OPTION
from quartermaster.backends.glusterfs.tool import Gluster, GlusterError
from quartermaster.host.files import remove, write_whole
from quartermaster.resources.orchestration import SUCCEEDED
from quartermaster.support import entropy
from quartermaster.support.errors import CommandError, HostError

SIZE_OPTION = "user.quartermaster.size"
KEEPER_OPTION = "user.quartermaster.keeper"  # the host that keeps it: whoever is back after another one made it anew
# Usage is asked for at every write: a writer is stopped at the limit and not seconds after it.
_EXACT = {"features.hard-timeout": "0", "features.soft-timeout": "0"}
_ATTEMPTS = 3


class VolumeConfig(msgspec.Struct, frozen=True):
    volume: str
    size: int
    owner: str
    layout: Layout
    bricks: tuple[str, ...]
    options: dict[str, str] = {}
    here: tuple[str, ...] = ()  # those that were placed on this host
    existing: bool = False  # it was made by another host: never make it
    adopted: bool = False  # somebody made it by hand: it is marked, and nothing else of it is changed


class Kept(msgspec.Struct, frozen=True):
    """Written before a volume is made; who has it keeps the volume."""

    owner: str
    made: bool = False
    bricks: tuple[str, ...] = ()


class VolumeAgent:
    name = VOLUME

    def __init__(self, looks: Looks) -> None:
        self._looks = looks

    async def initialize(self, context: AgentContext) -> None:
        context.directory.mkdir(parents=True, exist_ok=True)
        self._looks.forget(context)

    async def configure_local_service(self, context: AgentContext) -> dict[str, Any]:
        file = context.directory / context.instance
        if context.desired.get("forget"):
            write_whole(_forgotten(context), b"")
            remove(file)
            return {}
        config = msgspec.convert(context.desired, VolumeConfig)
        kept = msgspec.json.decode(file.read_bytes(), type=Kept) if file.exists() else None
        found = await self._looks.volume(context, config.volume) if _only_verifies(context) else None
        if found is not None and kept is not None and _is_as_wanted(found, config, context.host):
            _refuse_foreign(found, config)
            await _refuse_missing_bricks(context, found, config)
            bricks = tuple(brick.name for brick in found.bricks)
        else:
            async with context.machine.locks.hold(LOCK, timeout_s=LOCK_S):
                bricks = await self._kept(context, config, kept)
        whole = Kept(config.owner, made=True, bricks=bricks)
        if kept != whole:
            write_whole(file, msgspec.json.encode(whole))
        return {"volume": config.volume}

    async def _kept(self, context: AgentContext, config: VolumeConfig, kept: Kept | None) -> tuple[str, ...]:
        """The bricks of the volume, as it should be. That it is kept here is written down before it is made, and after
        the volume says so where it was there before.
        """
        gluster = Gluster(context.machine.commands)
        found = await gluster.volume(config.volume)
        if found is not None:
            _refuse_foreign(found, config)
            await _refuse_missing_bricks(context, found, config)
        elif config.existing or (kept is not None and kept.made) or _was_made(context):
            raise HostError(
                f"cannot keep the volume {config.volume}: it was made, and the pool does not know it any more",
                hint="nothing is made in its place; its bricks are where they were",
            )
        remove(_forgotten(context))
        if kept is None and found is None:
            write_whole(context.directory / context.instance, msgspec.json.encode(Kept(config.owner)))
        if found is not None and _is_as_wanted(found, config, context.host):
            return tuple(brick.name for brick in found.bricks)
        bricks = await _make(context, gluster, config, found)
        self._looks.forget(context)
        return bricks

    async def destroy_local_service(self, context: AgentContext) -> None:
        file = context.directory / context.instance
        if not file.exists():
            await _refuse_unkept(context)
            remove(_forgotten(context))
            return
        kept = msgspec.json.decode(file.read_bytes(), type=Kept)
        gluster = Gluster(context.machine.commands)
        found = await gluster.volume(context.instance)
        if found is not None and found.options.get(KEEPER_OPTION, context.host) != context.host:
            remove(file)  # it was given up here, and is another host's by now
            return
        if found is not None:
            async with context.machine.locks.hold(LOCK, timeout_s=LOCK_S):
                await _delete(gluster, found, kept)
            self._looks.forget(context)
        await self._remove_own_bricks(context, gluster, kept if found is None else _with_bricks(kept, found))
        remove(file)

    async def _remove_own_bricks(self, context: AgentContext, gluster: Gluster, kept: Kept) -> None:
        """Those of this host at once; the others go when their nodes have told the leader of them."""
        own = next((peer for peer in await gluster.pool() if peer.local), None)
        for brick in kept.bricks if own is not None else ():
            path = brick.partition(":")[2]
            if await context.machine.directories.exists(path):
                await context.machine.directories.remove(path)


def _forgotten(context: AgentContext) -> Path:
    """Says that another host keeps the volume now."""
    return context.directory / f"{context.instance}.forgotten"


async def _refuse_unkept(context: AgentContext) -> None:
    """To say that a volume is gone which somebody else made, and nobody has deleted, would leave it there for ever."""
    if _forgotten(context).exists():
        return
    found: VolumeInfo | None = None
    with suppress(CommandError):  # without a glusterd there is nobody to ask, and nothing to delete
        found = await Gluster(context.machine.commands).volume(context.instance)
    if found is not None and found.options.get(OWNER_OPTION, "").startswith(f"{context.namespace}/"):
        raise HostError(
            f"cannot delete the volume {context.instance}: {NOT_KEPT}",
            hint="it goes when the host that keeps it deletes it, or when this one has taken it over",
        )


class MoveConfig(msgspec.Struct, frozen=True):
    volume: str
    old: str
    new: str
    dead: bool = False  # nothing can be read from the old one
    sources: tuple[str, ...] = ()  # the new one is made from these
    needed: int = 0  # of them; none where the volume is being deleted


class MoveAgent:
    """Puts one brick of a volume in place of another. Whether the copy is whole is watched by the coordinator.

    What the leader decided by may be minutes old: right before the old brick is given up it is looked at again.
    """

    name = MOVE

    def __init__(self, looks: Looks) -> None:
        self._looks = looks

    async def initialize(self, context: AgentContext) -> None:
        context.directory.mkdir(parents=True, exist_ok=True)

    async def configure_local_service(self, context: AgentContext) -> dict[str, Any]:
        config = msgspec.convert(context.desired, MoveConfig)
        gluster = Gluster(context.machine.commands)
        found = await gluster.volume(config.volume)
        if found is None:
            raise HostError(f"cannot move a brick of {config.volume}: there is no such volume")
        names = [brick.name for brick in found.bricks]
        if config.old in names:
            await context.report(f"replacing {config.old} by {config.new}")
            async with context.machine.locks.hold(LOCK, timeout_s=LOCK_S):
                await _refuse_last_copy(gluster, config)
                if not found.started and config.dead and not config.needed:
                    await gluster.start(config.volume)  # no brick of a stopped volume is replaced
                await gluster.replace_brick(config.volume, config.old, config.new)
            self._looks.forget(context)
        elif config.new not in names:
            raise HostError(
                f"cannot move a brick of {config.volume}: neither {config.old} nor {config.new} is one of its bricks"
            )
        return {"brick": config.new}

    async def destroy_local_service(self, context: AgentContext) -> None:
        """Nothing is kept here."""


async def _refuse_last_copy(gluster: Gluster, config: MoveConfig) -> None:
    running = (await gluster.online()).get(config.volume, ())
    sources = [brick for brick in config.sources if brick in running]
    if len(sources) < config.needed:
        raise HostError(
            f"cannot give up the brick {config.old} of {config.volume}: {len(sources)} of the copies that are whole "
            f"run, and {config.needed} are needed",
            hint="bring their hosts back",
        )
    if config.dead:
        return
    counts = await gluster.heal_counts(config.volume)
    pending = sum(one.pending for one in counts)
    if pending or not all(one.connected for one in counts):
        raise HostError(
            f"cannot give up the brick {config.old} of {config.volume}: "
            + (f"{pending} entries are to be healed" if pending else "not all of its bricks answer"),
            hint="it is tried again when they are whole",
        )


def _refuse_foreign(found: VolumeInfo, config: VolumeConfig) -> None:
    owner = found.options.get(OWNER_OPTION, "")
    # One that was made and not marked yet has the bricks that were asked for.
    if owner not in ("", config.owner) or (not owner and not _same_places(found, config)):
        raise HostError(
            f"cannot use the volume {config.volume}: it belongs to {owner or 'somebody else'}",
            hint="it is left alone; a volume of that name has to go first",
        )


def _only_verifies(context: AgentContext) -> bool:
    """What is wanted was done before, by the report of it."""
    assignment = context.assignment
    if assignment is None:
        return False
    done = assignment.status.state == SUCCEEDED
    return done and assignment.status.observed_generation == assignment.spec.generation


def _was_made(context: AgentContext) -> bool:
    """By what was reported of it, also where this host has forgotten it."""
    return context.assignment is not None and bool((context.assignment.status.result or {}).get("volume"))


async def _refuse_missing_bricks(context: AgentContext, found: VolumeInfo, config: VolumeConfig) -> None:
    if config.existing or not found.started:
        return  # whoever takes it over makes nothing: what is missing is made anew by those who look after bricks
    names = {brick.name for brick in found.bricks}
    for brick in config.here:
        path = brick.partition(":")[2]
        if brick in names and not await context.machine.directories.exists(path):
            raise HostError(
                f"cannot keep the volume {config.volume}: its brick {path} is gone from this host",
                hint="nothing is made in its place here; another disk or node takes it over",
            )


def _same_places(found: VolumeInfo, config: VolumeConfig) -> bool:
    """An attempt that was refused leaves directories behind, and the next one has names of its own."""
    return len(found.bricks) == len(config.bricks) and all(
        brick.name.startswith(wanted) for brick, wanted in zip(found.bricks, config.bricks, strict=True)
    )


def _is_as_wanted(found: VolumeInfo, config: VolumeConfig, host: str) -> bool:
    if config.adopted:
        return found.options.get(OWNER_OPTION) == config.owner
    marked = found.options.get(SIZE_OPTION), found.options.get(KEEPER_OPTION)
    return found.started and marked == (str(config.size), host)


async def _make(
    context: AgentContext, gluster: Gluster, config: VolumeConfig, found: VolumeInfo | None
) -> tuple[str, ...]:
    """Its bricks. What is missing is done: it may be there in part."""
    name = config.volume
    if config.adopted and found is not None:
        marks = {OWNER_OPTION: config.owner, SIZE_OPTION: str(config.size), ADOPTED_OPTION: "true"}
        await gluster.set_options(name, marks)
        return tuple(brick.name for brick in found.bricks)
    if found is None:
        await context.report(f"making {name} on {len(config.bricks)} bricks")
        bricks = await _create(gluster, config)
    else:
        bricks = tuple(brick.name for brick in found.bricks)
    if found is None or not found.started:
        options = found.options if found is not None else {}
        wanted = {**config.options, KEEPER_OPTION: context.host}
        differing = {option: value for option, value in wanted.items() if options.get(option) != value}
        if differing:
            await gluster.set_options(name, differing)
        await gluster.start(name)
    if found is None or found.options.get("features.quota") != "on":
        await gluster.enable_quota(name)
    await gluster.limit(name, config.size)
    # Last, for it says that the limit is set.
    await gluster.set_options(name, {**_EXACT, SIZE_OPTION: str(config.size), KEEPER_OPTION: context.host})
    return bricks


async def _create(gluster: Gluster, config: VolumeConfig) -> tuple[str, ...]:
    """The bricks that it was made on. A directory that was a brick once is refused; an attempt that failed half way
    leaves such behind.
    """
    attempt = 0
    while True:
        suffix = f".{entropy.name_suffix(6)}" if attempt else ""
        bricks = tuple(f"{brick}{suffix}" for brick in config.bricks)
        attempt += 1
        try:
            await gluster.create(config.volume, config.layout.words, bricks)
        except GlusterError as error:
            if not error.brick_was_used or attempt == _ATTEMPTS:
                raise
        else:
            return bricks


async def _delete(gluster: Gluster, found: VolumeInfo, kept: Kept) -> None:
    owner = found.options.get(OWNER_OPTION, "")
    if owner not in ("", kept.owner):
        raise HostError(f"cannot delete the volume {found.name}: it belongs to {owner}", hint="it is left alone")
    away = next((peer.name for peer in await gluster.pool() if not peer.connected), "")
    if away:
        # Asked before it is stopped: no brick of a stopped volume can be taken off a host that never comes back.
        raise HostError(
            f"cannot delete the volume {found.name}: {away} does not answer, and gluster deletes only while all do",
            hint="bring its host back, or give it up with `qm node remove NODE --lost`",
        )
    if found.started:
        await gluster.stop(found.name)
    await gluster.delete(found.name)


def _with_bricks(kept: Kept, found: VolumeInfo) -> Kept:
    return msgspec.structs.replace(kept, bricks=tuple(brick.name for brick in found.bricks))
