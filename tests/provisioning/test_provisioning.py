"""From a claim to a bound volume, and back: the whole of it on a memory store, in virtual time."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from quartermaster.provisioning.protocol import (
    CLAIM_PROTECTION,
    PROVISIONED_BY,
    SELECTED_NODE,
    STORAGE_PROVISIONER,
    STORAGE_PROVISIONER_BETA,
    VOLUME_FINALIZER,
    find_condition,
    with_annotations,
)
from quartermaster.resources.kubernetes.volumes import PersistentVolume, PersistentVolumeClaim, StorageClass
from quartermaster.resources.marks import INTENT, PROVISIONING_FINALIZER, provisioner_of
from quartermaster.resources.storage import Replication
from quartermaster.testing.simulation import simulated

from .world import (
    GIB,
    TYPE,
    World,
    claim,
    is_asked,
    is_asked_of,
    is_bound,
    is_gone,
    resized,
    until,
)


@simulated()
async def test_a_claim_gets_a_volume_of_its_size_and_is_bound_to_it() -> None:
    world = World()
    await world.prepare(mount_options=("noatime",))
    async with world.running():
        made = await world.store.create(claim(size="2Gi"))
        await until(lambda: is_bound(world.store))
        bound, volume = await world.claim(), await world.volume_of()
        await until(lambda: _phase(world, volume.metadata.name, "Bound"))
    assert volume.metadata.name == f"pvc-{made.metadata.uid}" == bound.spec.volume_name
    assert bound.status.capacity == {"storage": "2Gi"} == volume.spec.capacity
    assert volume.spec.claim_ref is not None
    assert volume.spec.claim_ref.uid == made.metadata.uid
    assert volume.spec.mount_options == ("noatime",)
    assert volume.spec.persistent_volume_reclaim_policy == "Delete"
    assert volume.metadata.annotations[PROVISIONED_BY] == provisioner_of(TYPE)
    assert VOLUME_FINALIZER in volume.metadata.finalizers
    assert bound.metadata.annotations[STORAGE_PROVISIONER] == provisioner_of(TYPE)
    assert bound.metadata.annotations[STORAGE_PROVISIONER_BETA] == provisioner_of(TYPE)
    assert world.disks == {("h2", volume.metadata.name): 2 * GIB}


@simulated()
async def test_a_bound_claim_bears_no_intent_any_more() -> None:
    world = World()
    await world.prepare()
    async with world.running():
        await world.store.create(claim())
        await until(lambda: is_bound(world.store))
        await until(lambda: _settled(world))
        bound = await world.claim()
    assert bound.metadata.finalizers == (CLAIM_PROTECTION,)
    assert INTENT not in bound.metadata.annotations


@simulated()
async def test_the_events_tell_how_it_went() -> None:
    world = World()
    await world.prepare()
    async with world.running():
        await world.store.create(claim())
        await until(lambda: is_bound(world.store))
        await until(lambda: _settled(world))
        made = await world.claim()
        await until(lambda: _has_events(world, made, "Provisioning", "ProvisioningSucceeded"))
        events = dict(await world.events_of(made))
    assert events["Provisioning"] == f"making the volume {made.spec.volume_name} on h2: h2 has most room"


@simulated()
async def test_the_intent_is_written_before_anybody_is_asked() -> None:
    world = World()
    await world.prepare()
    world.failing = "no space on the device"
    async with world.running():
        await world.store.create(claim())
        await until(lambda: is_asked(world))
        begun = await world.claim()
    assert INTENT in begun.metadata.annotations
    assert PROVISIONING_FINALIZER in begun.metadata.finalizers


@simulated()
async def test_what_the_agent_says_of_its_failure_is_told_on_the_claim() -> None:
    world = World()
    await world.prepare()
    world.failing = "mkdir: read-only file system"
    async with world.running():
        await world.store.create(claim())
        await until(lambda: _told(world, "AgentFailed"))
        failed = await world.claim()
        await until(lambda: _has_events(world, failed, "ProvisioningFailed"))
        world.failing = ""
        await until(lambda: is_bound(world.store))
        await until(lambda: _settled(world))
        assert (await world.claim()).status.conditions == ()
    condition = find_condition(failed.status.conditions, "Provisioned")
    assert condition is not None
    assert condition.message == "stub-volume on h2 failed: mkdir: read-only file system"


@simulated()
async def test_a_claim_larger_than_what_there_is_waits_and_says_the_numbers() -> None:
    world = World({"h1": 4 * GIB})
    await world.prepare()
    async with world.running():
        await world.store.create(claim("first", "3Gi"))
        await until(lambda: is_bound(world.store, "first"))
        await world.store.create(claim("second", "2Gi"))
        await until(lambda: _told(world, "NotEnoughSpace", "second"))
        waiting = await world.claim("second")
        condition = find_condition(waiting.status.conditions, "Provisioned")
        assert condition is not None
        assert condition.message == "2Gi are asked for, at most 1Gi are free on a host"
        assert waiting.status.phase == "Pending"
        assert INTENT not in waiting.metadata.annotations
        await world.store.delete(PersistentVolumeClaim, "first", "default")
        await until(lambda: is_bound(world.store, "second"), timeout_s=20)


@pytest.mark.slow
@simulated(seeds=range(20))
async def test_many_claims_at_once_never_get_more_than_there_is() -> None:
    world = World({"h1": 5 * GIB, "h2": 5 * GIB})
    await world.prepare()
    async with world.running():
        for number in range(14):
            await world.store.create(claim(f"c{number}"))
        await until(lambda: _bound_count(world, 10))
        assert len(world.disks) == 10
        assert all(sum(s for (h, _), s in world.disks.items() if h == host) <= 5 * GIB for host in world.room)


@simulated()
async def test_a_deleted_claim_takes_its_volume_with_it() -> None:
    world = World()
    await world.prepare()
    async with world.running():
        await world.store.create(claim())
        await until(lambda: is_bound(world.store))
        name = (await world.claim()).spec.volume_name
        await world.store.delete(PersistentVolumeClaim, "data", "default")
        await until(lambda: is_gone(world.store, PersistentVolume, name))
        assert world.disks == {}
        assert await world.assignments() == []


@simulated()
async def test_a_volume_of_a_paused_cluster_is_not_deleted_before_it_is_resumed() -> None:
    world = World()
    await world.prepare()
    async with world.running():
        await world.store.create(claim())
        await until(lambda: is_bound(world.store))
        name = (await world.claim()).spec.volume_name
        await world.pause()
        await world.store.delete(PersistentVolumeClaim, "data", "default")
        await asyncio.sleep(120)
        assert world.disks != {}
        await world.pause(paused=False)
        await until(lambda: is_gone(world.store, PersistentVolume, name))
        assert world.disks == {}


@simulated()
async def test_nobody_is_asked_to_delete_a_volume_before_the_leader_has_looked_who_keeps_it() -> None:
    world = World()
    await world.prepare()
    await world.declare("h1")
    async with world.running():
        await world.store.create(claim())
        await until(lambda: is_bound(world.store))
        name = (await world.claim()).spec.volume_name
        world.blind = True
        await world.store.delete(PersistentVolumeClaim, "data", "default")
        await asyncio.sleep(120)
        assert world.disks != {}
        world.blind = False
        await until(lambda: is_gone(world.store, PersistentVolume, name))


@simulated()
async def test_a_volume_is_deleted_without_its_class() -> None:
    world = World()
    await world.prepare()
    async with world.running():
        await world.store.create(claim())
        await until(lambda: is_bound(world.store))
        name = (await world.claim()).spec.volume_name
        await world.store.delete(StorageClass, "fast")
        await world.store.delete(PersistentVolumeClaim, "data", "default")
        await until(lambda: is_gone(world.store, PersistentVolume, name))
    assert world.disks == {}


@simulated()
async def test_a_retained_volume_stays_with_its_data_and_is_released() -> None:
    world = World()
    await world.prepare(policy="Retain")
    async with world.running():
        await world.store.create(claim())
        await until(lambda: is_bound(world.store))
        name = (await world.claim()).spec.volume_name
        await world.store.delete(PersistentVolumeClaim, "data", "default")
        await until(lambda: _phase(world, name, "Released"))
        (kept,) = await world.volumes()
    assert VOLUME_FINALIZER not in kept.metadata.finalizers
    assert world.disks == {("h2", name): GIB}


@simulated()
async def test_a_claim_that_is_deleted_half_way_leaves_nothing_behind() -> None:
    world = World()
    await world.prepare()
    world.failing = "not yet"
    async with world.running():
        await world.store.create(claim())
        await until(lambda: is_asked(world))
        await world.store.delete(PersistentVolumeClaim, "data", "default")
        world.failing = ""
        await until(lambda: is_gone(world.store, PersistentVolumeClaim, "data", "default"))
        assert await world.assignments() == []
        assert await world.volumes() == []
        assert world.disks == {}


@simulated()
async def test_a_claim_that_waits_for_its_consumer_is_made_where_that_is() -> None:
    world = World()
    await world.prepare(wait=True)
    async with world.running():
        await world.store.create(claim())
        await until(lambda: _phase_of_claim(world, "Pending"))
        assert await world.assignments() == []
        waiting = await world.claim()
        await world.store.update(with_annotations(waiting, {SELECTED_NODE: "h1"}))
        await until(lambda: is_bound(world.store))
    assert list(world.disks) == [("h1", (await world.claim()).spec.volume_name)]


@simulated()
async def test_a_scheduler_is_asked_for_another_node_when_the_chosen_one_has_no_room() -> None:
    world = World({"h1": GIB, "h2": 10 * GIB})
    await world.prepare(wait=True)
    async with world.running(bind=False):
        wanted = {SELECTED_NODE: "h1", STORAGE_PROVISIONER: provisioner_of(TYPE)}
        await world.store.create(claim(size="2Gi", annotations=wanted))
        await until(lambda: _unselected(world))
        await world.store.update(with_annotations(await world.claim(), {SELECTED_NODE: "h2"}))
        await until(lambda: _published(world))
    assert [host for host, _ in world.disks] == ["h2"]


@simulated()
async def test_a_claim_without_a_class_gets_the_default_one() -> None:
    world = World()
    await world.prepare(default=True)
    async with world.running():
        await world.store.create(claim(storage_class=None))
        await until(lambda: is_bound(world.store))
        assert (await world.claim()).spec.storage_class_name == "fast"


@simulated()
async def test_nothing_is_placed_while_the_cluster_is_offline_or_paused() -> None:
    world = World()
    await world.prepare()
    world.online = False
    async with world.running():
        await world.store.create(claim())
        await until(lambda: _told(world, "ClusterOffline"))
        world.online, world.paused = True, True
        await until(lambda: _told(world, "Paused"))
        condition = find_condition((await world.claim()).status.conditions, "Provisioned")
        assert condition is not None
        assert condition.message.endswith(f"is paused; `qm resume {world.key.status_name}` goes on")
        world.paused = False
        await until(lambda: is_bound(world.store))


@simulated()
async def test_a_growth_that_waits_says_that_the_cluster_is_paused_and_not_that_it_is_offline() -> None:
    world = World()
    await world.prepare()
    async with world.running():
        await world.store.create(claim())
        await until(lambda: is_bound(world.store))
        world.paused = True
        await world.store.update(resized(await world.claim(), "2Gi"))
        await until(lambda: _told(world, "Paused", condition="Resizing"))
        world.online, world.paused = False, False
        await until(lambda: _told(world, "ClusterOffline", condition="Resizing"))


@simulated()
async def test_a_growth_for_which_there_is_no_room_can_be_taken_back() -> None:
    world = World()
    await world.prepare()
    async with world.running():
        await world.store.create(claim())
        await until(lambda: is_bound(world.store))
        await world.store.update(resized(await world.claim(), "900Gi"))
        await until(lambda: _told(world, "NotEnoughSpace", condition="Resizing"))
        await world.store.update(resized(await world.claim(), "1Gi"))

        async def nothing_waits() -> bool:
            return find_condition((await world.claim()).status.conditions, "Resizing") is None

        await until(nothing_waits)
        assert list(world.disks.values()) == [GIB]


@simulated()
async def test_who_waits_for_room_gets_what_was_promised_to_a_claim_that_is_gone() -> None:
    """At once, and not when it would look again by itself: its agent never made the volume."""
    world = World({"h1": 3 * GIB})
    await world.prepare()
    world.failing = "the disk is broken"
    async with world.running():
        await world.store.create(claim("first", "2Gi"))
        await until(lambda: is_asked_of(world, ["h1"]))
        await world.store.create(claim("second", "2Gi"))
        await asyncio.sleep(600.0)
        assert not await is_bound(world.store, "second")
        world.failing = ""
        await world.store.delete(PersistentVolumeClaim, "first", "default")
        await until(lambda: is_bound(world.store, "second"), timeout_s=10)


@simulated()
async def test_a_claim_grows_and_says_so_in_its_status() -> None:
    world = World()
    await world.prepare()
    async with world.running():
        await world.store.create(claim())
        await until(lambda: is_bound(world.store))
        await until(lambda: _settled(world))
        await world.store.update(resized(await world.claim(), "3Gi"))
        await until(lambda: _has_capacity(world, "3Gi"))
        grown, volume = await world.claim(), await world.volume_of()
        await until(lambda: _has_events(world, grown, "Resizing", "VolumeResizeSuccessful"))
    assert volume.spec.capacity == {"storage": "3Gi"}
    assert grown.status.conditions == ()
    assert grown.status.allocated_resource_statuses == {}
    assert list(world.disks.values()) == [3 * GIB]


@simulated()
async def test_a_claim_does_not_grow_beyond_what_there_is() -> None:
    world = World({"h1": 4 * GIB})
    await world.prepare()
    async with world.running():
        for name in ("data", "other"):
            await world.store.create(claim(name))
            await until(lambda name=name: is_bound(world.store, name))
        await until(lambda: _settled(world))
        await world.store.update(resized(await world.claim(), "4Gi"))
        await until(lambda: _told(world, "NotEnoughSpace", condition="Resizing"))
        condition = find_condition((await world.claim()).status.conditions, "Resizing")
        assert condition is not None
        assert condition.message == "4Gi are asked for, at most 3Gi are free on a host"
        await world.store.delete(PersistentVolumeClaim, "other", "default")
        await until(lambda: _has_capacity(world, "4Gi"))
    assert list(world.disks.values()) == [4 * GIB]


@simulated()
async def test_a_growth_that_was_begun_is_finished_where_there_is_no_room_for_what_is_asked_since() -> None:
    world = World({"h1": 4 * GIB})
    await world.prepare()
    async with world.running():
        await world.store.create(claim())
        await until(lambda: is_bound(world.store))
        await until(lambda: _settled(world))
        world.slow_s = 10.0
        await world.store.update(resized(await world.claim(), "3Gi"))
        await until(lambda: _is_growing_to(world, "3Gi"))
        await world.store.update(resized(await world.claim(), "9Gi"))
        await until(lambda: _has_capacity(world, "3Gi"))
        await until(lambda: _told(world, "NotEnoughSpace", condition="Resizing"))
        assert (await world.volume_of()).spec.capacity == {"storage": "3Gi"}
        await world.store.update(resized(await world.claim(), "4Gi"))
        await until(lambda: _has_capacity(world, "4Gi"))
    assert list(world.disks.values()) == [4 * GIB]


async def _is_growing_to(world: World, size: str) -> bool:
    return (await world.claim()).status.allocated_resources == {"storage": size}


@simulated()
async def test_a_class_that_does_not_allow_it_lets_nothing_grow() -> None:
    world = World()
    await world.prepare(expandable=False)
    async with world.running():
        await world.store.create(claim())
        await until(lambda: is_bound(world.store))
        await until(lambda: _settled(world))
        await world.store.update(resized(await world.claim(), "2Gi"))
        await until(lambda: _told(world, "ExpansionForbidden", condition="Resizing"))
    assert list(world.disks.values()) == [GIB]


@simulated()
async def test_an_intent_that_somebody_else_wrote_is_not_believed() -> None:
    world = World()
    await world.prepare()
    async with world.running():
        await world.store.create(claim("model"))
        await until(lambda: is_bound(world.store, "model"))
        forged = (
            '0000 {"cluster":{"namespace":"storage","type":"stub","name":"default"},"volume":{"name":"pvc-x",'
            '"size":1,"placement":{"hosts":["h1"],"details":{"path":"/etc"}}},"reclaim_policy":"Delete"}'
        )
        wanted = claim(annotations={INTENT: forged})
        wanted = replace(wanted, metadata=replace(wanted.metadata, finalizers=(PROVISIONING_FINALIZER,)))
        await world.store.create(wanted)
        await until(lambda: is_bound(world.store))
        volume = await world.volume_of()
    assert volume.spec.host_path is not None
    assert volume.spec.host_path.path == f"/volumes/{volume.metadata.name}"


async def _settled(world: World, name: str = "data") -> bool:
    return PROVISIONING_FINALIZER not in (await world.claim(name)).metadata.finalizers


async def _phase(world: World, volume: str, phase: str) -> bool:
    return (await world.store.get(PersistentVolume, volume)).status.phase == phase


async def _phase_of_claim(world: World, phase: str) -> bool:
    return (await world.claim()).status.phase == phase


async def _has_events(world: World, obj: PersistentVolumeClaim, *reasons: str) -> bool:
    return set(reasons) <= {reason for reason, _ in await world.events_of(obj)}


async def _told(world: World, reason: str, name: str = "data", *, condition: str = "Provisioned") -> bool:
    found = find_condition((await world.claim(name)).status.conditions, condition)
    return found is not None and found.reason == reason


async def _bound_count(world: World, count: int) -> bool:
    claims = (await world.store.list(PersistentVolumeClaim)).items
    waiting = [one for one in claims if find_condition(one.status.conditions, "Provisioned")]
    bound = [one for one in claims if one.status.phase == "Bound"]
    return len(bound) == count and len(bound) + len(waiting) == len(claims)


async def _unselected(world: World) -> bool:
    return SELECTED_NODE not in (await world.claim()).metadata.annotations


async def _published(world: World) -> bool:
    return bool(await world.volumes())


async def _has_capacity(world: World, size: str) -> bool:
    return (await world.claim()).status.capacity == {"storage": size}


@simulated()
async def test_a_volume_is_made_by_what_is_declared_now_and_not_by_what_the_leader_saw_before() -> None:
    world = World()
    await world.prepare()
    async with world.running():
        await world.declare_cluster(Replication(replicas=2))
        await asyncio.sleep(1)
        await world.store.create(claim())
        await asyncio.sleep(30)
        assert not await is_asked(world)
        world.replication = Replication(replicas=2)
        await until(lambda: is_bound(world.store))
