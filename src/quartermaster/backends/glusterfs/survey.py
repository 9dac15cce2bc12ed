"""What of GlusterFS is on a host, told to whoever wants to write down what is there: nothing is changed.

For `qm adopt`: a store was lost, or a pool was made by hand, and what runs is all that is known. A host tells who its
glusterd is, what that says of the pool, and whose bricks lie on its disks by the file that every one of them carries.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import PurePosixPath
from typing import Any

import msgspec

from quartermaster.backends.base import AgentContext
from quartermaster.backends.directories import mounts_below
from quartermaster.backends.glusterfs.belonging import IDENTITY_FILE, BaseIdentity
from quartermaster.backends.glusterfs.daemon import recorded_identity
from quartermaster.backends.glusterfs.encryption import SECURE_ACCESS, VOLUME_OPTIONS
from quartermaster.backends.glusterfs.facts import NODE, SIZE_OPTION, VOLUME
from quartermaster.backends.glusterfs.model import Brick, Peer, VolumeInfo
from quartermaster.backends.glusterfs.node_agent import LABEL
from quartermaster.backends.glusterfs.pool_agent import ADOPTED_OPTION, OWNER_OPTION
from quartermaster.backends.glusterfs.tool import Gluster
from quartermaster.support.errors import HostError

SURVEY = "glusterfs-survey"
CLAIM_OPTION = "user.quartermaster.claim"
_TOLD = (
    OWNER_OPTION,
    SIZE_OPTION,
    CLAIM_OPTION,
    ADOPTED_OPTION,
    "network.ping-timeout",
    "client.tcp-user-timeout",
    "auth.allow",
    "cluster.server-quorum-type",
    *VOLUME_OPTIONS,
)


class SurveyedDisk(msgspec.Struct, frozen=True):
    """A disk with a file system that a node of GlusterFS put there."""

    path: str
    id: str
    uuid: str  # of the file system
    base: str = ""  # where it is mounted


class SurveyedBase(msgspec.Struct, frozen=True, omit_defaults=True):
    """A directory with bricks."""

    total: int = 0
    identity: BaseIdentity | None = None
    trouble: str = ""  # why nothing more is known


class Survey(msgspec.Struct, frozen=True, omit_defaults=True):
    uuid: str = ""  # of its glusterd
    runs: bool = False
    peers: tuple[Peer, ...] = ()
    volumes: tuple[VolumeInfo, ...] = ()
    limits: dict[str, int] = {}  # volume → its limit, of those that do not say their size
    disks: tuple[SurveyedDisk, ...] = ()
    bases: dict[str, SurveyedBase] = {}
    keeps: tuple[str, ...] = ()  # volumes that an agent of this host has kept
    tls: bool = False  # its gluster uses TLS


class SurveyAgent:
    name = SURVEY

    async def initialize(self, context: AgentContext) -> None:
        """Nothing is needed."""

    async def configure_local_service(self, context: AgentContext) -> dict[str, Any]:
        gluster = Gluster(context.machine.commands)
        peers: tuple[Peer, ...] = ()
        volumes: tuple[VolumeInfo, ...] = ()
        with suppress(HostError):
            peers = await gluster.pool()
            volumes = await gluster.volumes()
        known = recorded_identity(context.directory.parent / NODE)
        uuid = next((peer.uuid for peer in peers if peer.local), known.uuid if known is not None else "")
        disks = await _disks(context)
        bricks = [brick for volume in volumes for brick in volume.bricks if brick.uuid == uuid]
        survey = Survey(
            uuid=uuid,
            runs=bool(peers),
            peers=peers,
            volumes=tuple(_short(volume) for volume in volumes),
            limits=await _limits(gluster, volumes),
            disks=disks,
            bases=await _bases(context, disks, bricks),
            keeps=tuple(sorted(path.name for path in (context.directory.parent / VOLUME).glob("*"))),
            tls=await context.machine.directories.read(SECURE_ACCESS) is not None,
        )
        told: dict[str, Any] = msgspec.to_builtins(survey)
        return told

    async def destroy_local_service(self, context: AgentContext) -> None:
        """Nothing was made."""


def _short(volume: VolumeInfo) -> VolumeInfo:
    options = {name: value for name, value in volume.options.items() if name in _TOLD}
    return msgspec.structs.replace(volume, options=options)


async def _limits(gluster: Gluster, volumes: tuple[VolumeInfo, ...]) -> dict[str, int]:
    found: dict[str, int] = {}
    for volume in volumes:
        if SIZE_OPTION not in volume.options and volume.options.get("features.quota") == "on" and volume.started:
            with suppress(HostError):
                whole = next((one for one in await gluster.quota(volume.name) if one.path == "/"), None)
                found |= {volume.name: whole.limit} if whole is not None else {}
    return found


async def _disks(context: AgentContext) -> tuple[SurveyedDisk, ...]:
    own = str(mounts_below(context.directory.parent / NODE, ""))
    found = []
    for device in await context.machine.devices.discover():
        signature = next((one for one in device.signatures if one.label == LABEL), None)
        if signature is not None:
            base = next((target for target in device.mounts if target.startswith(f"{own}/")), "")
            found.append(SurveyedDisk(device.path, device.identity, signature.uuid, base))
    return tuple(found)


async def _bases(
    context: AgentContext, disks: tuple[SurveyedDisk, ...], bricks: list[Brick]
) -> dict[str, SurveyedBase]:
    paths = [PurePosixPath(brick.name.partition(":")[2]) for brick in bricks]
    wanted = dict.fromkeys([*(disk.base for disk in disks if disk.base), *(str(path.parent) for path in paths)])
    found = {path: await _base(context, path) for path in sorted(wanted)}
    mounted = {mount.target for mount in context.machine.mounts.table()}
    # New bricks would go beside it: onto the file system of the host itself, or whichever is beneath the mount.
    for path in paths:
        if str(path.parent) == "/" or str(path) in mounted:
            where = "in the root of the host" if str(path.parent) == "/" else "a file system of its own"
            trouble = f"the brick {path} is {where}: replace it by one in a directory that is there for bricks alone"
            found[str(path.parent)] = SurveyedBase(trouble=trouble)
    return found


async def _base(context: AgentContext, path: str) -> SurveyedBase:
    try:
        space = await context.machine.directories.space(path)
        found = await context.machine.directories.read(f"{path}/{IDENTITY_FILE}")
        identity = msgspec.json.decode(found, type=BaseIdentity) if found is not None else None
    except (HostError, msgspec.DecodeError) as error:
        return SurveyedBase(trouble=str(error))
    return SurveyedBase(space.total, identity)
