"""What must never happen to disks that hold data, and to disks that are not ours."""

from typing import Any

import pytest

from quartermaster.backends.cstor import reasons
from quartermaster.backends.cstor.hooks import CONFIG_HOOK, STORAGE_HOOK
from quartermaster.backends.cstor.names import REPLACE_ANNOTATION
from quartermaster.resources import from_document, to_document
from quartermaster.resources.admission import validate
from quartermaster.resources.agility import ATTACHER_ANNOTATION, CStorClusterConfig, Storage
from quartermaster.resources.kubernetes.core import Node, ObjectReference
from quartermaster.resources.kubernetes.volumes import PersistentVolume, PersistentVolumeClaim, VolumeAttachment
from quartermaster.resources.openebs import BlockDevice, CStorPoolCluster, CStorPoolInstance, CStorVolumeReplica
from tests.backends.cstor.clusters import MIRROR, SELECTED, cluster, local_world, lose
from tests.backends.cstor.world import OPENEBS, World, config, device, external, node, replace


def annotate(world: World, storage: Storage, **changes: str | None) -> Storage:
    annotations = {**storage.metadata.annotations, **changes}
    kept = {key: value for key, value in annotations.items() if value is not None}
    return world.put(replace(storage, metadata=replace(storage.metadata, annotations=kept)))


def attachments(world: World) -> dict[str, str]:
    """Where each volume is attached."""
    return {a.spec.source.persistent_volume_name: a.spec.node_name for a in world.of(VolumeAttachment)}


def test_a_fast_disk_that_was_not_selected_is_not_taken_for_a_write_cache() -> None:
    world = local_world(disks=2)
    world.put(device("private", "n0", drive="SSD"))
    world.settle()
    assert world.config.status.phase == reasons.READY
    assert world.plan is not None
    assert all(entry.write_cache == () for entry in world.plan.spec.nodes)
    untouched = world.get(BlockDevice, "private", OPENEBS)
    assert untouched == device("private", "n0", drive="SSD")


def test_a_node_written_into_a_storage_detaches_nothing() -> None:
    world = cluster()
    before = attachments(world)
    moved = world.storages_on("n0")[0]
    moved = world.put(replace(moved, spec=replace(moved.spec, node_name="n4")))
    world.call(STORAGE_HOOK, moved)
    assert attachments(world) == before
    told = world.get(Storage, moved.metadata.name, "storage")
    assert told is not None
    assert told.status.conditions[0].reason == reasons.OWNER_WANTS_IT
    world.settle()
    assert attachments(world) == before
    assert world.config.status.phase == reasons.READY


def test_a_storage_whose_settings_are_lost_keeps_its_claim_and_its_attachment() -> None:
    world = cluster()
    before = attachments(world), [c.metadata.uid for c in world.of(PersistentVolumeClaim)]
    world.call(STORAGE_HOOK, annotate(world, world.storages_on("n0")[0], **{ATTACHER_ANNOTATION: None}))
    assert (attachments(world), [c.metadata.uid for c in world.of(PersistentVolumeClaim)]) == before
    world.settle()
    assert world.config.status.phase == reasons.READY


def test_a_disk_of_a_pool_stays_attached_when_its_claim_is_deleted() -> None:
    world = cluster()
    before = attachments(world)
    storage = world.storages_on("n0")[0]
    claim = world.get(PersistentVolumeClaim, storage.metadata.name, "storage")
    assert claim is not None
    world.remove(claim)
    world.call(STORAGE_HOOK, storage)
    assert attachments(world) == before


def test_a_pool_with_the_only_healthy_copy_of_a_volume_does_not_leave_its_node() -> None:
    world = cluster(allowedNodes=SELECTED)
    world.volume_on("n1")
    world.volume_on("n2", phase="Degraded")
    world.relabel("n1", pools=None)
    world.settle()
    assert world.planned() == ["n0", "n1", "n2"]
    status, reason, message = world.condition(reasons.NODE_CHANGE_HELD)
    assert (status, reason) == ("True", reasons.LAST_HEALTHY_COPY)
    assert "no pool that stays has a healthy copy of volume" in message
    world.volume_on("n2", phase="Healthy")
    world.settle()
    assert world.planned() == ["n0", "n4", "n2"]
    assert world.config.status.phase == reasons.READY


def test_a_copy_in_a_pool_that_moves_itself_does_not_count() -> None:
    world = cluster(6, allowedNodes=SELECTED, maxNodeChanges=3)
    for host in ("n1", "n2"):
        world.volume_on(host)
        world.relabel(host, pools=None)
    world.step()
    leaving = [name for name in ("n1", "n2") if name not in world.planned()]
    assert len(leaving) == 1
    world.settle()
    assert {"n1", "n2"}.isdisjoint(world.planned())


def test_a_pool_does_not_leave_the_node_of_which_its_write_cache_is_a_part() -> None:
    world = World(config(allowedNodes=SELECTED), *(node(f"n{i}", pools="yes") for i in range(4)))
    world.put(device("ssd", "n0", drive="SSD"))
    world.settle()
    assert world.plan is not None
    assert world.plan.spec.nodes[0].write_cache == ("ssd",)
    before = attachments(world)
    for host in ("n0", "n1"):
        world.volume_on(host)
    world.relabel("n0", pools=None)
    world.settle()
    assert attachments(world) == before
    assert world.condition(reasons.NODE_CHANGE_HELD)[1] == reasons.NODE_NOT_ALLOWED
    assert "cannot move" in world.condition(reasons.NODE_CHANGE_HELD)[2]


@pytest.mark.parametrize("known", [True, False])
def test_a_copy_of_which_no_volume_is_known_counts_as_the_only_one(known: bool) -> None:
    world = cluster(allowedNodes=SELECTED)
    copies = [world.volume_on(host) for host in ("n1", "n2")]
    for copy in copies:
        if known:
            labels = {k: v for k, v in copy.metadata.labels.items() if not k.startswith("cstorvolume")}
            world.put(replace(copy, metadata=replace(copy.metadata, labels=labels)))
        else:
            world.remove(copy)
            report(world, 1)
    world.relabel("n1", pools=None)
    world.call(CONFIG_HOOK, world.config)
    assert world.planned() == ["n0", "n1", "n2"]
    assert world.condition(reasons.NODE_CHANGE_HELD)[1] == reasons.LAST_HEALTHY_COPY


def report(world: World, replicas: int) -> None:
    """What OpenEBS says of its pools."""
    for instance in world.of(CStorPoolInstance):
        world.put(replace(instance, status=replace(instance.status, provisioned_replicas=replicas)))


def test_a_pool_leaves_its_node_only_after_a_second_look_at_nodes_and_replicas() -> None:
    world = cluster(allowedNodes=SELECTED)
    assert not world.call(CONFIG_HOOK, world.config).irreversible
    world.relabel("n1", pools=None)
    assert world.call(CONFIG_HOOK, world.config).irreversible
    looked_at = [rule.confirm(world.config) for rule in CONFIG_HOOK.attachments if rule.kind is Node and rule.confirm]
    assert [look is not None and look.covers(node("any")) for look in looked_at] == [True]
    assert any(rule.kind is CStorVolumeReplica and rule.confirm is not None for rule in CONFIG_HOOK.attachments)


def test_the_pool_of_a_node_that_is_gone_moves_with_the_only_copy() -> None:
    world = cluster()
    world.volume_on("n0")
    world.remove(world.get(Node, "n0") or node("n0"))
    world.settle()
    assert "n0" not in world.planned()
    assert world.config.status.phase == reasons.READY


def test_deletion_waits_for_copies_that_only_openebs_counts() -> None:
    world = cluster()
    world.delete(world.config)
    report(world, 2)
    world.call(CONFIG_HOOK, world.config)
    assert world.pool_cluster is not None
    status, reason, message = world.condition(reasons.DELETION_BLOCKED)
    assert (status, reason) == ("True", reasons.VOLUME_REPLICAS)
    assert "volume replicas are left, 6 in all" in message
    world.settle()
    assert world.of(CStorClusterConfig) == []


def affine(world: World, host: str, term: dict[str, Any]) -> None:
    """The volumes on that host can be reached as the term says."""
    for storage in world.storages_on(host):
        volume = world.get(PersistentVolume, storage.status.persistent_volume)
        assert volume is not None
        spec = {
            "csi": {"driver": "csi.example", "volumeHandle": f"disks/{volume.metadata.name}"},
            "capacity": dict(volume.spec.capacity),
            "claimRef": {"namespace": "storage", "name": storage.metadata.name},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        }
        world.put(from_document(PersistentVolume, {"metadata": {"name": volume.metadata.name}, "spec": spec}))
    world.settle()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("term", "target"),
    [
        ({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n0"]}]}, None),
        ({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n0", "n4"]}]}, "n4"),
        ({"matchFields": [{"key": "spec.providerID", "operator": "In", "values": ["x"]}]}, None),
        ({}, None),
        ({"matchExpressions": [{"key": "rack", "operator": "Gt", "values": ["3"]}]}, "n4"),
        ({"matchExpressions": [{"key": "rack", "operator": "Lt", "values": ["3"]}]}, None),
    ],
)
def test_a_disk_moves_only_to_a_node_that_its_volume_names(term: dict[str, Any], target: str | None) -> None:
    world = cluster()
    world.relabel("n4", rack="4")
    affine(world, "n0", term)
    assert [problem for storage in world.storages_on("n0") for problem in validate(to_document(storage))] == []
    world.volume_on("n0")
    world.remove(world.get(Node, "n0") or node("n0"))
    world.settle()
    assert world.planned()[0] == (target or "n0")
    if target is None:
        assert world.condition(reasons.NODE_CHANGE_HELD)[1] == reasons.NODE_LOST
        assert "can reach its disks" in world.condition(reasons.NODE_CHANGE_HELD)[2]


Groups = list[list[str]]


def existing(*pools: tuple[str, str, Groups], cache: Groups | None = None, **more: Any) -> World:
    """A pool cluster that is there already: (host, type, groups), each with nodes, disks and a mirrored cache."""
    cached = {"writeCacheRaidGroups": _groups(cache)} if cache else {}
    specs = [
        {
            "nodeSelector": {"kubernetes.io/hostname": host},
            "dataRaidGroups": _groups(groups),
            "poolConfig": {"dataRaidGroupType": raid, **({"writeCacheGroupType": "mirror"} if cache else {})},
            **cached,
        }
        for host, raid, groups in pools
    ]
    metadata = {"name": "pools", "namespace": OPENEBS, "uid": "older"}
    there = from_document(CStorPoolCluster, {"metadata": metadata, "spec": {"pools": specs}})
    devices = [device(name, host) for host, _, groups in pools for group in groups for name in group]
    devices += [device(name, host, 10, drive="SSD") for host, _, _ in pools for group in cache or () for name in group]
    world = World(config(**more), *(node(host) for host, _, _ in pools), there, *devices)
    world.settle()
    return world


def _groups(groups: Groups) -> list[dict[str, Any]]:
    return [{"blockDevices": [{"blockDeviceName": name} for name in group]} for group in groups]


@pytest.mark.parametrize("disks", [external(), {"local": {}}])
def test_an_adopted_stripe_of_one_disk_stays_one(disks: dict[str, Any]) -> None:
    world = existing(("n0", "stripe", [["a"]]), diskConfig=disks, poolConfig={"detectCaches": False})
    world.put(device("free", "n0"))
    world.settle()
    assert world.groups("n0") == [["a"]]
    assert world.of(Storage) == []
    assert world.config.status.phase == reasons.READY
    world.change(diskConfig={**disks, "minCount": 2})
    world.settle()
    assert [len(group) for group in world.groups("n0")] == [2]


def test_pools_of_several_types_are_adopted_and_each_grows_in_its_own_way() -> None:
    world = existing(("n0", "stripe", [["a"]]), ("n1", "mirror", [["b", "c"]]), ("n2", "raidz", [["d", "e", "f"]]))
    assert world.config.status.phase == reasons.READY
    for host in ("n0", "n1", "n2"):
        world.used[host] = 90
        world.settle()
    assert [len(group) for group in world.groups("n0")] == [2]
    assert [len(group) for group in world.groups("n1")] == [2, 2]
    assert [len(group) for group in world.groups("n2")] == [3, 3]
    assert world.groups("n1")[0] == ["b", "c"]


def test_a_declared_type_that_some_adopted_pools_have_is_that_of_new_ones() -> None:
    world = existing(("n0", "stripe", [["a"]]), ("n1", "mirror", [["b", "c"]]), poolConfig=MIRROR)
    assert world.config.status.phase == reasons.READY
    world.put(node("n2"))
    world.change(minPoolCount=3)
    world.settle()
    assert world.pool_cluster is not None
    assert [pool.pool_config.data_raid_group_type for pool in world.pool_cluster.spec.pools] == [
        "stripe",
        "mirror",
        "mirror",
    ]


def test_a_lost_disk_of_an_adopted_write_cache_is_followed_by_a_fast_one_that_is_free() -> None:
    world = existing(("n0", "mirror", [["a", "b"]]), cache=[["s", "t"]])
    lose(world, "s")
    assert world.condition(reasons.DISK_LOST)[1] == reasons.NO_REPLACEMENT
    world.put(device("slow", "n0", 10))
    world.put(device("fast", "n0", 10, drive="SSD"))
    world.settle()
    assert world.pool_cluster is not None
    [group] = world.pool_cluster.spec.pools[0].write_cache_raid_groups
    assert [found.block_device_name for found in group.block_devices] == ["fast", "t"]
    assert world.config.status.phase == reasons.READY


def test_a_class_that_was_misspelt_and_is_mended_leaves_nothing_behind() -> None:
    wrong = {"externalProvisioner": {"csiAttacherName": "csi.example", "storageClassName": "fsat"}}
    world = cluster(3, diskConfig=wrong)
    assert {s.status.conditions[0].reason for s in world.of(Storage)} == {reasons.CLASS_MISSING}
    world.change(diskConfig=external())
    world.settle()
    assert world.config.status.phase == reasons.READY
    assert len(world.of(Storage)) == len(world.of(PersistentVolumeClaim)) == 6
    assert {c.spec.storage_class_name for c in world.of(PersistentVolumeClaim)} == {"fast"}


def test_a_class_that_changes_later_leaves_the_disks_that_are_there() -> None:
    world = cluster(3)
    before = {s.metadata.name for s in world.of(Storage)}
    world.change(diskConfig={"externalProvisioner": {"csiAttacherName": "other", "storageClassName": "other"}})
    world.settle()
    assert {s.metadata.name for s in world.of(Storage)} == before
    assert len(world.applied) == 1


@pytest.mark.slow
@pytest.mark.parametrize("role", ["data", "spare", "readCache"])
def test_a_disk_that_is_in_no_pool_is_replaced_when_its_storage_asks(role: str) -> None:
    cache = {"csiAttacherName": "csi.example", "storageClassName": "fast"}
    world = World(config(poolConfig={**MIRROR, "spare": True, "readCache": cache}), *(node(f"n{i}") for i in range(3)))
    world.broken_attach.add("n0")
    world.settle()
    assert world.pool_cluster is None
    asking = next(s for s in world.storages_on("n0") if s.metadata.annotations["dao.mayadata.io/role"] == role)
    annotate(world, asking, **{REPLACE_ANNOTATION: "true"})
    world.settle()
    assert world.get(Storage, asking.metadata.name, "storage") is None
    world.broken_attach.clear()
    world.settle()
    assert world.config.status.phase == reasons.READY
    assert len(world.storages_on("n0")) == 4


def test_a_storage_that_was_deleted_by_hand_goes_when_it_is_annotated_too() -> None:
    world = World(config(), *(node(f"n{i}") for i in range(3)))
    world.broken_attach.add("n0")
    world.settle()
    deleted = world.storages_on("n0")[0]
    world.delete(deleted)
    world.settle()
    held = world.get(Storage, deleted.metadata.name, "storage")
    assert held is not None
    assert held.status.conditions[0].reason == reasons.OWNER_WANTS_IT
    annotate(world, held, **{REPLACE_ANNOTATION: "true"})
    world.settle()
    assert world.get(Storage, deleted.metadata.name, "storage") is None
    assert len(world.storages_on("n0")) == 2


def test_a_replacement_in_a_stripe_is_refused_with_the_reason_and_not_offered() -> None:
    world = cluster()
    before = world.groups("n0")
    world.change(diskConfig=external(minCapacity="200Gi"))
    world.settle()
    status, reason, message = world.condition(reasons.REPLACEMENT_OFFERED)
    assert (status, reason) == ("False", reasons.DISKS_SMALLER)
    assert "disks of a stripe" in message
    annotate(world, world.storages_on("n0")[0], **{REPLACE_ANNOTATION: "true"})
    world.settle()
    assert world.groups("n0") == before
    assert world.condition(reasons.DISK_LOST)[1] == reasons.REPLACEMENT_REFUSED


def test_disks_that_existed_already_are_not_offered_for_replacement() -> None:
    world = local_world(poolConfig=MIRROR)
    world.settle()
    world.change(diskConfig={"local": {"blockDeviceSelector": {"matchLabels": {"use": "pools"}}}, "minCapacity": "1Ti"})
    world.settle()
    status, _, message = world.condition(reasons.REPLACEMENT_OFFERED)
    assert status == "False"
    assert "annotate" not in message


def test_a_device_that_another_cluster_claims_is_not_ours() -> None:
    world = World(config(), *(node(f"n{i}") for i in range(3)))
    while not any(s.status.block_device for s in world.of(Storage)):
        world.step()
    storage = next(s for s in world.of(Storage) if s.status.block_device)
    taken = world.get(BlockDevice, storage.status.block_device, OPENEBS)
    assert taken is not None
    world._claim(taken, "others")
    world.call(STORAGE_HOOK, storage)
    told = world.get(Storage, storage.metadata.name, "storage")
    assert told is not None
    assert (told.status.phase, told.status.conditions[0].reason) == (reasons.ATTACHED, reasons.IN_USE)
    assert "not for this cluster" in told.status.message
    assert reasons.IN_USE in world.reasons()


def test_a_device_that_is_claimed_by_whom_nobody_sees_is_not_ours_when_it_shows_up() -> None:
    world = World(config(), *(node(f"n{i}") for i in range(3)))
    while not world.of(BlockDevice):
        world.step()
    storage = world.storages_on("n0")[0]
    assert storage.status.block_device == ""
    for found in world.of(BlockDevice):
        world.put(replace(found, spec=replace(found.spec, claim_ref=ObjectReference(name="unseen"))))
    world.call(STORAGE_HOOK, storage)
    told = world.get(Storage, storage.metadata.name, "storage")
    assert told is not None
    assert told.status.conditions[0].reason == reasons.IN_USE


def test_a_pool_cluster_of_another_name_claims_its_devices_under_that_name() -> None:
    named = config()
    annotations = {"dao.mayadata.io/cstorpoolcluster": "called-otherwise"}
    named = replace(named, metadata=replace(named.metadata, annotations=annotations))
    world = World(named, *(node(f"n{i}") for i in range(3)))
    world.settle()
    assert world.config.status.phase == reasons.READY
    assert {s.status.phase for s in world.of(Storage)} == {reasons.READY}


def test_what_happened_is_told_while_deletion_is_blocked() -> None:
    world = cluster(poolConfig=MIRROR)
    world.volume_on("n0")
    world.delete(world.config)
    world.settle()
    lose(world, world.groups("n0")[0][0])
    told = list(world.reasons())
    assert reasons.DISK_REPLACED in told
    assert told.count(reasons.VOLUME_REPLICAS) == 1
