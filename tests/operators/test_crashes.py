"""A leader that is cut off at any of its writes is continued by the next one; nothing is done twice or by halves."""

from __future__ import annotations

from typing import Any, TypeVar

import pytest

from quartermaster.orchestration.restoring import observe_only
from quartermaster.resources import Assignment, ConfigMap, Object, ObjectMeta, StorageClass, StorageNode, StorageStatus
from quartermaster.resources.marks import OBSERVE_ONLY, SETTINGS_NAME
from quartermaster.resources.model import OwnerReference
from quartermaster.support.errors import UnavailableError
from quartermaster.testing.simulation import simulated

from .world import NAMESPACE, Counted, World, settled, world

T = TypeVar("T", bound=Object)
PARTS = 6
SEEN = (StorageNode, StorageStatus, StorageClass, Assignment)


class Failing(Counted):
    """Write number `at` of the leader fails: before it is made, or after it without an answer."""

    def __init__(self, at: int, *, after: bool) -> None:
        super().__init__()
        self.at = at
        self.after = after
        self.fenced = 0

    async def _write(self, call: Any, options: dict[str, Any]) -> Any:
        if options.get("fence") is None:
            return await call
        self.fenced += 1
        failing = self.fenced == self.at + 1
        if failing and not self.after:
            call.close()
            raise UnavailableError("cannot write: the store is away")
        result = await call
        if failing:
            raise UnavailableError("cannot write: no answer")
        return result

    async def create(self, obj: T, **options: Any) -> T:
        made: T = await self._write(super().create(obj, **options), options)
        return made

    async def update(self, obj: T, **options: Any) -> T:
        made: T = await self._write(super().update(obj, **options), options)
        return made

    async def update_status(self, obj: T, **options: Any) -> T:
        made: T = await self._write(super().update_status(obj, **options), options)
        return made

    async def delete(self, kind: type[T], name: str, namespace: str = "", **options: Any) -> T:
        made: T = await self._write(super().delete(kind, name, namespace, **options), options)
        return made


async def life(made: World) -> list[tuple[str, str]]:
    """A node joins, a second one joins, the first one leaves; what is there in the end."""
    made.lead()
    for host in ("h1", "h2"):
        made.host(host)
        await made.node(host)
        await settled(10)
    await made.store.delete(StorageNode, "h1", NAMESPACE)
    await settled(20)
    return [
        (kind.__name__, obj.metadata.name)
        for kind in SEEN
        for obj in (await made.store.list(kind, None if kind is StorageClass else NAMESPACE)).items
    ]


EXPECTED = [
    ("StorageNode", "h2"),
    ("StorageStatus", "local-default"),
    ("StorageClass", "storage-local-default"),
    ("Assignment", "local-default.h2"),
]


async def lived_with(at: int, *, after: bool) -> Failing:
    async with world() as made:
        store = Failing(at, after=after)
        made.store = store
        assert await life(made) == EXPECTED, (at, after)
        status = await made.status()
        assert (status.spec.status, status.status.ready_count) == ("ONLINE", 1)
        return store


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
@simulated()
async def test_any_write_of_the_leader_may_fail_before_or_after_it_is_made(part: int) -> None:
    faultless = await lived_with(10**9, after=False)
    assert 10 < faultless.fenced < 60
    for at in range(part, faultless.fenced, PARTS):
        for after in (False, True):
            await lived_with(at, after=after)


@pytest.mark.slow
@simulated(range(3))
async def test_the_next_leader_goes_on_where_the_last_one_was_killed() -> None:
    async with world() as made:
        made.lead("first")
        made.host("h1")
        await made.node("h1")
        await settled(0.05)
        await made.stop("first")
        made.lead("second")
        await settled(30)
        assert (await made.status()).spec.status == "ONLINE"


@pytest.mark.slow
@simulated()
async def test_after_a_restore_it_only_observes_until_it_is_told_to_resume() -> None:
    async with world() as made:
        settings = ConfigMap(
            metadata=ObjectMeta(name=SETTINGS_NAME, namespace=NAMESPACE, annotations={OBSERVE_ONLY: "restored"})
        )
        await made.store.create(settings)
        made.lead()
        made.host("h1")
        await made.node("h1")
        await settled()
        status = await made.status()
        assert status.status.message.startswith("after a restore nothing is done until `qm resume`")
        assert (await made.store.list(Assignment, NAMESPACE)).items == ()
        await made.annotate(ConfigMap, SETTINGS_NAME, OBSERVE_ONLY, None)
        await settled()
        assert (await made.status()).spec.status == "ONLINE"


@simulated()
async def test_while_a_restore_puts_objects_back_none_is_deleted_because_its_owner_is_not_there_yet() -> None:
    async with world() as made:
        await observe_only(made.store, NAMESPACE, "restored")
        owner = OwnerReference(api_version="v1", kind="ConfigMap", name="owner", uid="of-the-backup")
        metadata = ObjectMeta(name="owned", namespace=NAMESPACE, owner_references=(owner,))
        await made.store.create(ConfigMap(metadata=metadata))
        made.lead()
        await settled(30)
        assert await made.get(ConfigMap, "owned") is not None
        await made.annotate(ConfigMap, SETTINGS_NAME, OBSERVE_ONLY, None)
        await settled(30)
        assert await made.get(ConfigMap, "owned") is None


@pytest.mark.slow
@simulated()
async def test_one_node_more_costs_as_many_writes_whatever_the_size_of_the_cluster() -> None:
    costs = []
    for size in (2, 12):
        async with world() as made:
            made.lead()
            for number in range(size):
                made.host(f"h{number}")
                await made.node(f"h{number}")
            await settled(10)
            made.store.writes.clear()
            made.host("new")
            await made.node("new")
            await settled(10)
            costs.append(made.store.writes)
    # How often a status is written depends on how reports and refreshes happen to meet; what is written does not.
    assert sorted(set(costs[0])) == sorted(set(costs[1]))
    assert max(len(writes) for writes in costs) < 20
