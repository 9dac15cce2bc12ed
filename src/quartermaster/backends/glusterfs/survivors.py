"""What a glusterd has started and leaves running at its end: bricks, and the daemons that heal and count.

A host that was cut off and given up is back with all of them, and nobody else ends them. A brick serves on as long as
the pool has it, for it may be the only whole copy. What is in it stays on its disk.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import PurePosixPath

import msgspec

from quartermaster.backends.base import AgentContext
from quartermaster.backends.glusterfs.belonging import IDENTITY_FILE, BaseIdentity
from quartermaster.backends.glusterfs.facts import SERVERS
from quartermaster.backends.glusterfs.tool import Gluster
from quartermaster.host.programs import Program
from quartermaster.planning.cluster import ClusterKey
from quartermaster.resources.storage import StorageStatus
from quartermaster.support.errors import HostError, NotFoundError

TYPE = "glusterfs"
_PROGRAMS = ("glusterfsd", "glusterfs")
_BRICK, _HEALS, _COUNTS = "brick", "glustershd", "quotad"  # as glusterd calls them; mounts have other names
# What says by whose glusterd a process was started; of the one that counts nothing does.
_UUID_OPTIONS = ("*-posix.glusterd-uuid=", "*replicate*.node-uuid=")


async def end_what_ran(context: AgentContext, ended: Collection[str]) -> None:
    """`ended` are the UUIDs of our glusterds that have ended here. HostError while the pool has such a brick."""
    if not ended:
        return
    programs = context.machine.programs
    found = await programs.running(*_PROGRAMS)
    kept: list[str] = []
    for brick in [one for one in found if _kind(one) == _BRICK and _uuid(one) in ended]:
        if await _is_in_pool(context, brick):
            kept.append(_name(brick))
        else:
            await programs.end(brick)
    if kept:
        raise HostError(
            f"cannot end the brick {kept[0]}: the pool has it still",
            hint="it serves until another one has its place; look at the StorageStatus for what that waits for",
        )
    for one in found:
        if _kind(one) == _COUNTS or (_kind(one) == _HEALS and _uuid(one) in ended):
            await programs.end(one)


async def _is_in_pool(context: AgentContext, brick: Program) -> bool:
    """By whoever of the pool answers first: what the glusterd of this host knew is from before it was cut off."""
    path, volume = brick.after("--brick-name"), brick.after("--volfile-id").partition(".")[0]
    servers = await _servers(context, str(PurePosixPath(path).parent))
    trouble = "it has no members"
    for server in servers or ():
        try:
            found = await Gluster(context.machine.commands, server).volume(volume)
        except HostError as error:
            trouble = str(error)
            continue
        names = [one.name for one in found.bricks if one.uuid in ("", _uuid(brick))] if found is not None else []
        return any(name.endswith(f":{path}") for name in names)
    if servers is None:
        return False
    raise HostError(f"cannot end the brick {_name(brick)}: nobody says whether the pool has it still: {trouble}")


async def _servers(context: AgentContext, base: str) -> list[str] | None:
    """The addresses of the cluster that the directory for bricks belongs to; None where there is none any more."""
    content = await context.machine.directories.read(f"{base}/{IDENTITY_FILE}")
    if content is None:
        raise HostError(f"cannot tell whose bricks are in {base}: {IDENTITY_FILE} is missing")
    namespace, _, name = msgspec.json.decode(content, type=BaseIdentity).cluster.partition("/")
    try:
        status = await context.store.get(StorageStatus, ClusterKey(namespace, TYPE, name).status_name, namespace)
    except NotFoundError:
        return None
    details = status.spec.glusterfs.details if status.spec.glusterfs is not None else {}
    return [one for one in details.get(SERVERS, "").split(", ") if one]


def _kind(program: Program) -> str:
    return program.after("--process-name")


def _uuid(program: Program) -> str:
    """Of the glusterd that started it; "" where it does not say."""
    found = (word.partition("=")[2] for word in program.arguments if word.startswith(_UUID_OPTIONS))
    return next(found, "")


def _name(brick: Program) -> str:
    return f"{brick.after('-s')}:{brick.after('--brick-name')}"
