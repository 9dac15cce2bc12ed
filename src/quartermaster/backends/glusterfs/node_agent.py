"""A node of the pool: its disks with XFS, mounted; glusterd; and what is on the disks, told to the leader.

Every directory for bricks carries a file that says whose it is: cluster, node, and the glusterd that made it. One that
belongs to another is refused and never touched. Bricks are removed only by name, and only when no volume has them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from quartermaster.backends.base import AgentContext
from quartermaster.backends.directories import BASE_MARK
from quartermaster.backends.filesystems import offer_file_systems, release_file_systems, uuids_of
from quartermaster.backends.glusterfs.daemon import Identity, end_glusterd, ensure_glusterd, recorded_identity
from quartermaster.backends.glusterfs.facts import NODE
from quartermaster.backends.glusterfs.tool import Gluster
from quartermaster.host import FileSystem
from quartermaster.support.errors import HostError
from quartermaster.support.tasks import TaskGroup

IDENTITY_FILE = ".quartermaster-brick.json"
LABEL = "qm-gluster"
_PENDING = ".glusterfs/indices/xattrop"  # gluster keeps a link here for every entry that is to be healed
_PENDING_BASE = "xattrop-"


class BaseIdentity(msgspec.Struct, frozen=True):
    """Whose bricks are in a directory."""

    cluster: str
    node: str
    uuid: str  # of the glusterd


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
        await self._remove_bricks(context, [base["path"] for base in offered["bases"]])
        bases, bricks, dead = [], {}, {}
        for base in offered["bases"]:
            try:
                await self._claim(context, base["path"], identity.uuid)
                bricks[base["path"]] = await _bricks(context, base["path"])
                bases.append(base)
            except HostError as error:
                offered["failed"][base["path"]] = str(error)
                if "Input/output error" in str(error):
                    dead[base["path"]] = f"the disk of {base['path']} answers with errors"
        facts = {"uuid": identity.uuid, "version": identity.version, "bricks": bricks, "dead": dead}
        return {**offered, "bases": bases, **facts}

    async def destroy_local_service(self, context: AgentContext) -> None:
        """The content of the disks stays."""
        await end_glusterd(context)
        await release_file_systems(context)

    async def _claim(self, context: AgentContext, base: str, uuid: str) -> None:
        path = f"{base}/{IDENTITY_FILE}"
        own = BaseIdentity(context.desired["owner"], context.desired["node"], uuid)
        found = await context.machine.directories.read(path)
        if found is None:
            adopted = base in context.desired.get("adopted", ())
            others = [name for name in await context.machine.directories.entries(base) if not _is_harmless(name)]
            if others and not adopted:
                raise HostError(
                    f"cannot use {base}: it holds {others[0]}, and nothing says whose that is",
                    hint="move it away, or wipe the disk by naming it in spec.wipe",
                )
            await context.machine.directories.write(path, msgspec.json.encode(own))
            return
        known = _decoded(found, base)
        if (known.cluster, known.uuid) != (own.cluster, own.uuid):
            raise HostError(
                f"cannot use {base}: it holds bricks of cluster {known.cluster}, node {known.node}, "
                f"made by another glusterd ({known.uuid[:8]})",
                hint="wipe the disk by naming it in spec.wipe if nothing on it is wanted",
            )

    async def _remove_bricks(self, context: AgentContext, bases: Sequence[str]) -> None:
        named = [path for path in context.desired.get("remove", ()) if str(Path(path).parent) in bases]
        there = [path for path in named if await context.machine.directories.exists(path)]
        if not there:
            return
        used = {brick.name for volume in await Gluster(context.machine.commands).volumes() for brick in volume.bricks}
        for path in there:
            if not any(name.endswith(f":{path}") for name in used):
                await context.machine.directories.remove(path)


async def _offer(context: AgentContext) -> tuple[dict[str, Any], HostError | None]:
    """Trouble with all of its disks is no reason for a host to leave the pool."""
    try:
        return await offer_file_systems(context, file_system=FileSystem.XFS, label=LABEL), None
    except HostError as error:
        return {"bases": [], "wiped": [], "failed": {}}, error


async def _ensure(context: AgentContext) -> Identity:
    return await ensure_glusterd(context, context.desired.get("bind", ""), tls=bool(context.desired.get("tls")))


def _is_harmless(name: str) -> bool:
    return name in (IDENTITY_FILE, BASE_MARK, "lost+found")


def _decoded(found: bytes, base: str) -> BaseIdentity:
    try:
        return msgspec.json.decode(found, type=BaseIdentity)
    except msgspec.DecodeError as error:
        raise HostError(f"cannot use {base}: {IDENTITY_FILE} in it cannot be read: {error}") from error


async def _bricks(context: AgentContext, base: str) -> dict[str, int]:
    """The directories of bricks, each with how many entries wait to be healed there."""
    found: dict[str, int] = {}
    for name in await context.machine.directories.entries(base):
        if name.startswith("."):
            continue
        waiting: tuple[str, ...] = ()
        with suppress(HostError):
            waiting = await context.machine.directories.entries(f"{base}/{name}/{_PENDING}")
        found[name] = sum(not one.startswith(_PENDING_BASE) for one in waiting)
    return found
