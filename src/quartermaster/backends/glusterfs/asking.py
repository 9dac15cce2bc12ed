"""What the pool says of a brick that this host has, by one of its members.

The glusterd of a host that was cut off, given up or let go knows only what was so before that. Looking is all that a
member does for another host.
"""

from __future__ import annotations

from pathlib import PurePosixPath

import msgspec

from quartermaster.backends.base import AgentContext
from quartermaster.backends.glusterfs.belonging import IDENTITY_FILE, BaseIdentity
from quartermaster.backends.glusterfs.facts import SERVERS
from quartermaster.backends.glusterfs.tool import Gluster
from quartermaster.planning.cluster import ClusterKey
from quartermaster.resources.storage import StorageStatus
from quartermaster.support.errors import HostError, NotFoundError

TYPE = "glusterfs"


async def pool_has_brick(context: AgentContext, volume: str, path: str, uuid: str) -> bool | None:
    """Of the glusterd with that UUID, by whoever answers first; None where there is no cluster any more. HostError
    where nobody answers.
    """
    servers = await _servers(context, str(PurePosixPath(path).parent))
    trouble = "it has no members"
    for server in servers or ():
        try:
            found = await Gluster(context.machine.commands, server).volume(volume)
        except HostError as error:
            trouble = str(error)
            continue
        names = [one.name for one in found.bricks if one.uuid in ("", uuid)] if found is not None else []
        return any(name.endswith(f":{path}") for name in names)
    if servers is None:
        return None
    raise HostError(f"nobody says whether the pool has it still: {trouble}")


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
