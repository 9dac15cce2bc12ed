"""Our own binder: which volume a claim gets, and what becomes of volumes."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from quartermaster.provisioning.binding import Bind, Hold, choose, default_class, fits, phase_of, prepare
from quartermaster.provisioning.protocol import (
    BIND_COMPLETED,
    CLAIM_PROTECTION,
    SELECTED_NODE,
    STORAGE_PROVISIONER,
    VOLUME_PROTECTION,
    with_annotations,
    with_mounts,
)
from quartermaster.provisioning.volumes import goes_in_use, going_in_use
from quartermaster.resources.kubernetes.core import ObjectReference
from quartermaster.resources.kubernetes.volumes import PersistentVolume, PersistentVolumeClaim
from quartermaster.resources.marks import DELETE_IN_USE, HOSTNAME_LABEL, provisioner_of
from quartermaster.testing.simulation import simulated

from .world import TYPE, World, claim, is_bound, is_gone, static_volume, storage_class, until


def with_uid(obj: PersistentVolumeClaim, uid: str = "u1") -> PersistentVolumeClaim:
    return replace(obj, metadata=replace(obj.metadata, uid=uid))


def reserved(volume: PersistentVolume, name: str, uid: str = "") -> PersistentVolume:
    reference = ObjectReference(namespace="default", name=name, uid=uid)
    return replace(volume, spec=replace(volume.spec, claim_ref=reference))


def test_the_smallest_volume_that_fits_is_taken() -> None:
    volumes = [static_volume("large", "9Gi"), static_volume("fits", "2Gi"), static_volume("small", "1Gi")]
    decision = choose(with_uid(claim(size="2Gi", storage_class="")), None, volumes, {})
    assert isinstance(decision, Bind)
    assert decision.volume.metadata.name == "fits"


def test_a_volume_that_is_kept_for_the_claim_comes_before_a_smaller_one() -> None:
    volumes = [static_volume("small", "1Gi"), reserved(static_volume("kept", "9Gi"), "data")]
    decision = choose(with_uid(claim(storage_class="")), None, volumes, {})
    assert isinstance(decision, Bind)
    assert decision.volume.metadata.name == "kept"


@pytest.mark.parametrize(
    "volume",
    [
        static_volume("v", "512Mi"),
        static_volume("v", storage_class="other"),
        static_volume("v", accessModes=["ReadOnlyMany"]),
        static_volume("v", volumeMode="Block"),
        static_volume("v", labels={"tier": "slow"}),
        reserved(static_volume("v"), "another"),
        reserved(static_volume("v"), "data", uid="of-an-earlier-claim"),
    ],
    ids=["too small", "class", "modes", "volume mode", "selector", "kept for another", "of an earlier claim"],
)
def test_a_volume_that_differs_in_anything_does_not_fit(volume: PersistentVolume) -> None:
    wanted = with_uid(claim(storage_class="", selector={"matchLabels": {"tier": "fast"}}))
    assert fits(wanted, static_volume("right", labels={"tier": "fast"}))
    labelled = replace(volume, metadata=replace(volume.metadata, labels=volume.metadata.labels or {"tier": "fast"}))
    assert not fits(wanted, labelled)


def test_a_static_volume_of_a_waiting_class_must_be_on_the_node_of_the_consumer() -> None:
    term = {"matchExpressions": [{"key": HOSTNAME_LABEL, "operator": "In", "values": ["h1"]}]}
    affinity = {"required": {"nodeSelectorTerms": [term]}}
    volumes = [static_volume("there", storage_class="fast", nodeAffinity=affinity)]
    waiting = storage_class(wait=True)
    before = choose(with_uid(claim()), waiting, volumes, {})
    here = choose(with_uid(claim(annotations={SELECTED_NODE: "h1"})), waiting, volumes, {})
    elsewhere = choose(with_uid(claim(annotations={SELECTED_NODE: "h2"})), waiting, volumes, {})
    assert isinstance(before, Hold)
    assert before.reason == "WaitForFirstConsumer"
    assert isinstance(here, Bind)
    assert isinstance(elsewhere, Hold)


def test_a_bound_claim_whose_volume_is_gone_is_lost() -> None:
    bound = with_annotations(with_uid(claim(volumeName="gone")), {BIND_COMPLETED: "yes"})
    decision = choose(bound, None, [], {})
    assert isinstance(decision, Hold)
    assert (decision.phase, decision.why) == ("Lost", "its volume gone is gone")


def test_a_claim_that_names_a_volume_of_another_waits() -> None:
    taken = reserved(static_volume("v"), "other", uid="u2")
    decision = choose(with_uid(claim(volumeName="v")), None, [taken], {})
    assert isinstance(decision, Hold)
    assert (decision.phase, decision.why) == ("Pending", "the volume v is bound to default/other")


def test_a_claim_without_any_class_says_what_it_lacks() -> None:
    decision = choose(with_uid(claim(storage_class="")), None, [], {})
    assert isinstance(decision, Hold)
    assert decision.why == "no volume that is there fits, and no StorageClass is set"


def test_of_several_default_classes_the_newest_counts() -> None:
    old, new = storage_class("old", default=True), storage_class("new", default=True)
    new = replace(new, metadata=replace(new.metadata, creation_timestamp="2026-02-01T00:00:00Z"))
    old = replace(old, metadata=replace(old.metadata, creation_timestamp="2026-01-01T00:00:00Z"))
    assert default_class([old, new]) == new
    assert default_class([storage_class("none")]) is None


def test_an_empty_class_name_asks_for_no_class_not_for_the_default() -> None:
    prepared = prepare(claim(storage_class=""), [storage_class(default=True)])
    assert prepared.spec.storage_class_name == ""
    assert STORAGE_PROVISIONER not in prepared.metadata.annotations


def test_nobody_is_asked_to_provision_before_the_consumer_is_known() -> None:
    waiting = [storage_class(wait=True)]
    assert STORAGE_PROVISIONER not in prepare(claim(), waiting).metadata.annotations
    chosen = prepare(claim(annotations={SELECTED_NODE: "h1"}), waiting)
    assert chosen.metadata.annotations[STORAGE_PROVISIONER] == provisioner_of(TYPE)


def test_phases_of_a_volume() -> None:
    mine = with_uid(claim(volumeName="v"))
    assert phase_of(static_volume("v"), None) == ("Available", "")
    assert phase_of(reserved(static_volume("v"), "data"), None) == ("Available", "")
    assert phase_of(reserved(static_volume("v"), "data", uid="u1"), mine) == ("Bound", "")
    assert phase_of(reserved(static_volume("v"), "data", uid="u1"), None) == ("Released", "")
    assert phase_of(reserved(static_volume("v"), "data", uid="u1"), with_uid(mine, "u2")) == ("Released", "")
    doomed = reserved(static_volume("v", persistentVolumeReclaimPolicy="Delete"), "data", uid="u1")
    assert phase_of(doomed, None)[0] == "Failed"


@simulated(seeds=range(5))
async def test_two_claims_never_get_the_same_static_volume() -> None:
    world = World()
    await world.prepare()
    async with world.running():
        await world.store.create(static_volume("v1"))
        await world.store.create(static_volume("v2"))
        for name in ("a", "b"):
            await world.store.create(claim(name, storage_class=""))
        await until(lambda: is_bound(world.store, "a"))
        await until(lambda: is_bound(world.store, "b"))
        names = {(await world.claim(name)).spec.volume_name for name in ("a", "b")}
    assert names == {"v1", "v2"}


@simulated()
async def test_a_static_volume_that_appears_later_is_taken_then() -> None:
    world = World()
    await world.prepare()
    async with world.running():
        await world.store.create(claim(storage_class=""))
        await until(lambda: _pending(world))
        await world.store.create(static_volume("late"))
        await until(lambda: is_bound(world.store))
        volume = await world.volume_of()
    assert volume.metadata.finalizers == (VOLUME_PROTECTION,)


@simulated()
async def test_a_mounted_claim_is_deleted_when_it_is_unmounted() -> None:
    world = World()
    await world.prepare()
    async with world.running():
        await world.store.create(claim())
        await until(lambda: is_bound(world.store))
        volume = await world.store.update(with_mounts(await world.volume_of(), {"h2": ("/mnt/data",)}))
        await world.store.delete(PersistentVolumeClaim, "data", "default")
        deleting = await world.claim()
        await until(lambda: _in_use_was_told(world, deleting))
        assert CLAIM_PROTECTION in (await world.claim()).metadata.finalizers
        fresh = await world.store.get(PersistentVolume, volume.metadata.name)
        await world.store.update(with_mounts(fresh, {}))
        await until(lambda: is_gone(world.store, PersistentVolumeClaim, "data", "default"))
        await until(lambda: is_gone(world.store, PersistentVolume, volume.metadata.name))
    assert world.disks == {}


@simulated()
async def test_a_released_volume_that_is_still_mounted_is_not_deleted() -> None:
    world = World()
    await world.prepare()
    async with world.running():
        await world.store.create(claim())
        await until(lambda: is_bound(world.store))
        await world.store.update(with_mounts(await world.volume_of(), {"h1": ("/mnt/data",)}))
        bare = await world.claim()
        await world.store.delete(PersistentVolumeClaim, "data", "default")
        fresh = await world.claim()
        await world.store.update(replace(fresh, metadata=replace(fresh.metadata, finalizers=())))
        await until(lambda: _delete_failed(world, bare.spec.volume_name))
        assert len(world.disks) == 1


@simulated()
async def test_a_claim_and_its_volume_go_by_force_although_they_are_mounted() -> None:
    world = World()
    await world.prepare()
    async with world.running():
        await world.store.create(claim())
        await until(lambda: is_bound(world.store))
        mounted = with_mounts(await world.volume_of(), {"h2": ("/mnt/data",)})
        volume = await world.store.update(going_in_use(mounted))
        world.failing = "somebody uses it"
        await world.store.delete(PersistentVolumeClaim, "data", "default")
        await until(lambda: is_gone(world.store, PersistentVolumeClaim, "data", "default"))
        await until(lambda: _agent_is_told(world))
        world.failing = ""
        await until(lambda: is_gone(world.store, PersistentVolume, volume.metadata.name))
    assert world.disks == {}


def test_a_volume_goes_by_force_with_the_claim_alone_that_it_was_said_of() -> None:
    reference = {"namespace": "default", "name": "data", "uid": "1"}
    marked = going_in_use(static_volume("v", claimRef=reference))
    assert goes_in_use(marked)
    bound_anew = static_volume("v", claimRef={**reference, "uid": "2"})
    assert not goes_in_use(replace(marked, spec=bound_anew.spec))


async def _agent_is_told(world: World) -> bool:
    return any(one.spec.absent and DELETE_IN_USE in one.metadata.annotations for one in await world.assignments())


async def _pending(world: World) -> bool:
    return (await world.claim()).status.phase == "Pending"


async def _in_use_was_told(world: World, obj: PersistentVolumeClaim) -> bool:
    told = "it is deleted when it is mounted nowhere any more: h2:/mnt/data"
    return ("VolumeInUse", told) in await world.events_of(obj)


async def _delete_failed(world: World, name: str) -> bool:
    volume = await world.store.get(PersistentVolume, name)
    return any(
        reason == "VolumeFailedDelete" and "mounted: h1:/mnt/data" in text
        for reason, text in await world.events_of(volume)
    )
