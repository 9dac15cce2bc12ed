"""Whether a host lives, for commands that give it up: the leader's word for it, with the numbers behind that word."""

from __future__ import annotations

import asyncio

import msgspec

from quartermaster.backends.etcd.rights import FORGET_S
from quartermaster.cli.progress import Status
from quartermaster.host.places import state_directory
from quartermaster.operators.settings import read_settings
from quartermaster.orchestration.heartbeat import heartbeat_name
from quartermaster.orchestration.joining.foreseeing import memory_of
from quartermaster.orchestration.timings import Timings
from quartermaster.planning.cluster import ClusterKey
from quartermaster.planning.gathering import settings_clusters, settings_of
from quartermaster.planning.health import LOST, READY, SILENT
from quartermaster.planning.matching import home_of
from quartermaster.planning.outcomes import READY as NODE_READY
from quartermaster.resources.kubernetes.core import Lease
from quartermaster.resources.orchestration import Host
from quartermaster.resources.storage import StorageCluster, StorageNode
from quartermaster.stores import Store
from quartermaster.support import clock
from quartermaster.support.errors import ConflictError, NotFoundError

_LISTEN_S = 0.5
# Who leads may have gone with the host: the next one is elected first, and then listens for itself.
_ELECTION_S = 15.0


class Hearing(msgspec.Struct, frozen=True):
    """What is known of a host from here. `ago_s` compares two clocks, so it decides nothing by itself."""

    state: str  # "" where there is no such Host
    ago_s: float | None
    after_s: float  # of silence, it is no longer taken to live

    @property
    def is_late(self) -> bool:
        return self.ago_s is not None and self.ago_s > self.after_s

    @property
    def sentence(self) -> str:
        counts = f"it counts as silent after {self.after_s:g} s"
        if self.ago_s is None:
            return counts
        late = ", and no leader has noticed yet" if self.is_late and self.state == READY else ""
        return f"last heard {self.ago_s:.0f} s ago; {counts}{late}"


async def listen(store: Store, namespace: str, host: str, after_s: float | None = None) -> Hearing:
    """Without a time, the leader's own counts, which is taken to be this host's."""
    if after_s is None:
        settings = read_settings(state_directory())
        after_s = (settings.timings if settings is not None else Timings()).unhealthy_after_s
    try:
        state = (await store.get(Host, host, namespace)).status.state
    except NotFoundError:
        state = ""
    return Hearing(state, await _heard_ago_s(store, namespace, host), after_s)


async def _heard_ago_s(store: Store, namespace: str, host: str) -> float | None:
    try:
        renewed = (await store.get(Lease, heartbeat_name(host), namespace)).spec.renew_time
    except NotFoundError:
        return None
    return max(0.0, clock.wall_time() - clock.parse_timestamp(renewed)) if renewed is not None else None


async def last_heard(store: Store, namespace: str, host: str) -> str:
    """When the host was heard, and how long silence must last."""
    return (await listen(store, namespace, host)).sentence


async def listen_for_node(store: Store, node: StorageNode) -> Hearing:
    """The host of a node, by the times of the node's own cluster."""
    namespace = node.metadata.namespace
    key = ClusterKey(namespace, node.spec.type, home_of(node))
    settings = settings_clusters((await store.list(StorageCluster, namespace)).items).get(key)
    after_s = settings_of(settings, None).unhealthy_after_s if settings is not None else None
    return await listen(store, namespace, node.status.host, after_s)


def is_given_up_by(hearing: Hearing, node: StorageNode) -> bool:
    """Whether the host of the node seems to be gone; who gives it up listens first (`stays_silent`).

    The state of a Host follows the leader's own times. Those of a cluster may be shorter: then its node is not ready
    any more by the leader's word, and the host was not heard for that long.
    """
    if hearing.state in (SILENT, LOST, ""):
        return True
    return hearing.is_late and node.status.state not in ("", NODE_READY)


async def await_word(store: Store, node: StorageNode) -> Hearing:
    """As `listen_for_node`; where the host is late and no leader has said so yet, until one has, or the host is heard,
    or the time is over in which one should have.
    """
    namespace, name, host = node.metadata.namespace, node.metadata.name, node.status.host
    hearing = await listen_for_node(store, node)
    if not hearing.is_late or is_given_up_by(hearing, node):
        return hearing
    before = await _beat(store, namespace, host)
    ends = clock.monotonic() + _ELECTION_S + 2 * hearing.after_s
    with Status("listening") as status:
        while hearing.is_late and not is_given_up_by(hearing, node) and clock.monotonic() < ends:
            status.show(f"no leader has called host {host} silent yet")
            await asyncio.sleep(min(_LISTEN_S, hearing.after_s))
            node = await store.get(StorageNode, name, namespace)
            hearing = await listen_for_node(store, node)
            if await _beat(store, namespace, host) != before:
                return msgspec.structs.replace(hearing, ago_s=0.0)  # by a clock that may differ it is late still
    return hearing


async def stays_silent(store: Store, namespace: str, host: str, hearing: Hearing) -> bool:
    """Whether the host is not heard while somebody listens, for as long as its cluster would.

    Where the leader calls the Host silent its word is enough. Else only clocks say so, and they may differ.
    """
    if hearing.state in (SILENT, LOST, ""):
        return True
    before = await _beat(store, namespace, host)
    ends = clock.monotonic() + hearing.after_s
    with Status("listening") as status:
        while clock.monotonic() < ends:
            status.show(f"is host {host} silent for {hearing.after_s:g} s?")
            await asyncio.sleep(min(_LISTEN_S, hearing.after_s))
            if await _beat(store, namespace, host) != before:
                return False
    return True


async def _beat(store: Store, namespace: str, host: str) -> str:
    try:
        return (await store.get(Lease, heartbeat_name(host), namespace)).metadata.resource_version
    except NotFoundError:
        return ""


async def refuse_needed_host(store: Store, name: str, namespace: str) -> None:
    """ConflictError where a Host is to be deleted that lives, or that storage nodes are on."""
    try:
        host = await store.get(Host, name, namespace)
    except NotFoundError:
        return
    if host.status.state == READY:
        raise ConflictError(
            f"cannot delete host {name}: it lives ({await last_heard(store, namespace, name)})",
            hint="`qm leave` on that host takes it out; --force deletes it all the same, and its agent makes it again",
        )
    nodes = [one.metadata.name for one in (await store.list(StorageNode, namespace)).items if one.status.host == name]
    if nodes:
        raise ConflictError(
            f"cannot delete host {name}: it is the storage node {', '.join(nodes)}",
            hint=f"`qm node remove {nodes[0]} --lost` gives it up first; --force deletes the host all the same",
        )


async def will_return(store: Store, name: str, namespace: str) -> str:
    """How a Host that is deleted may come back, and how it does not."""
    if (await listen(store, namespace, name)).state == READY:
        return f"the agent on {name} lives and makes the Host again; `qm leave` on {name} takes it out for good"
    returns = f"should {name} come back, its agent makes the Host again"
    if await memory_of(store, namespace) is None:
        return returns
    return f"{returns}; after {FORGET_S / 60:.0f} min its certificate opens nothing, and it joins with a new token"
