"""Disks of a cStor cluster that are lost, replaced, added or there already, by the rules alone."""

import pytest

from quartermaster.backends.cstor import HOOKS, reasons
from quartermaster.backends.cstor.names import REPLACE_ANNOTATION
from quartermaster.resources.agility import (
    CStorClusterConfig,
    CStorClusterStorageSet,
    Storage,
)
from quartermaster.resources.openebs import (
    BlockDevice,
    CStorPoolCluster,
    CStorPoolInstance,
)
from tests.backends.cstor.clusters import LOCAL, MIRROR, cluster, local_world, lose
from tests.backends.cstor.world import config, device, external, replace


def test_a_lost_disk_is_replaced_in_its_place() -> None:
    world = cluster(poolConfig=MIRROR)
    [[first, second]] = world.groups("n0")
    lose(world, first)
    [[new, kept]] = world.groups("n0")
    assert kept == second
    assert new not in (first, second)
    assert world.config.status.phase == reasons.READY
    assert first not in {s.status.block_device for s in world.of(Storage)}


def test_a_disk_is_not_given_up_before_its_time() -> None:
    world = cluster(poolConfig=MIRROR)
    [[first, second]] = world.groups("n0")
    world.dead.add(first)
    world.settle()
    assert world.condition(reasons.DISK_LOST)[1] == reasons.GRACE_PERIOD
    assert [m.name for m in world.config.status.missing_devices] == [first]
    world.dead.clear()
    for found in world.of(BlockDevice):
        world.put(replace(found, status=replace(found.status, state="Active")))
    world.settle()
    assert world.groups("n0") == [[first, second]]
    assert world.config.status.missing_devices == ()


@pytest.mark.slow
def test_disks_lost_in_several_groups_are_replaced_in_one_update() -> None:
    world = cluster(poolConfig=MIRROR, diskConfig=external(minCount=4))
    before = len(world.applied)
    groups = world.groups("n0")
    other = world.groups("n1")
    lose(world, groups[0][0], groups[1][1], other[0][0])
    assert len(world.applied) == before + 1
    after = world.groups("n0")
    assert (after[0][1], after[1][0]) == (groups[0][1], groups[1][0])
    assert after[0][0] != groups[0][0]
    assert after[1][1] != groups[1][1]
    assert world.config.status.phase == reasons.READY


def test_two_lost_in_one_group_cannot_be_mended_and_it_is_said() -> None:
    world = cluster(poolConfig=MIRROR)
    groups = world.groups("n0")
    lose(world, *groups[0])
    assert world.groups("n0") == groups
    assert world.condition(reasons.DISK_LOST)[:2] == ("True", reasons.GROUP_LOST)
    assert world.config.status.phase == reasons.DEGRADED


def test_a_disk_lost_from_a_stripe_is_not_replaced() -> None:
    world = cluster()
    groups = world.groups("n0")
    lose(world, groups[0][0])
    assert world.groups("n0") == groups
    assert world.condition(reasons.DISK_LOST)[1] == reasons.STRIPE_LOST


def test_a_spare_takes_the_place_of_a_lost_disk_at_once() -> None:
    world = cluster(poolConfig={**MIRROR, "spare": True})
    spare = next(s for s in world.storages_on("n0") if s.metadata.annotations["dao.mayadata.io/role"] == "spare")
    [[first, second]] = world.groups("n0")
    world.broken_attach.add("n0")
    lose(world, first)
    assert world.groups("n0") == [[spare.status.block_device, second]]
    assert world.condition(reasons.BEYOND_OPENEBS)[1] == reasons.SPARE_HELD


def test_a_storage_can_ask_to_be_replaced() -> None:
    world = cluster(poolConfig=MIRROR)
    [[first, second]] = world.groups("n0")
    asking = next(s for s in world.of(Storage) if s.status.block_device == first)
    annotations = {**asking.metadata.annotations, REPLACE_ANNOTATION: "true"}
    world.put(replace(asking, metadata=replace(asking.metadata, annotations=annotations)))
    world.settle()
    [[new, kept]] = world.groups("n0")
    assert kept == second
    assert new != first


def test_a_larger_capacity_applies_to_new_disks_and_is_offered_for_old_ones() -> None:
    world = cluster(poolConfig=MIRROR)
    world.change(diskConfig=external(minCapacity="200Gi"))
    world.settle()
    assert {s.spec.capacity for s in world.of(Storage)} == {"100Gi"}
    status, reason, message = world.condition(reasons.REPLACEMENT_OFFERED)
    assert (status, reason) == ("True", reasons.DISKS_SMALLER)
    assert "dao.mayadata.io/replace=true" in message
    first = world.groups("n0")[0][0]
    lose(world, first)
    assert sorted(s.spec.capacity for s in world.storages_on("n0")) == ["100Gi", "200Gi"]


@pytest.mark.slow
@pytest.mark.parametrize(("raid", "before", "after"), [("stripe", [2], [3]), ("mirror", [2], [2, 2])])
def test_a_pool_that_fills_up_grows_by_the_least_that_is_legal(raid: str, before: list[int], after: list[int]) -> None:
    world = cluster(poolConfig={"raidType": raid})
    groups = world.groups("n1")
    whole = 200 if raid == "stripe" else 100
    world.used["n1"] = whole * 79 // 100
    world.settle()
    assert [len(group) for group in world.groups("n1")] == before
    world.used["n1"] = whole * 81 // 100
    world.settle()
    assert [len(group) for group in world.groups("n1")] == after
    assert world.groups("n1")[0][:2] == groups[0]
    assert [len(group) for group in world.groups("n0")] == before
    assert reasons.EXPANDED in world.reasons()


def test_a_pool_does_not_grow_twice_for_the_same_use() -> None:
    world = cluster(poolConfig=MIRROR)
    world.used["n1"] = 90
    for _ in range(20):
        for instance in world.of(CStorPoolInstance):
            # OpenEBS reports late: what the pool can hold is still what it was.
            capacity = replace(instance.status.capacity, total="100Gi", used="90Gi")
            world.put(replace(instance, status=replace(instance.status, capacity=capacity)))
        for hook in HOOKS:
            for watch in list(world.of(hook.watch)):
                world.call(hook, watch)
        world._bind()
        world._attach()
        world._discover()
    assert len(world.groups("n1")) == 2


def test_expansion_can_be_disabled_and_limited() -> None:
    world = cluster(poolConfig={**MIRROR, "poolExpansion": {"disable": True}})
    world.used["n0"] = 95
    world.settle()
    assert len(world.groups("n0")) == 1
    assert world.condition(reasons.EXPANDING)[1] == reasons.EXPANSION_DISABLED
    world.change(poolConfig={**MIRROR, "poolExpansion": {"maxGroups": 1}})
    world.settle()
    assert len(world.groups("n0")) == 1
    assert world.condition(reasons.EXPANDING)[1] == reasons.EXPANSION_LIMIT


def test_existing_disks_become_pools_without_any_being_made() -> None:
    world = local_world(poolConfig=MIRROR)
    world.settle()
    assert world.config.status.phase == reasons.READY
    assert world.groups("n0") == [["disk-0-0", "disk-0-1"]]
    assert world.of(Storage) == world.of(CStorClusterStorageSet) == []


def test_a_lost_existing_disk_is_followed_by_a_free_one() -> None:
    world = local_world(poolConfig=MIRROR)
    world.settle()
    lose(world, "disk-0-1")
    assert world.groups("n0") == [["disk-0-0", "disk-0-2"]]
    lose(world, "disk-0-0")
    assert world.groups("n0") == [["disk-0-0", "disk-0-2"]]
    assert world.condition(reasons.DISK_LOST)[1] == reasons.NO_REPLACEMENT


def test_existing_disks_go_to_the_nodes_that_have_most() -> None:
    world = local_world(disks=1, nodes=4, minPoolCount=1)
    world.put(device("more", "n2", labels={"use": "pools"}))
    world.settle()
    assert world.planned() == ["n2"]


def test_existing_disks_cannot_move_with_their_volumes() -> None:
    world = local_world(
        nodes=4,
        allowedNodes={"nodeSelectorTerms": [{"matchExpressions": [{"key": "gone", "operator": "DoesNotExist"}]}]},
    )
    world.settle()
    world.volume_on("n0")
    world.relabel("n0", gone="yes")
    world.settle()
    assert "n0" in world.planned()
    assert "cannot move" in world.condition(reasons.NODE_CHANGE_HELD)[2]


def test_a_free_faster_disk_becomes_the_write_cache_and_the_plan_says_so() -> None:
    world = local_world(disks=2)
    world.put(device("ssd-0", "n0", drive="SSD", labels={"use": "pools"}))
    world.settle()
    assert world.plan is not None
    assert world.plan.spec.nodes[0].write_cache == ("ssd-0",)
    assert world.pool_cluster is not None
    pool = world.pool_cluster.spec.pools[0]
    assert [d.block_device_name for d in pool.write_cache_raid_groups[0].block_devices] == ["ssd-0"]
    assert pool.pool_config.write_cache_group_type == "stripe"
    assert reasons.WRITE_CACHE_FOUND in world.reasons()


def test_a_declared_write_cache_is_made_and_handed_over_and_a_read_cache_is_kept() -> None:
    cache = {"csiAttacherName": "csi.example", "storageClassName": "fast", "capacity": "10Gi"}
    world = cluster(3, poolConfig={**MIRROR, "writeCache": cache, "readCache": cache})
    assert world.config.status.phase == reasons.READY
    assert world.pool_cluster is not None
    assert all(len(p.write_cache_raid_groups[0].block_devices) == 1 for p in world.pool_cluster.spec.pools)
    assert len(world.of(Storage)) == 3 * 4
    assert world.condition(reasons.BEYOND_OPENEBS)[1] == reasons.READ_CACHE_UNUSED


def test_two_clusters_do_not_take_the_same_disk() -> None:
    world = local_world(disks=2, minPoolCount=3)
    other = config("other", diskConfig=LOCAL, minPoolCount=3)
    world.put(other)
    world.settle()
    used = [
        d.block_device_name
        for c in world.of(CStorPoolCluster)
        for p in c.spec.pools
        for g in p.data_raid_groups
        for d in g.block_devices
    ]
    assert len(used) == len(set(used)) == 6
    phases = {c.metadata.name: c.status.phase for c in world.of(CStorClusterConfig)}
    assert sorted(phases.values()) == [reasons.READY, reasons.WAITING]
