"""A node of the pool: its disks with XFS, mounted; glusterd; and what is on the disks, told to the leader.

Every directory for bricks carries a file that says whose it is: cluster, node, and the glusterd that made it. One that
belongs to another is refused and never touched. Bricks are removed only by name, and only when no volume has them;
where others may have something beside them, only what is known to be a brick of ours.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from quartermaster.backends.base import AgentContext
from quartermaster.backends.directories import BASE_MARK, offer_base
from quartermaster.backends.filesystems import offer_file_systems, release_file_systems, shared_space, uuids_of
from quartermaster.backends.glusterfs.asking import Members
from quartermaster.backends.glusterfs.belonging import (
    IDENTITY_FILE,
    BaseIdentity,
    bricks_of_ours,
    is_brick_of_ours,
    strangers_in,
)
from quartermaster.backends.glusterfs.daemon import (
    Identity,
    begin_again,
    does_not_start,
    end_glusterd,
    ensure_glusterd,
    forget_glusterd,
    recorded_identity,
    refused_by_glusterd,
)
from quartermaster.backends.glusterfs.facts import BRICK_MARK, NODE, PENDING, PENDING_BASE, VOLUME_PREFIX
from quartermaster.backends.glusterfs.model import VolumeInfo
from quartermaster.backends.glusterfs.pool_agent import AGAIN_S, LOCK, LOCK_S
from quartermaster.backends.glusterfs.survivors import end_what_ran
from quartermaster.backends.glusterfs.tool import Gluster
from quartermaster.host import FileSystem
from quartermaster.host.directories import begun_removals
from quartermaster.support.deadlines import within
from quartermaster.support.errors import HostError
from quartermaster.support.log import logger
from quartermaster.support.tasks import TaskGroup

LABEL = "qm-gluster"
_REMOVING_S = 60.0  # in one run, for what is left of bricks

T = TypeVar("T")
_Claimed: TypeAlias = Mapping[str, BaseIdentity]  # by path

_log = logger("backends.glusterfs.node")


class NodeAgent:
    name = NODE

    async def initialize(self, context: AgentContext) -> None:
        context.directory.mkdir(parents=True, exist_ok=True)

    def file_systems(self, desired: Mapping[str, Any]) -> Sequence[str]:
        return uuids_of(desired)

    async def configure_local_service(self, context: AgentContext) -> dict[str, Any]:
        """Disks before glusterd: it starts the bricks of its volumes, and these must find their disks mounted. Only one
        that never ran here need not wait for them.
        """
        if recorded_identity(context.directory) is None:
            async with TaskGroup() as group:
                disks, daemon = group.start(_offer(context)), group.start(_ensure(context))
            (offered, trouble), identity = disks.result(), daemon.result()
        else:
            offered, trouble = await _offer(context)
            identity = await _ensure(context)
        if trouble is not None:
            raise trouble
        troubles = _Troubles(offered["failed"])
        paths = [base["path"] for base in offered["bases"]]
        found_of = {path: await troubles.during(path, self._claim(context, path, identity.uuid)) for path in paths}
        claimed = {path: one for path, one in found_of.items() if one is not None}
        is_clean = await self._clean(context, claimed, identity.uuid, troubles)
        bricks: dict[str, dict[str, int]] = {}
        ours: dict[str, list[str]] = {}
        bases: list[dict[str, Any]] = []
        for base in [one for one in offered["bases"] if one["path"] in claimed]:
            found = await troubles.during(base["path"], _bricks(context, base["path"]))
            measured = await troubles.during(base["path"], _measured(context, base, found or {}))
            if found is not None and measured is not None:
                bricks[base["path"]] = found
                bases.append(measured)
            if _is_shared(context, base["path"]):
                known = bricks_of_ours(context.machine.directories, base["path"], claimed[base["path"]])
                ours[base["path"]] = await troubles.during(base["path"], known) or []
        facts = {"uuid": identity.uuid, "version": identity.version, "bricks": bricks, "dead": troubles.dead}
        told = {**offered, "bases": bases, **facts, **({"ours": ours} if ours else {})}
        if identity.own and (refused := refused_by_glusterd(context.directory)):
            told["refused"] = refused
        if is_clean:
            return told
        removing = await self._removing(context, claimed, troubles)
        return {**told, **({"removing": removing} if removing else {}), "againSeconds": AGAIN_S}

    async def destroy_local_service(self, context: AgentContext) -> None:
        """The content of the disks stays."""
        await end_what_ran(context, await end_glusterd(context))
        await forget_glusterd(context)
        await release_file_systems(context)

    async def _claim(self, context: AgentContext, base: str, uuid: str) -> BaseIdentity:
        """Nothing is written to one that is not ours, nor removed there."""
        path = f"{base}/{IDENTITY_FILE}"
        own = BaseIdentity(context.desired["owner"], context.desired["node"], uuid)
        found = await context.machine.directories.read(path)
        known = _decoded(found, base) if found is not None else None
        others: list[str] = []
        if known is None or _of_earlier_time(known, own):
            others = [name for name in await context.machine.directories.entries(base) if not _is_harmless(name)]
        if known is not None and _of_earlier_time(known, own) and not others:
            known = None  # the node has left since, with all of its bricks
        if known is None:
            adopted = base in context.desired.get("adopted", ())
            if others and not adopted:
                raise HostError(
                    f"cannot use {base}: it holds {others[0]}, and nothing says whose that is",
                    hint="move it away; a disk on which nothing is wanted is cleared by hand, with `wipefs --all`",
                )
        elif (known.cluster, known.uuid) != (own.cluster, own.uuid):
            hint = f"if nothing on it is wanted, clear the disk by hand, with `umount {base}` and `wipefs --all`"
            if _is_shared(context, base):
                hint = f"if no brick in it is wanted, move them away, and {IDENTITY_FILE} with them"
            raise HostError(
                f"cannot use {base}: it is of cluster {known.cluster}, node {known.node}, "
                f"and of another glusterd ({known.uuid[:8]}){f'; it holds {others[0]}' if others else ''}",
                hint=hint,
            )
        if _is_shared(context, base):
            await offer_base(context, base, (await context.machine.directories.space(base)).file_system)
        if known is not None:
            return known
        if others:
            volumes = await Gluster(context.machine.commands).volumes()
            own = replace(own, strangers=await strangers_in(context.machine.directories, base, volumes, own))
        await context.machine.directories.write(path, msgspec.json.encode(own))
        return own

    async def _clean(self, context: AgentContext, bases: _Claimed, uuid: str, troubles: _Troubles) -> bool:
        """Whether all is removed that is to be. A large brick takes longer than this run has: the next one goes on with
        it, also where whoever began with it is gone.
        """
        with suppress(TimeoutError):
            async with within(_REMOVING_S):
                for base in bases:
                    mark = _mark_of_bricks(context, base)
                    begun = context.machine.directories.finish_removals(base, VOLUME_PREFIX, having=mark)
                    await troubles.during(base, begun)
                await self._remove_bricks(context, bases, uuid, troubles)
                return True
        return False

    async def _removing(self, context: AgentContext, bases: Iterable[str], troubles: _Troubles) -> dict[str, list[str]]:
        """What the next run goes on with, so that nobody takes its disk for an empty one. What cannot be removed is
        trouble, and told as such: nobody waits for it.
        """
        directories, found = context.machine.directories, {}
        for base in [one for one in bases if not troubles.has(one)]:
            begun = begun_removals(directories, base, VOLUME_PREFIX, having=_mark_of_bricks(context, base))
            if names := await troubles.during(base, begun):
                found[base] = names
        return found

    async def _remove_bricks(self, context: AgentContext, bases: _Claimed, uuid: str, troubles: _Troubles) -> None:
        named = [path for path in context.desired.get("remove", ()) if str(Path(path).parent) in bases]
        there = [
            path
            for path in named
            if await troubles.during(str(Path(path).parent), _may_be_removed(context, path, bases))
        ]
        if not there:
            return
        gluster = Gluster(context.machine.commands)
        volumes = {volume.name: volume for volume in await gluster.volumes()}
        bricks = [brick for volume in volumes.values() for brick in volume.bricks]
        # Directories have the same path on every host: that another one has a brick there says nothing of this one.
        used = {brick.name for brick in bricks if brick.uuid in ("", uuid)}
        wholeness = _Wholeness(gluster, context.desired.get("whole", {}))
        is_apart, members = bool(context.desired.get("apart")), Members(context)
        for path in there:
            volume = volumes.get(Path(path).name.partition(".")[0])
            is_used = any(name.endswith(f":{path}") for name in used)
            if is_used and is_apart and volume is not None:
                is_used = await _may_be_used_in_pool(members, volume, path, uuid)
            if not is_used and (volume is None or is_apart or await wholeness.is_known(volume)):
                await context.machine.directories.remove(path)


class _Troubles:
    """What is wrong with directories of bricks: one that fails does not cost the host its others."""

    def __init__(self, failed: dict[str, str]) -> None:
        self._failed = failed
        self.dead: dict[str, str] = {}

    async def during(self, base: str, work: Awaitable[T]) -> T | None:
        try:
            return await work
        except HostError as error:
            self._failed[base] = str(error)
            if "Input/output error" in str(error):
                self.dead[base] = f"the disk of {base} answers with errors"
            return None

    def has(self, base: str) -> bool:
        return base in self._failed


class _Wholeness:
    """Which volumes are whole now: they were when the leader named what is to go, and that may be long ago.

    A look that fails fails nothing else: what is left of bricks can wait, and the node serves without. Nor is another
    one tried in the same run, for each may take all the time that its command has.
    """

    def __init__(self, gluster: Gluster, whole: Mapping[str, Sequence[str]]) -> None:
        self._gluster = gluster
        self._whole = whole  # erasure-coded volume → bricks that were not empty when the leader named what is to go
        self._running: dict[str, dict[str, str]] | None = None
        self._failed = False

    async def is_known(self, volume: VolumeInfo) -> bool:
        try:
            return not self._failed and await self._is_whole(volume)
        except HostError as error:
            _log.info("what is left of bricks stays for now", volume=volume.name, error=str(error))
            self._failed = True
            return False

    async def _is_whole(self, volume: VolumeInfo) -> bool:
        if self._running is None:
            self._running = await self._gluster.online(())
        running = self._running.get(volume.name, {})
        if not all(brick.name in running for brick in volume.bricks):
            return False
        if volume.width == 1:
            return True
        if volume.disperse and not {brick.name for brick in volume.bricks} <= set(self._whole.get(volume.name, ())):
            return False  # of a new brick of it nothing is counted at first
        return all(one.connected and not one.pending for one in await self._gluster.heal_counts(volume))


async def _may_be_removed(context: AgentContext, path: str, bases: _Claimed) -> bool:
    """The leader's word may be that of an earlier version, which took any name like ours for ours."""
    base = str(Path(path).parent)
    if _is_shared(context, base) and not await is_brick_of_ours(context.machine.directories, path, bases[base]):
        return False
    return await context.machine.directories.exists(path)


async def _may_be_used_in_pool(members: Members, volume: VolumeInfo, path: str, uuid: str) -> bool:
    """What the glusterd of a host that was let go while it was away knows of the volume is from before that."""
    try:
        return await members.have_brick(volume.name, path, uuid) is not False
    except HostError as error:
        _log.info("what is left of bricks stays for now", volume=volume.name, error=str(error))
        return True


def _of_earlier_time(known: BaseIdentity, own: BaseIdentity) -> bool:
    """Whether the node itself used it, with a glusterd that it has no more."""
    return (known.cluster, known.node) == (own.cluster, own.node) and known.uuid != own.uuid


def _is_shared(context: AgentContext, base: str) -> bool:
    """Whether others may have something there: it is no disk of ours."""
    return base in context.desired.get("directories", ())


def _mark_of_bricks(context: AgentContext, base: str) -> str:
    """By which what is being removed there is known to be a brick, beside what others remove."""
    return BRICK_MARK if _is_shared(context, base) else ""


async def _offer(context: AgentContext) -> tuple[dict[str, Any], HostError | None]:
    """Trouble with all of its disks is no reason for a host to leave the pool."""
    try:
        return await offer_file_systems(context, file_system=FileSystem.XFS, label=LABEL, taken=False), None
    except HostError as error:
        return {"bases": [], "wiped": [], "failed": {}}, error


async def _ensure(context: AgentContext) -> Identity:
    if stuck := does_not_start(context, context.desired.get("stuck", ())):
        async with context.machine.locks.hold(LOCK, timeout_s=LOCK_S):  # in the middle of no change
            await begin_again(context, stuck)
    return await ensure_glusterd(context, context.desired.get("bind", ""), tls=bool(context.desired.get("tls")))


def _is_harmless(name: str) -> bool:
    return name in (IDENTITY_FILE, BASE_MARK, "lost+found")


def _decoded(found: bytes, base: str) -> BaseIdentity:
    try:
        return msgspec.json.decode(found, type=BaseIdentity)
    except msgspec.DecodeError as error:
        raise HostError(f"cannot use {base}: {IDENTITY_FILE} in it cannot be read: {error}") from error


async def _measured(context: AgentContext, base: dict[str, Any], bricks: Iterable[str]) -> dict[str, Any]:
    """With what is free in a directory, which others may write to, too."""
    path = base["path"]
    if path not in context.desired.get("directories", ()):
        return base
    space = await context.machine.directories.space(path)
    return {**base, **shared_space(context, path, space, [f"{path}/{name}" for name in bricks])}


async def _bricks(context: AgentContext, base: str) -> dict[str, int]:
    """The directories of bricks, each with how many entries wait to be healed there."""
    found: dict[str, int] = {}
    for name in await context.machine.directories.entries(base):
        if name.startswith("."):
            continue
        waiting: tuple[str, ...] = ()
        with suppress(HostError):
            waiting = await context.machine.directories.entries(f"{base}/{name}/{PENDING}")
        found[name] = sum(not one.startswith(PENDING_BASE) for one in waiting)
    return found
