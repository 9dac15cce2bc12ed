"""How a host is taken out of its cluster: nothing of value may be on it any more, and etcd must do without it.

The host says so on its own Host object; the leader moves its member of etcd elsewhere; then the host removes what is
its own from the store, and the leader takes its rights away.
"""

from __future__ import annotations

from contextlib import suppress

from msgspec.structs import replace

from quartermaster.backends.etcd.agent import AGENT as ETCD
from quartermaster.backends.etcd.files import CERTIFICATES
from quartermaster.backends.etcd.memory import Memory
from quartermaster.orchestration.heartbeat import heartbeat_name
from quartermaster.orchestration.joining.foreseeing import memory_of, next_change
from quartermaster.resources.kubernetes.core import Lease
from quartermaster.resources.marks import LEAVING
from quartermaster.resources.mounts import Mount
from quartermaster.resources.orchestration import Assignment, Host
from quartermaster.resources.storage import StorageNode
from quartermaster.stores.base import Store
from quartermaster.stores.modify import modify
from quartermaster.support import clock
from quartermaster.support.errors import NotFoundError


async def reasons_to_stay(store: Store, host: str, namespace: str) -> list[str]:
    """Why the host cannot leave, each with what to do about it; none when it can."""
    reasons = []
    nodes = [node for node in (await store.list(StorageNode, namespace)).items if node.status.host == host]
    for node in nodes:
        name = node.metadata.name
        reasons.append(f"it is the storage node {name}: move its data away with `qm node remove {name}`")
    found = (await store.list(Assignment, namespace, fields=f"spec.host={host}")).items
    services = sorted({one.spec.agent for one in found if not one.spec.absent} - {ETCD, CERTIFICATES})
    if services and not nodes:
        reasons.append(f"services still run on it: {', '.join(services)}")
    for mount in (await store.list(Mount, namespace, fields=f"spec.host={host}")).items:
        claim, path = mount.spec.claim.name, mount.spec.path
        reasons.append(f"it uses the volume of {claim} at {path}: `qm volume unmount {path}` releases it")
    hosts = (await store.list(Host, namespace)).items
    if reason := _of_quorum(await memory_of(store, namespace), hosts, host):
        reasons.append(reason)
    return reasons


async def announce(store: Store, host: str, namespace: str, *, leaving: bool) -> None:
    """Say that the host is leaving, or that it stays after all."""

    def marked(found: Host) -> Host:
        rest = {name: value for name, value in found.metadata.annotations.items() if name != LEAVING}
        kept = found.metadata.annotations.get(LEAVING) or clock.timestamp()
        annotations = {**rest, LEAVING: kept} if leaving else rest
        return replace(found, metadata=replace(found.metadata, annotations=annotations))

    await modify(store, Host, host, namespace, marked)


async def what_is_left(store: Store, host: str, namespace: str) -> str:
    """What the leader has yet to do before the host can go; "" when nothing is."""
    memory = await memory_of(store, namespace)
    seat = memory.at(host) if memory is not None else None
    if seat is None:
        return ""
    if seat.phase == "removing":
        return f"its member of etcd, {seat.id}, is being removed"
    return f"its member of etcd, {seat.id}, has to move to another host"


async def forget(store: Store, host: str, namespace: str) -> None:
    """Remove what is the host's own. Its agent must not run any more: it would register again."""
    for one in (await store.list(Assignment, namespace, fields=f"spec.host={host}")).items:
        with suppress(NotFoundError):
            await store.delete(Assignment, one.metadata.name, namespace)
    with suppress(NotFoundError):
        await store.delete(Lease, heartbeat_name(host), namespace)
    with suppress(NotFoundError):
        await store.delete(Host, host, namespace)


def _of_quorum(memory: Memory | None, hosts: tuple[Host, ...], leaving: str) -> str:
    """What the leader would say: the same rules, on what can be seen from here."""
    seat = memory.at(leaving) if memory is not None else None
    if memory is None or seat is None or seat.phase != "serving":
        return ""  # one that has no vote yet is taken back
    if len(hosts) <= 1:
        return "it is the last host, and the store is on it: `qm down` stops it, and the data stay"
    decision = next_change(memory, hosts, leaving=leaving)
    return "" if decision.move is not None else f"etcd cannot do without it: {decision.why}"
