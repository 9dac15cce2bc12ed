"""Leases and fenced writes.

The difference between the stores has a name, `Store.fences`: our own compare the Lease in the transaction of the
write; a Kubernetes API server compares one object only, so there a deposed leader's write goes through and agents
refuse its lower epoch. Likewise `lease_held`: our own stores answer by their own clock, the API server cannot tell.
"""

import asyncio

import pytest
from msgspec.structs import replace

from quartermaster.resources import ConfigMap, Lease, ObjectMeta
from quartermaster.resources.kubernetes.core import LeaseSpec
from quartermaster.stores import Fence, Store
from quartermaster.support.errors import ConflictError, FencedError
from tests.conformance.conftest import Home


def lease(namespace: str, holder: str, epoch: int, duration_s: int = 15) -> Lease:
    return Lease(
        metadata=ObjectMeta(name="leader", namespace=namespace),
        spec=LeaseSpec(holder_identity=holder, lease_transitions=epoch, lease_duration_seconds=duration_s),
    )


def taken(held: Lease, holder: str, epoch: int) -> Lease:
    return replace(held, spec=replace(held.spec, holder_identity=holder, lease_transitions=epoch))


def settings(namespace: str, name: str = "a") -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, namespace=namespace), data={"k": "v"})


async def test_one_of_two_takes_a_free_lease(store: Store, namespace: str, home: Home) -> None:
    other = await home.open("other")
    free = await store.create(lease(namespace, "", 0))
    seen = await other.get(Lease, "leader", namespace)
    await store.update(taken(free, "one", 1))
    with pytest.raises(ConflictError):
        await other.update(taken(seen, "two", 1))


async def test_the_leader_writes_under_its_fence(store: Store, namespace: str) -> None:
    await store.create(lease(namespace, "one", 1))
    fence = Fence(namespace, "leader", "one", 1)
    made = await store.create(settings(namespace), fence=fence)
    made = await store.update(replace(made, data={"k": "w"}), fence=fence)
    document = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "b", "namespace": namespace},
        "data": {"k": "v"},
    }
    await store.apply(document, fence=fence)
    await store.delete(ConfigMap, "a", namespace, fence=fence)
    assert [c.metadata.name for c in (await store.list(ConfigMap, namespace)).items if len(c.metadata.name) == 1] == [
        "b"
    ]


async def test_a_renewal_does_not_disturb_the_fence(store: Store, namespace: str) -> None:
    held = await store.create(lease(namespace, "one", 1))
    renewed = replace(held, spec=replace(held.spec, renew_time="2026-01-01T00:00:00.000000Z"))
    await store.update(renewed)
    made = await store.create(settings(namespace), fence=Fence(namespace, "leader", "one", 1))
    assert made.metadata.resource_version


async def test_a_deposed_leaders_write_is_refused_where_the_store_fences(store: Store, namespace: str) -> None:
    held = await store.create(lease(namespace, "one", 1))
    made = await store.create(settings(namespace))
    await store.update(taken(held, "two", 2))
    deposed = Fence(namespace, "leader", "one", 1)
    if not store.fences:
        assert (await store.update(replace(made, data={"k": "w"}), fence=deposed)).data == {"k": "w"}
        return
    with pytest.raises(FencedError, match="one no longer leads"):
        await store.update(replace(made, data={"k": "w"}), fence=deposed)
    with pytest.raises(FencedError):
        await store.create(settings(namespace, "b"), fence=deposed)
    with pytest.raises(FencedError):
        await store.delete(ConfigMap, "a", namespace, fence=deposed)
    with pytest.raises(FencedError):
        await store.update(replace(made, data={"k": "w"}), fence=Fence(namespace, "leader", "two", 1))
    assert (await store.get(ConfigMap, "a", namespace)).data == {"k": "v"}


async def test_a_released_lease_fences_its_holder_off(store: Store, namespace: str) -> None:
    held = await store.create(lease(namespace, "one", 1))
    await store.update(taken(held, "", 1))
    fence = Fence(namespace, "leader", "one", 1)
    if not store.fences:
        assert (await store.create(settings(namespace), fence=fence)).data == {"k": "v"}
        return
    with pytest.raises(FencedError):
        await store.create(settings(namespace), fence=fence)


async def test_a_store_with_a_clock_knows_whether_a_lease_is_held(store: Store, namespace: str) -> None:
    expected = (True, False) if store.fences else (None, None)
    held = await store.create(lease(namespace, "one", 1))
    assert await store.lease_held(namespace, "leader") is expected[0]
    await store.update(taken(held, "", 1))
    assert await store.lease_held(namespace, "leader") is expected[1]


@pytest.mark.slow
async def test_a_lease_that_is_not_renewed_runs_out(store: Store, namespace: str) -> None:
    await store.create(lease(namespace, "one", 1, duration_s=1))
    if not store.fences:
        assert await store.lease_held(namespace, "leader") is None
        return
    async with asyncio.timeout(15):
        while await store.lease_held(namespace, "leader"):
            await asyncio.sleep(0.05)
    with pytest.raises(FencedError):
        await store.create(settings(namespace), fence=Fence(namespace, "leader", "one", 1))
    assert (await store.get(Lease, "leader", namespace)).spec.lease_transitions == 1


@pytest.mark.slow
async def test_the_end_of_an_old_holders_lease_leaves_the_new_holder_alone(
    store: Store, namespace: str, home: Home
) -> None:
    held = await store.create(lease(namespace, "one", 1, duration_s=1))
    other = await home.open("other")
    seen = await other.get(Lease, "leader", namespace)
    spec = replace(seen.spec, holder_identity="two", lease_transitions=2, lease_duration_seconds=30)
    await other.update(replace(seen, spec=spec))
    await asyncio.sleep(3.5)  # past the old lease, and past the rounding of a store that counts whole seconds
    made = await other.create(settings(namespace), fence=Fence(namespace, "leader", "two", 2))
    assert made.data == {"k": "v"}
    assert held.spec.holder_identity == "one"
