"""Whether a host lives, for commands that give it up: the leader's word for it, with the numbers behind that word."""

from __future__ import annotations

from quartermaster.host.places import state_directory
from quartermaster.operators.settings import read_settings
from quartermaster.orchestration.heartbeat import heartbeat_name
from quartermaster.orchestration.timings import Timings
from quartermaster.planning.health import READY
from quartermaster.resources.kubernetes.core import Lease
from quartermaster.resources.orchestration import Host
from quartermaster.resources.storage import StorageNode
from quartermaster.stores import Store
from quartermaster.support import clock
from quartermaster.support.errors import ConflictError, NotFoundError


async def last_heard(store: Store, namespace: str, host: str) -> str:
    """When the host was heard, and how long silence must last. The leader's times are taken to be this host's."""
    settings = read_settings(state_directory())
    after_s = (settings.timings if settings is not None else Timings()).unhealthy_after_s
    counts = f"it counts as silent after {after_s:g} s"
    try:
        lease = await store.get(Lease, heartbeat_name(host), namespace)
    except NotFoundError:
        return counts
    if lease.spec.renew_time is None:
        return counts
    ago_s = max(0.0, clock.wall_time() - clock.parse_timestamp(lease.spec.renew_time))
    return f"last heard {ago_s:.0f} s ago; {counts}"


async def refuse_needed_host(store: Store, name: str, namespace: str) -> None:
    """ConflictError where a Host is to be deleted that lives, or that storage nodes are on."""
    try:
        host = await store.get(Host, name, namespace)
    except NotFoundError:
        return
    if host.status.state == READY:
        raise ConflictError(
            f"cannot delete host {name}: it lives ({await last_heard(store, namespace, name)})",
            hint="`qm leave` on that host takes it out; --force deletes it all the same",
        )
    nodes = [one.metadata.name for one in (await store.list(StorageNode, namespace)).items if one.status.host == name]
    if nodes:
        raise ConflictError(
            f"cannot delete host {name}: it is the storage node {', '.join(nodes)}",
            hint=f"`qm node remove {nodes[0]} --lost` gives it up first; --force deletes the host all the same",
        )
