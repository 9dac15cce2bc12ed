"""What the leader would see and do, found out by somebody who is not the leader: nothing is applied.

The same gathering and the same plans as the leader's. Only of silence it knows less: what the leader wrote into the
state of each Host counts here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from quartermaster.backends.base import Backend
from quartermaster.engine.ownership import list_all
from quartermaster.operators.cluster import agents_of, sharing_of
from quartermaster.operators.ledger import being_made
from quartermaster.operators.memory import read_memory
from quartermaster.planning.cluster import ClusterKey, ClusterPlan, ClusterView, VolumeView
from quartermaster.planning.gathering import Snapshot, clusters_of, views_of
from quartermaster.planning.health import LOST, SILENT, HostState
from quartermaster.planning.readiness import Standing, standing_of
from quartermaster.planning.steps import Work, work_of
from quartermaster.provisioning.intent import find_seal
from quartermaster.provisioning.taken import handed_out_of
from quartermaster.resources.kubernetes.core import Node
from quartermaster.resources.kubernetes.volumes import PersistentVolume, PersistentVolumeClaim
from quartermaster.resources.marks import INTENT
from quartermaster.resources.model import Object
from quartermaster.resources.orchestration import Assignment, Host
from quartermaster.resources.storage import StorageCluster, StorageNode, StorageStatus
from quartermaster.stores.base import Store
from quartermaster.support.errors import ForbiddenError

T = TypeVar("T", bound=Object)


class Prospect(msgspec.Struct, frozen=True):
    """What would become of one cluster."""

    view: ClusterView
    plan: ClusterPlan
    standing: Standing
    work: Work


class WrittenHealth:
    """The health of hosts as the leader wrote it."""

    def __init__(self, hosts: Sequence[Host]) -> None:
        self._states = {host.metadata.name: host.status.state for host in hosts}

    def of(
        self,
        host: str,
        *,
        unhealthy_after_s: float | None = None,  # noqa: ARG002 - the protocol's
        move_data_after_s: float | None = None,  # noqa: ARG002
    ) -> HostState:
        state = self._states.get(host, "")
        return HostState(healthy=state not in (SILENT, LOST), lost=state == LOST)


async def look(
    store: Store, namespace: str, backends: Mapping[str, Backend], changed: Sequence[Object] = ()
) -> Snapshot:
    """The namespace as it is, with `changed` StorageNodes and StorageClusters in place of those that are there."""
    snapshot = Snapshot(
        namespace=namespace,
        nodes=_overlaid(await list_all(store, StorageNode, namespace), changed, StorageNode),
        hosts=await list_all(store, Host, namespace),
        clusters=_overlaid(await list_all(store, StorageCluster, namespace), changed, StorageCluster),
        statuses=await list_all(store, StorageStatus, namespace),
        assignments=await list_all(store, Assignment, namespace),
        volumes=await _volumes(store, namespace),
        more_labels=await _node_labels(store),
        agents=agents_of(backends),
        sharing=sharing_of(backends),
    )
    memories = {key: await read_memory(store, key) for key in clusters_of(snapshot) if key.type in backends}
    return replace(snapshot, memories=memories)


def prospects(snapshot: Snapshot, backends: Mapping[str, Backend]) -> dict[ClusterKey, Prospect]:
    found: dict[ClusterKey, Prospect] = {}
    for key, view in views_of(snapshot, WrittenHealth(snapshot.hosts), tuple(backends)).items():
        plan = backends[key.type].plan(view)
        found[key] = Prospect(view, plan, standing_of(view, plan), work_of(view, plan))
    return found


def _overlaid(there: Sequence[T], changed: Sequence[Object], kind: type[T]) -> list[T]:
    found = {obj.metadata.name: obj for obj in there}
    found.update({obj.metadata.name: obj for obj in changed if isinstance(obj, kind)})
    return [found[name] for name in sorted(found)]


async def _volumes(store: Store, namespace: str) -> dict[ClusterKey, tuple[VolumeView, ...]]:
    """Those that are there, and those that are being made. Claims first: what leaves one meanwhile is a volume then."""
    found: dict[ClusterKey, dict[str, VolumeView]] = {}
    for key, view in await _being_made(store, namespace):
        found.setdefault(key, {})[view.name] = view
    for volume in await list_all(store, PersistentVolume):
        for key, view in handed_out_of(volume):
            if key.namespace == namespace:
                found.setdefault(key, {})[view.name] = view
    return {key: tuple(views.values()) for key, views in found.items()}


async def _being_made(store: Store, namespace: str) -> list[tuple[ClusterKey, VolumeView]]:
    """Who may not read the operator's Secret cannot tell them from what somebody else wrote, and sees none."""
    try:
        claims = [one for one in await list_all(store, PersistentVolumeClaim) if INTENT in one.metadata.annotations]
        seal = await find_seal(store, namespace) if claims else None
    except ForbiddenError:
        return []
    return list(being_made(claims, seal, namespace)) if seal is not None else []


async def _node_labels(store: Store) -> dict[str, dict[str, str]]:
    """Of Kubernetes' own nodes; who may not see them plans without their labels."""
    try:
        return {node.metadata.name: node.metadata.labels for node in await list_all(store, Node)}
    except ForbiddenError:
        return {}
