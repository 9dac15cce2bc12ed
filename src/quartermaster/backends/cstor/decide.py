"""The whole decision about one cStor cluster: what is known is gathered, then one rule after the other has its say.

    settings   what the declaration means here
    plan       which nodes                       (plan.py)
    repair     which disks are given up          (repair.py)
    expansion  which pool grows                  (expansion.py)
    local      which existing disks are taken    (local.py)
    pools      what the pool cluster should be   (pools.py)
    contract   whether OpenEBS would take it     (contract.py)

Nothing here reads or writes anything; `config_hook` puts the outcome into the form of an answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from quartermaster.backends.cstor.contract import World, check
from quartermaster.backends.cstor.devices import Criteria, criteria_of, tags_of
from quartermaster.backends.cstor.expansion import Growth, expand
from quartermaster.backends.cstor.groups import whole
from quartermaster.backends.cstor.hook import Attachments, SyncRequest
from quartermaster.backends.cstor.inventory import Inventory
from quartermaster.backends.cstor.local import find_write_caches, pick_disks
from quartermaster.backends.cstor.names import STATED_ANNOTATION, openebs_namespace, pool_cluster_name
from quartermaster.backends.cstor.plan import Choice, Ground, choose
from quartermaster.backends.cstor.pools import Formation, form
from quartermaster.backends.cstor.repair import Diagnosis, diagnose
from quartermaster.backends.cstor.settings import Settings, Surroundings, Verdict, judge, terms_of
from quartermaster.backends.cstor.view import DATA, Cluster, Pool, Slot, pools_of, role_of, slot_of, slots_of
from quartermaster.resources.agility import (
    CONFIG_UID_ANNOTATION,
    CStorClusterConfig,
    CStorClusterPlan,
    CStorClusterStorageSet,
    PlanNode,
    Storage,
)
from quartermaster.resources.model import Object, ObjectMeta
from quartermaster.resources.openebs import (
    ALLOWED_TAGS_ANNOTATION,
    POOL_CLUSTER_LABEL,
    BlockDeviceClaim,
    CStorPoolCluster,
    CStorPoolClusterSpec,
    CStorPoolInstance,
    CStorVolumeReplica,
    PoolSpec,
)
from quartermaster.support.errors import Problem


class Gathered(msgspec.Struct, frozen=True):
    """The objects of one cluster. Plan and pool cluster of the right name that belong to another are `foreign`."""

    config: CStorClusterConfig
    inventory: Inventory
    plan: CStorClusterPlan | None
    sets: tuple[CStorClusterStorageSet, ...]
    storages: tuple[Storage, ...]
    pool_cluster: CStorPoolCluster | None
    instances: tuple[CStorPoolInstance, ...]
    pools: tuple[Pool, ...]
    replicas: tuple[str, ...]
    claims: dict[str, BlockDeviceClaim]
    foreign: tuple[Object, ...] = ()

    @property
    def uid(self) -> str:
        return self.config.metadata.uid

    @property
    def namespace(self) -> str:
        return openebs_namespace(self.config)

    @property
    def stated(self) -> tuple[str, ...]:
        """What the pool cluster has of the declaration's poolConfig."""
        annotations = self.pool_cluster.metadata.annotations if self.pool_cluster is not None else {}
        return tuple(filter(None, annotations.get(STATED_ANNOTATION, "").split(",")))


class Decision(msgspec.Struct, frozen=True):
    """What should be, and every reason that was found on the way."""

    settings: Settings
    verdict: Verdict
    choice: Choice
    diagnosis: Diagnosis
    growth: Growth
    formation: Formation
    cluster: Cluster  # with the nodes as they should be
    nodes: tuple[PlanNode, ...]
    pools: tuple[PoolSpec, ...]  # to be applied: the wish where OpenEBS takes it, else what is there
    broken: tuple[Problem, ...] = ()  # why the wish cannot be applied
    adopts: bool = False


def gather(request: SyncRequest) -> Gathered:
    config: CStorClusterConfig = request.watch
    found = request.attachments
    inventory = request.inventory if request.inventory is not None else inventory_of(found)
    uid, namespace = config.metadata.uid, openebs_namespace(config)
    plan = found.get(CStorClusterPlan, config.metadata.namespace, config.metadata.name)
    cluster = found.get(CStorPoolCluster, namespace, pool_cluster_name(config))
    foreign = tuple(obj for obj in (plan, cluster) if obj is not None and _belongs_to_another(obj, uid))
    if plan in foreign:
        plan = None
    instances = tuple(i for i in found.of(CStorPoolInstance) if i.metadata.namespace == namespace)
    pools, replicas = pools_of(cluster, instances, found.of(CStorVolumeReplica), inventory)
    name = pool_cluster_name(config)
    return Gathered(
        config=config,
        inventory=inventory,
        plan=plan,
        sets=tuple(s for s in found.of(CStorClusterStorageSet) if is_of(s, uid)),
        storages=tuple(s for s in found.of(Storage) if is_of(s, uid)),
        pool_cluster=cluster,
        instances=tuple(i for i in instances if i.metadata.labels.get(POOL_CLUSTER_LABEL) == name),
        pools=pools,
        replicas=replicas,
        claims={
            claim.spec.block_device_name: claim
            for claim in found.of(BlockDeviceClaim)
            if claim.metadata.labels.get(POOL_CLUSTER_LABEL) == name and claim.metadata.namespace == namespace
        },
        foreign=foreign,
    )


def inventory_of(attachments: Attachments) -> Inventory:
    """For a caller that keeps none."""
    return Inventory(attachments.everything())


def is_of(obj: Object, config_uid: str) -> bool:
    return obj.metadata.annotations.get(CONFIG_UID_ANNOTATION) == config_uid


def _belongs_to_another(obj: Object, uid: str) -> bool:
    return obj.metadata.annotations.get(CONFIG_UID_ANNOTATION, uid) != uid


def judged(gathered: Gathered) -> Verdict:
    """What the declaration means, given the nodes and the pool cluster that are there."""
    spec = gathered.config.spec
    declared = spec.pool_config.raid_type if spec.pool_config is not None else ""
    # An adopted cluster may have pools of several types. New ones are like those of the declared type, if there are.
    model = next((pool for pool in gathered.pools if pool.raid_type == declared), None)
    if model is None and gathered.pools:
        model = gathered.pools[0]
    return judge(
        spec,
        Surroundings(
            allowed_nodes=len(gathered.inventory.allowed(terms_of(spec))),
            cluster_nodes=len(gathered.inventory.nodes),
            raid_type=model.raid_type if model is not None else "",
            made_disks=any(role_of(storage) == DATA for storage in gathered.storages),
            group_size=model.group_size if model is not None else 0,
            settled_pools=_settled_pools(gathered),
        ),
    )


def _settled_pools(gathered: Gathered) -> int:
    """The least number of pools by which it was planned before; 0 where nothing was."""
    if gathered.plan is None:
        return 0
    effective = gathered.config.status.effective
    before = effective.min_pool_count if effective is not None else None
    return max(before or 0, len(gathered.plan.spec.nodes))


def criteria_for(gathered: Gathered, settings: Settings) -> Criteria:
    """What disks that exist already must be like."""
    local = settings.local
    return criteria_of(
        gathered.namespace,
        gathered.uid,
        settings.least_bytes,
        local.block_device_selector if local is not None else None,
        tags_of(gathered.config.metadata.annotations.get(ALLOWED_TAGS_ANNOTATION, "")),
    )


def ground_for(gathered: Gathered, settings: Settings, surplus: int, planned: Iterable[int]) -> Ground:
    taken = {slot_of(storage) for storage in gathered.storages} | {slot_of(s) for s in gathered.sets}
    return Ground(
        settings=settings,
        inventory=gathered.inventory,
        criteria=criteria_for(gathered, settings) if settings.local is not None else None,
        formed=gathered.pool_cluster is not None,
        surplus=surplus,
        reserved=frozenset(taken - set(planned)),
    )


def decide(gathered: Gathered, verdict: Verdict, now: str) -> Decision:
    """All rules in their order. `verdict` has settings."""
    settings = verdict.settings
    if settings is None:
        raise ValueError("a spec with problems has no settings to decide by")
    adopts = gathered.plan is None and bool(gathered.pools)
    observed = adopted_nodes(gathered) if adopts else gathered.plan.spec.nodes if gathered.plan is not None else ()
    cluster = _cluster(gathered, observed)
    ground = ground_for(gathered, settings, len(cluster.surplus), (slot.number for slot in cluster.slots))
    choice = choose(cluster.slots, ground)
    cluster = _replanned(gathered, cluster, choice.nodes)
    cluster = _replanned(gathered, cluster, tuple(_with_least_disks(slot, settings) for slot in cluster.slots))
    criteria = criteria_for(gathered, settings)
    diagnosis = diagnose(cluster, settings, gathered.config.status.missing_devices, now, criteria)
    cluster = _replanned(gathered, cluster, diagnosis.nodes)
    growth = expand(cluster.slots, settings, _free_disks(cluster, criteria) if settings.local is not None else None)
    if growth.node is not None:
        grown = growth.node
        nodes = tuple(grown if slot.number == grown.slot else slot.node for slot in cluster.slots)
        cluster = _replanned(gathered, cluster, nodes)
    if settings.local is not None:
        cluster = _replanned(gathered, cluster, pick_disks(cluster, criteria))
    cluster = _replanned(gathered, cluster, find_write_caches(cluster, settings, criteria))
    formation = form(cluster, settings, gathered.stated)
    pools, broken = _permitted(gathered, formation)
    return Decision(
        settings=settings,
        verdict=verdict,
        choice=choice,
        diagnosis=diagnosis,
        growth=growth,
        formation=formation,
        cluster=cluster,
        nodes=tuple(slot.node for slot in cluster.slots),
        pools=pools,
        broken=broken,
        adopts=adopts,
    )


def _cluster(gathered: Gathered, nodes: Sequence[PlanNode]) -> Cluster:
    slots = slots_of(
        nodes,
        gathered.sets,
        gathered.storages,
        gathered.pools,
        gathered.inventory,
        namespace=gathered.namespace,
        config_uid=gathered.uid,
    )
    return Cluster(
        namespace=gathered.namespace,
        inventory=gathered.inventory,
        pool_cluster=gathered.pool_cluster,
        pools=gathered.pools,
        slots=slots,
        claims=gathered.claims,
        replicas=gathered.replicas,
    )


def _replanned(gathered: Gathered, cluster: Cluster, nodes: tuple[PlanNode, ...]) -> Cluster:
    if nodes == tuple(slot.node for slot in cluster.slots):
        return cluster
    return _cluster(gathered, nodes)


def _with_least_disks(slot: Slot, settings: Settings) -> PlanNode:
    """A minCount that was raised applies to the pools that exist; one that was lowered takes nothing away.

    The default is for new pools: one that is adopted with fewer disks stays as it is, for what is added to a pool can
    never be taken out again.
    """
    node, pool = slot.node, slot.pool
    if pool is None:
        least = settings.disks
    else:
        least = whole(settings.declared_disks or len(pool.data_devices), pool.group_size)
    return node if (node.disks or 0) >= least else msgspec.structs.replace(node, disks=least)


def _free_disks(cluster: Cluster, criteria: Criteria) -> dict[int, int]:
    return {slot.number: cluster.inventory.free_on(slot.host, criteria) for slot in cluster.slots if slot.host}


def adopted_nodes(gathered: Gathered) -> tuple[PlanNode, ...]:
    """The plan that a pool cluster without one amounts to. Disks that no Storage stands for are taken as they are."""
    owner = {s.status.block_device: slot_of(s) for s in gathered.storages if s.status.block_device}
    used: set[int] = set()
    nodes = []
    for pool in gathered.pools:
        known = next((owner[name] for name in pool.devices if owner.get(name, -1) >= 0), None)
        number = known if known is not None and known not in used else _least_unused(used | set(owner.values()))
        used.add(number)
        found = gathered.inventory.on_hostname(pool.host)
        nodes.append(
            PlanNode(
                name=found[0].name if found else pool.host or f"unknown-{number}",
                uid=found[0].uid if found else "",
                slot=number,
                disks=len(pool.data_devices),
                block_devices=tuple(name for name in pool.data_devices if name not in owner),
                write_cache=tuple(name for group in pool.cache for name in group if name not in owner),
            )
        )
    return tuple(nodes)


def _least_unused(used: set[int]) -> int:
    return next(number for number in range(len(used) + 1) if number not in used)


def _permitted(gathered: Gathered, formation: Formation) -> tuple[tuple[PoolSpec, ...], tuple[Problem, ...]]:
    """What may be applied now. A new pool cluster waits until every planned node has its disks."""
    old = gathered.pool_cluster
    present = old.spec.pools if old is not None else ()
    wanted = formation.pools
    if not wanted:
        return (), ()  # no pool is planned, and none that stands holds anything
    if wanted == present or (old is None and formation.waiting):
        return present, ()
    new = pool_cluster_of(gathered.config, old, wanted)
    replicas = {pool.host: pool.replicas for pool in gathered.pools}
    world = World(gathered.inventory, gathered.namespace, gathered.claims, replicas)
    problems = check(new, old, world)
    return (present, tuple(problems)) if problems else (wanted, ())


def pool_cluster_of(
    config: CStorClusterConfig, old: CStorPoolCluster | None, pools: tuple[PoolSpec, ...]
) -> CStorPoolCluster:
    tags = config.metadata.annotations.get(ALLOWED_TAGS_ANNOTATION)
    annotations = dict(old.metadata.annotations) if old is not None else {}
    if tags is not None:
        annotations[ALLOWED_TAGS_ANNOTATION] = tags
    metadata = ObjectMeta(name=pool_cluster_name(config), namespace=openebs_namespace(config), annotations=annotations)
    if old is None:
        return CStorPoolCluster(metadata=metadata, spec=CStorPoolClusterSpec(pools=pools))
    return msgspec.structs.replace(old, metadata=metadata, spec=msgspec.structs.replace(old.spec, pools=pools))
