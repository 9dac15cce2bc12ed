"""What the pool says of a brick that this host has, by one of its members.

The glusterd of a host that was cut off, given up or let go knows only what was so before that. Looking is all that a
member does for another host.
"""

from __future__ import annotations

from pathlib import PurePosixPath

import msgspec

from quartermaster.backends.base import AgentContext
from quartermaster.backends.glusterfs.belonging import IDENTITY_FILE, BaseIdentity
from quartermaster.backends.glusterfs.facts import SERVERS, TYPE
from quartermaster.backends.glusterfs.tool import Gluster
from quartermaster.planning.cluster import ClusterKey
from quartermaster.resources.storage import StorageStatus
from quartermaster.support import entropy
from quartermaster.support.deadlines import within
from quartermaster.support.errors import HostError, NotFoundError

_ASKED_S = 8.0  # each of them: one that cannot be reached is not in the way of the others


class Members:
    """For one run of an agent. Who does not answer is asked once, and another one is the first each time."""

    def __init__(self, context: AgentContext) -> None:
        self._context = context
        self._silent: dict[str, str] = {}  # server → why it did not answer

    async def have_brick(self, volume: str, path: str, uuid: str, *, alone: bool = False) -> bool | None:
        """Whether the pool has the brick of the glusterd with that UUID, by whoever answers first; None where there is
        no cluster any more, HostError where nobody answers. One that is alone in its pool may have fallen out of the
        one that is meant, and is believed only where `alone` says so.
        """
        servers = await self._servers(str(PurePosixPath(path).parent))
        if servers is None:
            return None
        for server in entropy.source().sample(servers, len(servers)):
            if server in self._silent:
                continue
            try:
                async with within(_ASKED_S):
                    return await self._has_brick(
                        Gluster(self._context.machine.commands, server), volume, path, uuid, alone
                    )
            except TimeoutError:
                self._silent[server] = f"{server} does not answer within {_ASKED_S:g} s"
            except HostError as error:
                self._silent[server] = str(error)
        trouble = next(reversed(self._silent.values()), "it has no members")
        raise HostError(f"nobody says whether the pool has it still: {trouble}")

    async def _has_brick(self, gluster: Gluster, volume: str, path: str, uuid: str, alone: bool) -> bool:
        if not alone and len(await gluster.pool()) < 2:
            raise HostError("whoever answers is alone in its pool")
        found = await gluster.volume(volume)
        names = [one.name for one in found.bricks if one.uuid in ("", uuid)] if found is not None else []
        return any(name.endswith(f":{path}") for name in names)

    async def _servers(self, base: str) -> list[str] | None:
        """The addresses of the cluster that the directory for bricks belongs to; None where there is none any more."""
        content = await self._context.machine.directories.read(f"{base}/{IDENTITY_FILE}")
        if content is None:
            raise HostError(f"cannot tell whose bricks are in {base}: {IDENTITY_FILE} is missing")
        namespace, _, name = msgspec.json.decode(content, type=BaseIdentity).cluster.partition("/")
        key = ClusterKey(namespace, TYPE, name)
        try:
            status = await self._context.store.get(StorageStatus, key.status_name, namespace)
        except NotFoundError:
            return None
        details = status.spec.glusterfs.details if status.spec.glusterfs is not None else {}
        return [one for one in details.get(SERVERS, "").split(", ") if one]
