"""What is left over is told; only what nobody was ever given is taken away."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from quartermaster.provisioning.orphans import find_orphans
from quartermaster.provisioning.term import Setup
from quartermaster.resources.kubernetes.volumes import PersistentVolume
from quartermaster.resources.model import ObjectMeta
from quartermaster.resources.orchestration import SUCCEEDED, Assignment, AssignmentSpec, AssignmentStatus
from quartermaster.testing.simulation import simulated

from .world import AGENT, NAMESPACE, TYPE, World, claim, is_bound, until


def assignment(name: str = "pvc-1", host: str = "h1", *, state: str = "", **spec: Any) -> Assignment:
    return Assignment(
        metadata=ObjectMeta(name=f"{spec.get('agent', AGENT)}-{name}.{host}", namespace=NAMESPACE),
        spec=AssignmentSpec(**{"host": host, "agent": AGENT, "instance": name, "desired": {"size": 1}, **spec}),
        status=AssignmentStatus(state=state),
    )


def verdicts(*assignments: Assignment, claims: Any = ()) -> list[str]:
    world = World()
    setup = Setup(NAMESPACE, {TYPE: world.driver}, world.view, (AGENT,), scheduled=False)
    return [orphan.verdict for orphan in find_orphans(setup, assignments, claims, (), ())]


def test_what_was_never_finished_and_has_no_claim_is_taken_away() -> None:
    assert verdicts(assignment(state="running")) == ["retire"]


def test_what_was_finished_may_hold_data_and_is_only_told() -> None:
    assert verdicts(assignment(state=SUCCEEDED)) == ["tell"]


def test_what_has_a_claim_is_only_told() -> None:
    one = claim()
    living = replace(one, metadata=replace(one.metadata, uid="1"))
    assert verdicts(assignment(), claims=[living]) == ["tell"]


def test_what_was_taken_back_from_a_lost_host_is_cleared() -> None:
    assert verdicts(assignment(absent=True, desired=None)) == ["clear"]


def test_other_services_and_the_volumes_of_other_systems_are_nobodys_orphans() -> None:
    assert verdicts(assignment("default"), assignment(agent="other-volume")) == []


@simulated()
async def test_a_volume_whose_object_was_deleted_by_hand_is_told_and_kept() -> None:
    world = World()
    await world.prepare(policy="Retain")
    async with world.running():
        await world.store.create(claim())
        await until(lambda: is_bound(world.store))
        volume = await world.volume_of()
        await world.store.delete(PersistentVolume, volume.metadata.name)
        fresh = await world.store.get(PersistentVolume, volume.metadata.name)
        await world.store.update(replace(fresh, metadata=replace(fresh.metadata, finalizers=())))
        left = (await world.assignments())[0]
        await until(lambda: _told(world, left), timeout_s=200)
    assert len(world.disks) == 1


async def _told(world: World, about: Assignment) -> bool:
    return any(reason == "OrphanedVolume" for reason, _ in await world.events_of(about))
