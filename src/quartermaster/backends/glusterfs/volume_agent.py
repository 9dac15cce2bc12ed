"""One volume: made, limited to its size, started, grown, deleted.

The agent looks at it first and does what is missing. A volume that was made once and is gone is not made again: an
empty one in its place would hide that its files are lost. Only who keeps a volume deletes it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from quartermaster.backends.base import AgentContext
from quartermaster.backends.glusterfs.daemon import recorded_identity
from quartermaster.backends.glusterfs.dwelling import bricks_by_address, bricks_here, paths_to_remove
from quartermaster.backends.glusterfs.facts import NODE, SIZE_OPTION, VOLUME
from quartermaster.backends.glusterfs.layouts import Layout
from quartermaster.backends.glusterfs.looking import Looks
from quartermaster.backends.glusterfs.model import Brick, VolumeInfo
from quartermaster.backends.glusterfs.pool_agent import ADOPTED_OPTION, LOCK, LOCK_S, OWNER_OPTION
from quartermaster.backends.glusterfs.reasons import AWAITED, IN_USE, NOT_KEPT, NOT_THERE, SUPERSEDED
from quartermaster.backends.glusterfs.tool import Gluster, GlusterError
from quartermaster.host.files import remove, write_whole
from quartermaster.resources.marks import DELETE_IN_USE
from quartermaster.resources.orchestration import SUCCEEDED, Assignment
from quartermaster.support import entropy
from quartermaster.support.deadlines import within
from quartermaster.support.errors import CommandError, HostError, NotFoundError, StoreError

KEEPER_OPTION = "user.quartermaster.keeper"  # the host that keeps it: whoever is back after another one made it anew
# Usage is asked for at every write: a writer is stopped at the limit and not seconds after it.
_EXACT = {"features.hard-timeout": "0", "features.soft-timeout": "0"}
_ATTEMPTS = 3
_HEAR_S = 5.0


class VolumeConfig(msgspec.Struct, frozen=True):
    volume: str
    size: int
    owner: str
    layout: Layout
    bricks: tuple[str, ...]
    options: dict[str, str] = {}
    here: tuple[str, ...] = ()  # those that were placed on this host
    existing: bool = False  # it was made by another host: never make it
    again: int = 0  # how often it was told to take it back from a host that was told so after it
    adopted: bool = False  # somebody made it by hand: it is marked, and nothing else of it is changed


class Kept(msgspec.Struct, frozen=True):
    """Written before a volume is made; who has it keeps the volume."""

    owner: str
    made: bool = False
    bricks: tuple[str, ...] = ()  # before that, where they are to be
    order: int = 0  # the generation of the assignment by which it was made or taken over last
    here: tuple[str, ...] | None = None  # those of the bricks on this host; None: an earlier version wrote it


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
        config = _as_marked(config, found)
        if found is not None and kept is not None and _is_as_wanted(found, config, context.host):
            _refuse_foreign(found, config)
            await _refuse_missing_bricks(context, found, config)
            bricks = found.bricks
        else:
            async with context.machine.locks.hold(LOCK, timeout_s=LOCK_S):
                bricks = await self._kept(context, config, kept)
        whole = _with_bricks(Kept(config.owner, made=True, order=_order(context)), bricks, _uuid(context), config.here)
        if kept != whole:
            write_whole(file, msgspec.json.encode(whole))
        return {"volume": config.volume}

    async def _kept(self, context: AgentContext, config: VolumeConfig, kept: Kept | None) -> tuple[Brick, ...]:
        """The bricks of the volume, as it should be."""
        gluster = Gluster(context.machine.commands)
        if kept is None and not _may_be_there(context, config):
            try:
                return await self._make(context, gluster, config, None)  # a name that is taken is refused by gluster
            except GlusterError as error:
                if not error.name_is_taken:
                    raise
                remove(context.directory / context.instance)
        found = await gluster.volume(config.volume)
        config = _as_marked(config, found)
        if found is not None:
            _refuse_foreign(found, config)
            _refuse_superseded(context, found, kept)
            await _refuse_missing_bricks(context, found, config)
        elif config.existing or config.adopted or (kept is not None and kept.made) or _was_made(context):
            raise HostError(
                f"cannot keep the volume {config.volume}: it was made, and the pool does not know it any more",
                hint="nothing is made in its place; its bricks are where they were",
                reason=NOT_THERE,
            )
        remove(_forgotten(context))
        if found is not None and _is_as_wanted(found, config, context.host):
            return found.bricks
        return await self._make(context, gluster, config, found)

    async def _make(
        self, context: AgentContext, gluster: Gluster, config: VolumeConfig, found: VolumeInfo | None
    ) -> tuple[Brick, ...]:
        """That it is kept here is written down before it is made, and after the volume says so where it was there."""
        if found is None:
            begun = Kept(config.owner, bricks=config.bricks, here=config.here)
            write_whole(context.directory / context.instance, msgspec.json.encode(begun))
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
        if found is not None and not _is_kept_here(found, kept, context.host):
            if kept.made and found.options.get(OWNER_OPTION) == kept.owner:
                raise _not_kept(context)  # taken over since, and who did is to delete it
            remove(file)
            return
        own = next((peer.uuid for peer in await gluster.pool() if peer.local), "")
        if found is not None:
            known = _with_bricks(kept, found.bricks, own, kept.here or ())
            if known != kept:
                # Whoever is cut off after the volume is deleted finds nobody who could tell him where its bricks are.
                write_whole(file, msgspec.json.encode(known))
            async with context.machine.locks.hold(LOCK, timeout_s=LOCK_S):
                await _delete(context, gluster, found, known)
            self._looks.forget(context)
            kept = known
        await _remove_own_bricks(context, gluster, kept, own)
        remove(file)


async def _remove_own_bricks(context: AgentContext, gluster: Gluster, kept: Kept, own: str) -> None:
    """Those of this host at once; the others go when their nodes have told the leader of them."""
    if not own or kept.here == ():
        return
    volumes = [volume for volume in await gluster.volumes() if volume.name != context.instance]
    here = kept.here if kept.here is not None else bricks_by_address(kept.bricks, volumes, own)
    for path in paths_to_remove(here, volumes, own):
        await context.machine.directories.remove(path)


def _forgotten(context: AgentContext) -> Path:
    """Says that another host keeps the volume now."""
    return context.directory / f"{context.instance}.forgotten"


async def _refuse_unkept(context: AgentContext) -> None:
    """To say that a volume is gone which somebody else made, and nobody has deleted, would leave it there for ever."""
    if _forgotten(context).exists():
        return
    found: VolumeInfo | None = None
    try:
        found = await Gluster(context.machine.commands).volume(context.instance)
    except CommandError:
        if recorded_identity(context.directory.parent / NODE) is not None:
            raise  # it is about to be started: a host that was just booted knows nothing yet
        # Without a glusterd there is nobody to ask, and nothing to delete.
    if found is not None and _may_be_ours(found, context):
        raise _not_kept(context)


def _not_kept(context: AgentContext) -> HostError:
    return HostError(
        f"cannot delete the volume {context.instance}: it is not kept by this host",
        hint="it goes when the host that keeps it deletes it, or when this one has taken it over",
        reason=NOT_KEPT,
    )


def _may_be_ours(found: VolumeInfo, context: AgentContext) -> bool:
    owner = found.options.get(OWNER_OPTION, "")
    return owner.startswith(f"{context.namespace}/") or (not owner and _was_begun(found, context.instance))


def _refuse_foreign(found: VolumeInfo, config: VolumeConfig) -> None:
    owner = found.options.get(OWNER_OPTION, "")
    # One that was made and not marked yet has the bricks that were asked for. One that is taken over unmarked is not
    # finished but ended: as many as were asked for since would never do that to one of an earlier layout.
    fits = config.existing or len(found.bricks) == len(config.bricks)
    begun = not owner and (_same_places(found, config.bricks) or (fits and _was_begun(found, config.volume)))
    if owner != config.owner and not begun:
        raise HostError(
            f"cannot use the volume {config.volume}: it belongs to {owner or 'somebody else'}",
            hint="it is left alone; a volume of that name has to go first",
        )


def _refuse_superseded(context: AgentContext, found: VolumeInfo, kept: Kept | None) -> None:
    """Who was told to keep it once, and did, does not take it from a host that was told so later."""
    keeper = found.options.get(KEEPER_OPTION, context.host)
    if keeper != context.host and kept is not None and kept.made and kept.order == _order(context):
        why = "another host was told to keep it since"
        raise HostError(f"cannot keep the volume {found.name}: {why}", hint=f"{keeper} does", reason=SUPERSEDED)


def _order(context: AgentContext) -> int:
    return context.assignment.spec.generation if context.assignment is not None else 0


def _is_kept_here(found: VolumeInfo, kept: Kept, host: str) -> bool:
    """Not where it was given up here and is another host's by now, nor where one of its name was there before it."""
    owner = found.options.get(OWNER_OPTION, "")
    is_ours = kept.made or owner == kept.owner or (not owner and _same_places(found, kept.bricks))
    return is_ours and found.options.get(KEEPER_OPTION, host) == host


def _may_be_there(context: AgentContext, config: VolumeConfig) -> bool:
    """Although nothing here says so."""
    return config.existing or config.adopted or _was_made(context) or _forgotten(context).exists()


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


def _same_places(found: VolumeInfo, bricks: tuple[str, ...]) -> bool:
    """An attempt that was refused leaves directories behind, and the next one has names of its own."""
    return len(found.bricks) == len(bricks) and all(
        brick.name.startswith(wanted) for brick, wanted in zip(found.bricks, bricks, strict=True)
    )


def _was_begun(found: VolumeInfo, name: str) -> bool:
    """By a host that was given up before it could mark the volume, and that had other places: nobody ever used it."""
    named = {brick.name.rpartition("/")[2].partition(".")[0] for brick in found.bricks}
    return not found.started and named == {name}


def _as_marked(config: VolumeConfig, found: VolumeInfo | None) -> VolumeConfig:
    """Whoever takes a volume over may not have been told that somebody made it: it says so itself."""
    adopted = found is not None and ADOPTED_OPTION in found.options
    return msgspec.structs.replace(config, adopted=True) if adopted else config


def _is_as_wanted(found: VolumeInfo, config: VolumeConfig, host: str) -> bool:
    if config.adopted:
        return found.options.get(OWNER_OPTION) == config.owner
    marked = found.options.get(SIZE_OPTION), found.options.get(KEEPER_OPTION)
    return found.started and marked == (str(config.size), host)


async def _make(
    context: AgentContext, gluster: Gluster, config: VolumeConfig, found: VolumeInfo | None
) -> tuple[Brick, ...]:
    """Its bricks. What is missing is done: it may be there in part."""
    name = config.volume
    if config.adopted and found is not None:
        marks = {OWNER_OPTION: config.owner, SIZE_OPTION: str(config.size), ADOPTED_OPTION: "true"}
        await gluster.set_options(name, marks)
        return found.bricks
    if found is None:
        await context.report(f"making {name} on {len(config.bricks)} bricks")
        bricks = await _create(gluster, config)
    else:
        bricks = found.bricks
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


async def _create(gluster: Gluster, config: VolumeConfig) -> tuple[Brick, ...]:
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
            return tuple(Brick(brick, uuid="") for brick in bricks)


async def _delete(context: AgentContext, gluster: Gluster, found: VolumeInfo, kept: Kept) -> None:
    owner = found.options.get(OWNER_OPTION, "")
    if owner not in ("", kept.owner):
        raise HostError(f"cannot delete the volume {found.name}: it belongs to {owner}", hint="it is left alone")
    if found.started:
        await _refuse_used(context, gluster, found.name)  # first: what is only waited for may be treated as gone
    away = next((peer for peer in await gluster.pool() if not peer.serves), None)
    if away is not None:
        # Asked before it is stopped: no brick of a stopped volume can be taken off a host that never comes back. One
        # that is refused by the others would keep the volume, and its bricks running.
        what = f"is not of the pool ({away.state_text})" if away.connected else "does not answer"
        raise HostError(
            f"cannot delete the volume {found.name}: {away.name} {what}, and gluster deletes only while all do",
            hint="bring its host back, or give it up with `qm node remove NODE --lost`",
            reason=AWAITED,
        )
    await _refuse_wanted(context, found.name)
    if found.started:
        await gluster.stop(found.name)
        await _refuse_wanted(context, found.name)
    await gluster.delete(found.name)


async def _refuse_wanted(context: AgentContext, name: str) -> None:
    """Since it was asked for, minutes may have passed until nobody else changed the pool: somebody may want the volume
    after all by now. HostError also where nobody can tell.
    """
    own = context.assignment
    if own is None:
        return
    try:
        async with within(_HEAR_S):
            newest = await context.store.get(Assignment, own.metadata.name, own.metadata.namespace)
        is_asked = newest.metadata.uid == own.metadata.uid and bool(newest.spec.absent)
    except NotFoundError:
        is_asked = False
    except (StoreError, TimeoutError) as error:
        message = f"cannot delete the volume {name}: nobody can say whether that is asked for still"
        raise HostError(message, hint="it is tried again when the store answers") from error
    if not is_asked:
        raise HostError(f"cannot delete the volume {name}: it is not asked for any more", hint="it is kept")


async def _refuse_used(context: AgentContext, gluster: Gluster, name: str) -> None:
    """Where Quartermaster has mounted it is known; what others have mounted, gluster alone sees."""
    if context.assignment is not None and DELETE_IN_USE in context.assignment.metadata.annotations:
        return
    forced = f"`qm delete pv {name} --force` deletes it all the same"
    try:
        users = await gluster.users(name)
    except HostError as error:
        message = f"cannot delete the volume {name}: nobody can say whether it is in use: {error}"
        raise HostError(message, hint=forced, reason=IN_USE) from error
    if users:
        told = ", ".join(f"{kind}: {count}" for kind, count in sorted(users.items()))
        raise HostError(
            f"cannot delete the volume {name}: it is in use, and was not mounted by `qm` ({told})",
            hint=f"unmount it where `gluster volume status {name} clients` shows it; {forced}",
            reason=IN_USE,
        )


def _with_bricks(kept: Kept, bricks: tuple[Brick, ...], own: str, placed: tuple[str, ...]) -> Kept:
    names = tuple(brick.name for brick in bricks)
    return msgspec.structs.replace(kept, bricks=names, here=bricks_here(bricks, own, placed))


def _uuid(context: AgentContext) -> str:
    """Of the glusterd of this host."""
    identity = recorded_identity(context.directory.parent / NODE)
    return identity.uuid if identity is not None else ""
