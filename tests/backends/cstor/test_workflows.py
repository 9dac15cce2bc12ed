"""The workflows of a cStor cluster, from creation to deletion, by the rules alone."""

from itertools import pairwise

import pytest

from quartermaster.backends.cstor import reasons
from quartermaster.backends.cstor.names import STORAGE_UID_LABEL
from quartermaster.resources import from_document, to_document
from quartermaster.resources.agility import (
    CONFIG_UID_ANNOTATION,
    PLAN_UID_ANNOTATION,
    STORAGE_SET_UID_ANNOTATION,
    CStorClusterConfig,
    CStorClusterPlan,
    CStorClusterStorageSet,
    Storage,
)
from quartermaster.resources.kubernetes.core import Node
from quartermaster.resources.kubernetes.volumes import PersistentVolumeClaim, StorageClass, VolumeAttachment
from quartermaster.resources.marks import HOSTNAME_LABEL
from quartermaster.resources.openebs import (
    BlockDevice,
    BlockDeviceClaim,
    CStorPoolCluster,
    CStorPoolInstance,
)
from tests.backends.cstor.clusters import MIRROR, SELECTED, cluster
from tests.backends.cstor.world import OPENEBS, World, config, device, node, replace


def test_a_config_becomes_pools_on_as_many_nodes_as_needed() -> None:
    world = cluster()
    assert world.config.status.phase == reasons.READY
    assert world.planned() == ["n0", "n1", "n2"]
    assert world.config.status.pools is not None
    assert (world.config.status.pools.wanted, world.config.status.pools.ready) == (3, 3)
    assert world.config.status.capacity == "600Gi"
    assert [len(world.groups(host)[0]) for host in world.planned()] == [2, 2, 2]


def test_each_object_names_the_uid_of_what_it_came_from() -> None:
    world = cluster()
    assert world.plan is not None
    assert world.plan.metadata.annotations[CONFIG_UID_ANNOTATION] == world.config.metadata.uid
    sets = world.of(CStorClusterStorageSet)
    assert {s.metadata.annotations[PLAN_UID_ANNOTATION] for s in sets} == {world.plan.metadata.uid}
    uids = {s.metadata.uid for s in sets}
    assert {s.metadata.annotations[STORAGE_SET_UID_ANNOTATION] for s in world.of(Storage)} == uids
    assert all(s.metadata.name.startswith("ccplan-") for s in sets)
    assert all(s.metadata.name.startswith("ccsset-") for s in world.of(Storage))
    assert not any(a.metadata.name.startswith("csi-") for a in world.of(VolumeAttachment))
    assert not any(a.metadata.owner_references for a in world.of(VolumeAttachment))


def test_a_class_that_waits_for_a_consumer_is_told_the_node() -> None:
    waiting = {"metadata": {"name": "fast"}, "provisioner": "csi.example", "volumeBindingMode": "WaitForFirstConsumer"}
    world = World(config(), *(node(f"n{i}") for i in range(3)), from_document(StorageClass, waiting))
    world.settle()
    assert world.config.status.phase == reasons.READY
    for claim in world.of(PersistentVolumeClaim):
        owner = world.get(Storage, claim.metadata.name, "storage")
        assert owner is not None
        assert claim.metadata.annotations["volume.kubernetes.io/selected-node"] == owner.spec.node_name


def test_the_device_of_a_storage_is_labelled_and_noted() -> None:
    world = cluster()
    for storage in world.of(Storage):
        found = world.get(BlockDevice, storage.status.block_device, OPENEBS)
        assert found is not None
        assert found.metadata.labels[STORAGE_UID_LABEL] == storage.metadata.uid
        assert storage.status.block_device_claimed is True


def test_calling_every_hook_again_changes_nothing() -> None:
    world = cluster()
    before, written = dict(world.objects), len(world.applied)
    world.settle()
    assert world.objects == before
    assert len(world.applied) == written == 1


def test_raising_the_most_pools_adds_none() -> None:
    world = cluster(minPoolCount=3, maxPoolCount=3)
    world.change(maxPoolCount=5)
    world.settle()
    assert world.planned() == ["n0", "n1", "n2"]


def test_raising_the_least_pools_adds_them_one_at_a_time() -> None:
    world = cluster(minPoolCount=1, maxPoolCount=5)
    world.change(minPoolCount=3)
    world.settle()
    assert world.planned() == ["n0", "n1", "n2"]
    assert [len(applied.spec.pools) for applied in world.applied] == [1, 2, 3]


def test_lowering_the_most_pools_drops_the_newest_without_volumes() -> None:
    world = cluster(minPoolCount=3, maxPoolCount=3)
    world.volume_on("n2")
    world.change(minPoolCount=1, maxPoolCount=2)
    world.settle()
    assert world.planned() == ["n0", "n2"]
    assert world.pool_cluster is not None
    assert len(world.pool_cluster.spec.pools) == 2
    assert len(world.of(Storage)) == len(world.of(PersistentVolumeClaim)) == len(world.of(VolumeAttachment)) == 4


def test_pools_with_volumes_are_never_dropped() -> None:
    world = cluster(minPoolCount=3, maxPoolCount=3)
    for host in world.planned():
        world.volume_on(host, f"v-{host}")
    world.change(minPoolCount=1, maxPoolCount=1)
    world.settle()
    assert world.planned() == ["n0", "n1", "n2"]
    assert world.condition(reasons.NODE_CHANGE_HELD)[:2] == ("True", reasons.VOLUMES_IN_THE_WAY)


def test_a_node_that_loses_its_label_hands_its_pool_and_disks_to_another() -> None:
    world = cluster(allowedNodes=SELECTED)
    disks = {s.metadata.name for s in world.storages_on("n1")}
    groups = world.groups("n1")
    for host in ("n1", "n2"):
        world.volume_on(host)
    world.relabel("n1", pools=None)
    world.settle()
    assert world.planned() == ["n0", "n4", "n2"]
    assert {s.metadata.name for s in world.storages_on("n4")} == disks
    assert world.groups("n4") == groups
    assert world.config.status.phase == reasons.READY
    assert reasons.POOL_MOVED in world.reasons()


def test_a_selector_that_changes_moves_pools_one_at_a_time() -> None:
    world = cluster(6, allowedNodes=SELECTED)
    for name in ("n3", "n4", "n5"):
        world.relabel(name, pools="new")
    world.change(allowedNodes={"nodeSelectorTerms": [{"matchLabels": {"pools": "new"}}]})
    world.settle()
    assert sorted(world.planned()) == ["n3", "n4", "n5"]
    moved = [{p.node_selector[HOSTNAME_LABEL] for p in applied.spec.pools} for applied in world.applied]
    assert [len(after - before) for before, after in pairwise(moved)] == [1, 1, 1]


def test_a_cordoned_or_unready_node_keeps_its_pool_and_gets_no_new_one() -> None:
    world = cluster()
    world.put(node("n1", zone="z1", cordoned=True))
    world.put(node("n2", zone="z2", ready=False))
    world.settle()
    assert world.planned() == ["n0", "n1", "n2"]
    fresh = World(config(), node("a", cordoned=True), node("b", ready=False), node("c"))
    fresh.settle()
    assert fresh.planned() == ["c"]
    assert fresh.condition(reasons.IS_DEGRADED)[1] == reasons.MISSING_POOLS


def test_a_node_that_is_gone_is_replaced_and_its_disks_move() -> None:
    world = cluster()
    groups = world.groups("n0")
    world.volume_on("n0")
    found = world.get(Node, "n0")
    assert found is not None
    world.remove(found)
    world.settle()
    assert world.planned() == ["n3", "n1", "n2"]
    assert world.groups("n3") == groups
    assert {a.spec.node_name for a in world.of(VolumeAttachment)} == {"n1", "n2", "n3"}
    assert world.config.status.phase == reasons.READY


def test_a_node_made_anew_under_the_old_name_is_another_node() -> None:
    world = cluster(3)
    world.put(node("n0", zone="z0", pools="yes", uid="another"))
    world.settle()
    assert world.plan is not None
    assert next((entry.name, entry.uid) for entry in world.plan.spec.nodes) == ("n0", "another")


def test_disks_move_only_to_nodes_that_can_reach_them() -> None:
    waiting = {"metadata": {"name": "fast"}, "provisioner": "csi.example", "volumeBindingMode": "WaitForFirstConsumer"}
    nodes = [node("a1", zone="a"), node("b1", zone="b"), node("b2", zone="b")]
    world = World(config(minPoolCount=2), *nodes, from_document(StorageClass, waiting))
    world.settle()
    assert world.planned() == ["a1", "b1"]
    world.volume_on("a1")
    world.remove(nodes[0])
    world.settle()
    assert world.planned() == ["a1", "b1"]
    assert world.condition(reasons.NODE_CHANGE_HELD)[1] == reasons.NODE_LOST
    assert "can reach its disks" in world.condition(reasons.NODE_CHANGE_HELD)[2]
    world.put(node("a2", zone="a"))
    world.settle()
    assert world.planned() == ["a2", "b1"]
    assert world.config.status.phase == reasons.READY


def test_no_voluntary_change_while_another_pool_is_not_healthy() -> None:
    world = cluster(allowedNodes=SELECTED)
    world.offline.add("n2")
    world.settle()
    world.relabel("n1", pools=None)
    world.settle()
    assert world.planned() == ["n0", "n1", "n2"]
    assert world.condition(reasons.NODE_CHANGE_HELD)[1] == reasons.OTHER_POOL_UNHEALTHY
    world.offline.clear()
    world.settle()
    assert world.planned() == ["n0", "n4", "n2"]


def test_deletion_waits_for_volumes_and_says_so() -> None:
    world = cluster()
    replica = world.volume_on("n0")
    world.delete(world.config)
    world.settle()
    assert world.config.status.phase == reasons.DELETING
    status, reason, message = world.condition(reasons.DELETION_BLOCKED)
    assert (status, reason) == ("True", reasons.VOLUME_REPLICAS)
    assert replica.metadata.name in message
    assert world.pool_cluster is not None
    world.remove(replica)
    world.settle()
    assert world.of(CStorClusterConfig) == []


def test_deletion_takes_down_in_order() -> None:
    world = cluster()
    world.delete(world.config)
    kinds = (CStorPoolCluster, CStorPoolInstance, BlockDeviceClaim, VolumeAttachment, PersistentVolumeClaim, Storage)
    gone: list[str] = []
    for _ in range(40):
        world.step()
        gone += [kind.__name__ for kind in kinds if kind.__name__ not in gone and not world.of(kind)]
    order = ["CStorPoolCluster", "CStorPoolInstance", "BlockDeviceClaim", "VolumeAttachment", "PersistentVolumeClaim"]
    assert [name for name in gone if name in order] == order
    assert world.of(CStorClusterPlan) == world.of(CStorClusterStorageSet) == world.of(CStorClusterConfig) == []
    assert not any(STORAGE_UID_LABEL in d.metadata.labels for d in world.of(BlockDevice))


@pytest.mark.parametrize("kind", [CStorClusterPlan, CStorClusterStorageSet, Storage])
def test_what_lies_between_cannot_be_deleted_from_under_a_pool(kind: type) -> None:
    world = cluster()
    before = {(s.metadata.name, s.status.block_device) for s in world.of(Storage)}
    for obj in world.of(kind):
        world.delete(obj)
    world.settle()
    assert {(s.metadata.name, s.status.block_device) for s in world.of(Storage)} == before
    assert len(world.applied) == 1
    found = world.of(kind)[0]
    assert found.status.phase == reasons.DELETING
    assert found.status.conditions[0].reason in (reasons.OWNER_WANTS_IT, reasons.IN_USE)


def test_a_pool_cluster_that_exists_is_adopted_and_not_made_again() -> None:
    made = cluster()
    assert made.pool_cluster is not None
    pools = made.pool_cluster
    bare = replace(pools, metadata=replace(pools.metadata, annotations={}))
    names = [name for host in ("n0", "n1", "n2") for name in made.groups(host)[0]]
    devices = [device(name, f"n{number // 2}") for number, name in enumerate(names)]
    world = World(config(), *(node(f"n{i}") for i in range(5)), bare, *devices)
    world.settle()
    assert world.planned() == ["n0", "n1", "n2"]
    assert world.pool_cluster is not None
    assert world.pool_cluster.spec == pools.spec
    assert world.pool_cluster.metadata.annotations[CONFIG_UID_ANNOTATION] == world.config.metadata.uid
    assert world.of(Storage) == []
    assert world.config.status.phase == reasons.READY
    assert reasons.ADOPTED in world.reasons()
    world.delete(world.config)
    world.settle()
    assert world.pool_cluster is None


def test_the_raid_type_of_an_adopted_cluster_holds_where_none_is_declared() -> None:
    made = cluster(poolConfig=MIRROR)
    assert made.pool_cluster is not None
    pools = replace(made.pool_cluster, metadata=replace(made.pool_cluster.metadata, annotations={}))
    names = [name for host in ("n0", "n1", "n2") for name in made.groups(host)[0]]
    devices = [device(name, f"n{number // 2}") for number, name in enumerate(names)]
    world = World(config(), *(node(f"n{i}") for i in range(3)), pools, *devices)
    world.settle()
    effective = world.config.status.effective
    assert effective is not None
    assert effective.pool_config is not None
    assert effective.pool_config.raid_type == "mirror"


def test_a_pool_cluster_of_another_config_is_left_alone() -> None:
    made = cluster()
    assert made.pool_cluster is not None
    annotations = {CONFIG_UID_ANNOTATION: "somebody-else"}
    pools = replace(made.pool_cluster, metadata=replace(made.pool_cluster.metadata, annotations=annotations))
    world = World(config(), *(node(f"n{i}") for i in range(3)), pools)
    world.settle()
    assert world.condition(reasons.POOL_CLUSTER_APPLIED)[1] == reasons.POOL_CLUSTER_FOREIGN
    assert world.pool_cluster == pools
    assert world.of(CStorClusterPlan) == []
    world.delete(world.config)
    world.settle()
    assert world.pool_cluster == pools


def test_pools_that_find_no_node_are_wanted_all_the_same() -> None:
    world = World(config(minPoolCount=3), node("n0"), node("n1"))
    world.settle()
    assert world.config.status.pools is not None
    assert (world.config.status.pools.wanted, world.config.status.pools.ready) == (3, 2)
    assert world.config.status.phase == reasons.DEGRADED
    assert world.config.status.message == "2 of 3 pools have a node; still to be found: 1"


def test_a_class_that_is_not_there_is_told_of_the_whole_cluster() -> None:
    world = World(config(minPoolCount=1), node("n0"))
    for found in world.of(StorageClass):
        world.remove(found)
    world.settle()
    assert world.config.status.message == "0 of 2 disks are active on their nodes; there is no StorageClass fast"
    assert world.config.status.pools is not None
    assert (world.config.status.pools.wanted, world.config.status.pools.ready) == (1, 0)
    assert to_document(world.config)["status"]["pools"] == {"wanted": 1, "ready": 0}


def test_a_spec_with_mistakes_changes_nothing_and_lists_all_of_them() -> None:
    world = cluster()
    before = {key: obj for key, obj in world.objects.items() if key[0] is not CStorClusterConfig}
    world.change(minPoolCount=4, maxPoolCount=2, diskConfig={"minCount": 1}, poolConfig={"raidType": "stripe"})
    world.settle()
    assert {key: obj for key, obj in world.objects.items() if key[0] is not CStorClusterConfig} == before
    status, reason, message = world.condition(reasons.VALID)
    assert (status, reason) == ("False", reasons.SPEC_INVALID)
    assert "minPoolCount" in message
    assert "spec.diskConfig" in message
    assert world.config.status.phase == reasons.INVALID
    assert reasons.SPEC_INVALID in world.reasons()


def test_without_nodes_it_waits_and_says_what_is_missing() -> None:
    world = World(config(allowedNodes=SELECTED), node("n0"))
    world.settle()
    assert world.config.status.phase == reasons.WAITING
    assert "none of 1 nodes fits spec.allowedNodes" in world.condition(reasons.PLANNED)[2]
    assert world.config.status.effective is not None
    assert world.config.status.effective.min_pool_count == 0
    world.relabel("n0", pools="yes")
    world.settle()
    assert world.config.status.phase == reasons.READY


def test_where_no_allowed_node_can_be_chosen_it_says_what_is_in_the_way() -> None:
    nodes = node("a", cordoned=True), node("b", ready=False), node("c", ready=False)
    world = World(config(), *nodes)
    world.settle()
    assert world.condition(reasons.PLANNED) == (
        "False",
        reasons.NO_CANDIDATES,
        "none of 3 allowed nodes can be chosen: it is cordoned (a); it is not ready (b, c)",
    )
    assert world.plan is not None
    assert (world.plan.status.phase, world.plan.status.message) == (reasons.PENDING, "no node is planned")


def test_a_plan_that_exists_is_adopted_and_its_nodes_are_kept() -> None:
    entries = [{"name": name, "uid": f"uid-{name}"} for name in ("n4", "n1", "n3")]
    bare = {"metadata": {"name": "pools", "namespace": "storage", "uid": "older"}, "spec": {"nodes": entries}}
    world = World(config(), *(node(f"n{i}") for i in range(5)), from_document(CStorClusterPlan, bare))
    world.settle()
    assert world.planned() == ["n4", "n1", "n3"]
    assert world.plan is not None
    assert [entry.slot for entry in world.plan.spec.nodes] == [0, 1, 2]
    assert world.plan.metadata.uid == "older"
    assert world.config.status.phase == reasons.READY


def test_nothing_is_taken_down_because_no_node_is_to_be_seen() -> None:
    world = cluster()
    before = {key: obj for key, obj in world.objects.items() if key[0] in (CStorClusterPlan, CStorPoolCluster)}
    for found in world.of(Node):
        world.remove(found)
    world.step()
    assert {key: world.objects.get(key) for key in before} == before
    assert world.condition(reasons.PLANNED)[1] == reasons.NO_CANDIDATES
