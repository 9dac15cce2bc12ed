"""Hosts that ask for volumes: what they are answered, and that a mounted volume is never taken away."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from quartermaster.backends.base import Placement, Volume
from quartermaster.provisioning.asking import Wish, ask, find_mount, mounts_of_host, move, withdraw
from quartermaster.provisioning.intent import Record, with_record
from quartermaster.provisioning.mounting import Answer, Situation, answer, paths_on
from quartermaster.provisioning.protocol import PROVISIONED_BY, SELECTED_NODE, mounts_of, with_annotations, with_mounts
from quartermaster.resources.codec import encode, from_document
from quartermaster.resources.kubernetes.core import Lease, LeaseSpec
from quartermaster.resources.kubernetes.volumes import PersistentVolume, PersistentVolumeClaim
from quartermaster.resources.marks import DEFAULT_CLASS, HOSTNAME_LABEL, MOUNT_FINALIZER, provisioner_of
from quartermaster.resources.model import ObjectMeta
from quartermaster.resources.mounts import ENDING, GRANTED, REFUSED, WAITING, ClaimName, Mount, MountSpec, MountStatus
from quartermaster.stores.kv.base import Put
from quartermaster.support.errors import DeadlineError, HostError, UnavailableError
from quartermaster.testing.simulation import simulated

from .world import CLASS, KEY, NAMESPACE, TYPE, World, claim, is_bound, is_gone, storage_class, until

DATA = ClaimName(namespace="default", name="data")


def wish(host: str, path: str = "/mnt/data", named: str = "data") -> Wish:
    return Wish(namespace=NAMESPACE, host=host, claim=ClaimName(namespace="default", name=named), path=path)


def asked(host: str = "h1", path: str = "/mnt/data", **status: Any) -> Mount:
    one = wish(host, path)
    return Mount(
        metadata=ObjectMeta(name=one.name, namespace=NAMESPACE),
        spec=MountSpec(host=host, claim=one.claim, path=path),
        status=MountStatus(**status),
    )


def bound_claim(**meta: Any) -> PersistentVolumeClaim:
    made = claim()
    return replace(
        made,
        metadata=replace(made.metadata, uid="u1", **meta),
        spec=replace(made.spec, volume_name="v1"),
        status=replace(made.status, phase="Bound"),
    )


def volume(
    host: str = "h1", modes: tuple[str, ...] = ("ReadWriteOnce",), namespace: str = NAMESPACE
) -> PersistentVolume:
    term = {"matchExpressions": [{"key": HOSTNAME_LABEL, "operator": "In", "values": [host]}]}
    spec: dict[str, Any] = {
        "capacity": {"storage": "1Gi"},
        "accessModes": list(modes),
        "claimRef": {"namespace": "default", "name": "data", "uid": "u1"},
        "hostPath": {"path": "/volumes/v1"},
    }
    if host:
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
    made = from_document(
        PersistentVolume,
        {"metadata": {"name": "v1", "annotations": {PROVISIONED_BY: provisioner_of(TYPE)}}, "spec": spec},
    )
    return with_record(made, Record(replace(KEY, namespace=namespace), Volume("v1", 1 << 30, Placement((host,)))))


def answered(host: str = "h1", mount: Mount | None = None, **about: Any) -> Answer:
    given = {"claim": bound_claim(), "volume": volume(), "storage_class": storage_class(wait=True), **about}
    labels = {HOSTNAME_LABEL: host}
    return answer(Situation(mount=mount or asked(host), host=host, labels=labels, namespace=NAMESPACE, **given))


def test_the_volume_of_a_bound_claim_is_granted_where_it_can_be_reached() -> None:
    assert answered() == Answer(GRANTED, "", "v1")


def test_another_host_is_refused_with_the_name_of_the_one_that_has_it() -> None:
    assert answered("h2") == Answer(REFUSED, "its volume is on h1; run the same command on h1")


def test_a_volume_for_one_host_is_refused_to_a_second() -> None:
    mounted = with_mounts(volume(host=""), {"h1": ("/mnt/data",)})
    assert answered("h2", volume=mounted).state == REFUSED
    assert "it is mounted on h1, and its access mode allows one host only" in answered("h2", volume=mounted).why
    shared = with_mounts(volume(host="", modes=("ReadWriteMany",)), {"h1": ("/mnt/data",)})
    assert answered("h2", volume=shared).state == GRANTED


def test_a_claim_that_is_not_there_or_going_is_refused() -> None:
    assert answered(claim=None, volume=None) == Answer(REFUSED, "there is no claim default/data")
    going = bound_claim(deletion_timestamp="2026-01-01T00:00:00Z")
    assert answered(claim=going) == Answer(REFUSED, "the claim default/data is being deleted")


def test_a_volume_of_somebody_else_is_refused() -> None:
    foreign = with_annotations(volume(), {PROVISIONED_BY: "rancher.io/local-path"})
    assert "made by rancher.io/local-path" in answered(volume=foreign).why
    assert "of the namespace other" in answered(volume=volume(namespace="other")).why


def test_the_first_consumer_of_a_claim_that_waits_for_one_is_the_host_that_asks() -> None:
    assert answered(claim=claim(), volume=None).consumer
    assert not answered(claim=claim(), volume=None, storage_class=storage_class()).consumer
    chosen = claim(annotations={SELECTED_NODE: "h2"})
    assert answered(claim=chosen, volume=None) == Answer(WAITING, "its volume is being made on h2")


def test_a_claim_without_a_class_says_so_and_which_there_are() -> None:
    unset = "no StorageClass is set: `qm edit pvc data` sets spec.storageClassName; "
    for nothing in (None, ""):
        waits = {"claim": claim(storage_class=nothing), "volume": None, "storage_class": None}
        assert answered(**waits) == Answer(WAITING, f"{unset}there are no classes yet")
        assert answered(**waits, classes=[storage_class()]).why == f"{unset}the classes there are: {CLASS}"


def test_a_claim_that_gets_the_default_class_is_not_said_to_have_none() -> None:
    default = with_annotations(storage_class(), {DEFAULT_CLASS: "true"})
    waits = answered(claim=claim(storage_class=None), volume=None, storage_class=None, classes=[default])
    assert waits == Answer(WAITING, "its volume is being made")


def test_what_was_granted_stays_granted_whatever_becomes_of_labels_and_modes() -> None:
    held = asked("h2", state=GRANTED, volume="v1")
    assert answered("h2", mount=held) == Answer(GRANTED, "", "v1")


def test_what_is_mounted_while_its_claim_goes_stays_written_down() -> None:
    held = asked(state=GRANTED, volume="v1")
    assert answered(mount=held, claim=None, volume=None) == Answer(ENDING, "there is no claim default/data", "v1")
    other = replace(bound_claim(), spec=replace(bound_claim().spec, volume_name="v2"))
    assert answered(mount=held, claim=other).state == ENDING


def test_a_refusal_is_for_good() -> None:
    assert answered(mount=asked(state=REFUSED, message="no")) == Answer(REFUSED, "no")


def test_only_wishes_under_the_hosts_own_name_count() -> None:
    own, another = asked("h1", volume="v1"), asked("h2", "/mnt/other", volume="v1")
    posing = replace(another, spec=replace(another.spec, host="h1"))
    gone = asked("h1", "/mnt/gone", volume="v1")
    gone = replace(gone, metadata=replace(gone.metadata, deletion_timestamp="2026-01-01T00:00:00Z"))
    assert paths_on([own, another, posing, gone], "h1", "v1") == ("/mnt/data",)
    assert paths_on([own], "h1", "v1", without=own.metadata.name) == ()


@simulated()
async def test_a_claim_gets_its_volume_where_it_is_first_asked_for() -> None:
    world = World()
    await world.prepare(wait=True)
    told: list[str] = []
    world.slow_s = 5.0
    async with world.running():
        await world.store.create(claim())
        granted = await ask(world.store, wish("h1"), timeout_s=60, tell=told.append)
        name = granted.mount.status.volume
        assert list(world.disks) == [("h1", name)]
        assert mounts_of(await world.volume_of()) == {"h1": ("/mnt/data",)}
        again = await ask(world.store, wish("h1"), timeout_s=60, tell=told.append)
        assert (granted.before, again.before) == (False, True)
        assert again.mount.metadata.uid == granted.mount.metadata.uid
    assert "its volume is being made on h1" in told


@simulated()
async def test_a_host_that_is_refused_leaves_no_wish_behind() -> None:
    world = World()
    await world.prepare(wait=True)
    async with world.running():
        await world.store.create(claim())
        await ask(world.store, wish("h2"), timeout_s=60, tell=print)
        with pytest.raises(HostError, match="cannot mount data on h1: its volume is on h2; run the same command on h2"):
            await ask(world.store, wish("h1"), timeout_s=60, tell=print)
        assert await find_mount(world.store, wish("h1").name, NAMESPACE) is None
        with pytest.raises(HostError, match="there is no claim default/nothing"):
            await ask(world.store, wish("h1", named="nothing"), timeout_s=60, tell=print)
        assert mounts_of(await world.volume_of()) == {"h2": ("/mnt/data",)}


@simulated()
async def test_a_claim_that_is_deleted_while_it_is_mounted_goes_when_it_is_unmounted() -> None:
    world = World()
    await world.prepare()
    world.driver.reached_from_anywhere = True
    async with world.running():
        await world.store.create(claim())
        one = await ask(world.store, wish("h1"), timeout_s=60, tell=print)
        two = await ask(world.store, wish("h1", "/mnt/two"), timeout_s=60, tell=print)
        await world.store.delete(PersistentVolumeClaim, "data", "default")
        with pytest.raises(HostError, match="the claim default/data is being deleted"):
            await ask(world.store, wish("h1", "/mnt/three"), timeout_s=60, tell=print)
        assert await withdraw(world.store, one.mount, timeout_s=60) == ""
        await asyncio.sleep(100)
        assert mounts_of(await world.volume_of()) == {"h1": ("/mnt/two",)}
        assert len(world.disks) == 1
        assert await withdraw(world.store, two.mount, timeout_s=60) == ""
        await until(lambda: is_gone(world.store, PersistentVolume, two.mount.status.volume))
        assert world.disks == {}


@simulated()
async def test_a_wish_that_moves_is_written_down_where_it_is_now() -> None:
    world = World()
    await world.prepare()
    async with world.running():
        await world.store.create(claim())
        await until(lambda: is_bound(world.store))
        host = next(host for host, _ in world.disks)
        granted = await ask(world.store, wish(host), timeout_s=60, tell=print)
        await move(world.store, granted.mount, "/volumes/v1")
        await until(lambda: _noted(world, {host: ("/volumes/v1",)}))


@simulated()
async def test_where_nobody_leads_the_host_is_told_so_and_its_wish_is_taken_back() -> None:
    world = World()
    await world.store.create(claim())
    with pytest.raises(DeadlineError, match="cannot mount data on h1: nobody leads in the namespace storage"):
        await ask(world.store, wish("h1"), timeout_s=600, tell=print)
    assert asyncio.get_running_loop().time() < 30
    assert await mounts_of_host(world.store, NAMESPACE, "h1") == ()


@simulated()
async def test_who_is_interrupted_ends_though_the_wish_cannot_be_taken_back() -> None:
    world = World()

    async def lost(*_: Any, **__: Any) -> None:
        raise UnavailableError("the store does not answer")

    world.store.delete = lost  # type: ignore[assignment]
    asking = asyncio.create_task(ask(world.store, wish("h1"), timeout_s=600, tell=print))
    await asyncio.sleep(1)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert [mount.spec.host for mount in await mounts_of_host(world.store, NAMESPACE, "h1")] == ["h1"]


@simulated()
async def test_a_leader_that_has_died_is_noticed_where_its_lease_cannot_be_asked_for() -> None:
    world = World()
    spec = LeaseSpec(holder_identity="h9", lease_duration_seconds=15)
    meta = ObjectMeta(name="quartermaster-leader", namespace=NAMESPACE)
    await world.store.create(Lease(metadata=meta, spec=spec))

    async def unknown(_namespace: str, _name: str) -> None:
        return None

    world.store.lease_held = unknown  # type: ignore[method-assign]
    with pytest.raises(DeadlineError, match="nobody leads"):
        await ask(world.store, wish("h1"), timeout_s=600, tell=print)
    assert 20 < asyncio.get_running_loop().time() < 60


@simulated()
async def test_a_host_cannot_ask_in_the_name_of_another() -> None:
    """It may write anything below its own prefix; what does not belong there is nobody's wish."""
    world = World()
    await world.prepare(wait=True)
    forged = replace(asked("h1"), status=MountStatus())
    key = f"/objects/orchestration.coreos.com/mounts/{NAMESPACE}/h2/{forged.metadata.name}"
    async with world.running():
        await world.store.create(claim())
        await world.kv.transact((), (Put(key, encode(forged)),))
        lied = replace(asked("h2"), spec=replace(asked("h2").spec, host="h1"))
        key = f"/objects/orchestration.coreos.com/mounts/{NAMESPACE}/h2/{lied.metadata.name}"
        await world.kv.transact((), (Put(key, encode(lied)),))
        await asyncio.sleep(60)
        assert SELECTED_NODE not in (await world.claim()).metadata.annotations
        assert world.disks == {}


@simulated()
async def test_a_wish_is_held_until_its_volume_no_longer_counts_as_mounted() -> None:
    world = World()
    await world.prepare(wait=True)
    async with world.running():
        await world.store.create(claim())
        granted = await ask(world.store, wish("h1"), timeout_s=60, tell=print)
        assert granted.mount.metadata.finalizers == (MOUNT_FINALIZER,)
    await world.store.delete(Mount, granted.mount.metadata.name, NAMESPACE)
    assert mounts_of(await world.volume_of()) == {"h1": ("/mnt/data",)}
    async with world.running():
        await until(lambda: is_gone(world.store, Mount, granted.mount.metadata.name, NAMESPACE))
        assert mounts_of(await world.volume_of()) == {}


async def _noted(world: World, mounts: dict[str, tuple[str, ...]]) -> bool:
    return mounts_of(await world.volume_of()) == mounts
