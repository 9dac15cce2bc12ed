"""Whether a host may be stopped: others may need the member of etcd that it carries."""

from __future__ import annotations

from pathlib import Path

import msgspec

from quartermaster.backends.etcd.member import LocalMember
from quartermaster.backends.etcd.tool import DAEMON, EtcdMember, EtcdTool
from quartermaster.host import Host
from quartermaster.orchestration.joining.access import StoreAccess
from quartermaster.planning.health import READY
from quartermaster.planning.quorum import majority
from quartermaster.resources.orchestration import Host as HostObject
from quartermaster.stores import open_store
from quartermaster.support.errors import ConflictError, QuartermasterError

_PATIENCE_S = 5.0


class Standing(msgspec.Struct, frozen=True):
    """The members of etcd, as the host that is to be stopped sees them."""

    voters: int
    answering: int
    ours: bool  # one of those that answer is on this host
    needed_by: tuple[str, ...]  # other hosts that give signs of life


def objection(standing: Standing) -> str:
    """Why the host's member is not to be stopped; "" when it can be, or when there is no majority to be lost."""
    least = majority(standing.voters)
    loses_it = standing.answering >= least > standing.answering - 1
    if not standing.ours or not standing.needed_by or not loses_it:
        return ""
    left = f"{standing.answering - 1} of {standing.voters} members would be left, and it takes {least}"
    return f"{left}: {', '.join(standing.needed_by)} would be without a store"


async def refuse_if_needed(access: StoreAccess, machine: Host) -> None:
    standing = await _standing(access, machine)
    if standing is not None and (why := objection(standing)):
        raise ConflictError(
            f"cannot stop etcd on {access.host}: {why}",
            hint="`qm leave` takes a host out for good; --force stops it all the same, as for a whole cluster's end",
        )


async def _standing(access: StoreAccess, machine: Host) -> Standing | None:
    """None where this host carries no member that votes, or nobody answers any more."""
    config = LocalMember(Path(access.directory)).read()
    if config is None or not access.leader_url or not (await machine.daemons.status(DAEMON)).running:
        return None
    from quartermaster.backends.etcd.client import EtcdClient
    from quartermaster.stores.kv.etcd.settings import parse

    tool = EtcdClient(parse(access.leader_url, {}, deadline_s=_PATIENCE_S))
    try:
        voters = [member for member in await tool.members() if not member.learner]
        answering = [member for member in voters if await _answers(tool, member)]
        needed_by = await _others(access)
    except QuartermasterError:
        return None
    finally:
        await tool.close()
    ours = any(config.member == member.name for member in answering)
    return Standing(len(voters), len(answering), ours, needed_by)


async def _answers(tool: EtcdTool, member: EtcdMember) -> bool:
    return any([await tool.status(url) is not None for url in member.client_urls])


async def _others(access: StoreAccess) -> tuple[str, ...]:
    store = await open_store(access.url, patience_s=_PATIENCE_S)
    try:
        hosts = (await store.list(HostObject, access.namespace)).items
    finally:
        await store.close()
    return tuple(
        host.metadata.name for host in hosts if host.metadata.name != access.host and host.status.state == READY
    )
