"""What is known of a cluster is bounded by what an object in the store may hold: what would exceed it is refused."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import msgspec
import pytest

from quartermaster.backends.base import Placement, Refusal
from quartermaster.backends.glusterfs.bounds import why_no_move
from quartermaster.backends.glusterfs.facts import BrickPlace, Memory, Moved, PoolFacts, VolumeFact, write_memory
from quartermaster.backends.glusterfs.seeing import see
from quartermaster.planning.cluster import ClusterPlan
from quartermaster.resources.orchestration import assignment_name

from .modelled import GIB, Cluster

CONFIG_MAP = 1 << 20
REQUEST = 3 << 19
REPORT = 1 << 20
BASE = f"/var/lib/quartermaster/agents/glusterd/mounts/-/{UUID(int=1)}"


@pytest.fixture
async def cluster(tmp_path: Path) -> Cluster:
    made = Cluster(tmp_path)
    await made.begin()
    made.bench.add("h4")
    await made.rounds(4)
    return made


def name(number: int) -> str:
    return f"pvc-{UUID(int=number)}"


def remember(cluster: Cluster, moved: int) -> int:
    """Bricks that have moved, as if there were so many; how much is remembered then."""
    place = BrickPlace("storage-node1", "storage-node1", "10.10.10.100", BASE, f"{BASE}/{name(1)}.m1")
    moves = {name(number): Moved(of=str(UUID(int=number)), count=1, bricks={"1": place}) for number in range(moved)}
    cluster.bench.memory |= write_memory(Memory(coordinator="h1", moves=moves))
    return sum(map(len, cluster.bench.memory.values()))


def report(cluster: Cluster, count: int, *, down: bool = False) -> int:
    """So many volumes beside those that are there; how much is told then."""
    of = assignment_name("glusterfs-pool", "h1")
    told = cluster.bench.assignments[of]
    facts = msgspec.convert(told.status.result, PoolFacts)
    bricks = tuple(f"10.10.10.{number}:{BASE}/{name(1)}" for number in range(100, 103))
    fact = VolumeFact(bricks, id=str(UUID(int=1)), processes=("1234567:50152",) * 3)
    if down:
        fact = msgspec.structs.replace(fact, offline=(0, 1, 2), stuck=(0, 1, 2))
    more = {name(number): fact for number in range(count)}
    result = msgspec.to_builtins(msgspec.structs.replace(facts, volumes={**facts.volumes, **more}))
    status = msgspec.structs.replace(told.status, result=result)
    cluster.bench.assignments[of] = msgspec.structs.replace(told, status=status)
    return len(msgspec.json.encode(result))


async def placed(cluster: Cluster) -> Placement | Refusal:
    return cluster.bench.backend.volumes().place(cluster.bench.request("pvc-2", GIB), await cluster.bench.view())


async def drained(cluster: Cluster, moved: int) -> ClusterPlan:
    """When it is known that the brick of that node may go."""
    cluster.bench.mark("h3", deleting=True)
    await cluster.round()
    assert remember(cluster, moved) < CONFIG_MAP
    return await cluster.bench.plan()


async def test_a_volume_is_refused_before_the_report_is_too_large(cluster: Cluster) -> None:
    report(cluster, 1500)
    assert isinstance(await placed(cluster), Placement)
    assert report(cluster, 2300) < REQUEST
    found = await placed(cluster)
    assert isinstance(found, Refusal)
    assert found.reason == "TooManyVolumes"


async def test_of_as_many_volumes_as_there_may_be_it_can_be_told_that_no_brick_runs(cluster: Cluster) -> None:
    first_refused = next(count for count in range(1500, 3000, 50) if report(cluster, count) >= REPORT)
    assert isinstance(await placed(cluster), Refusal)
    assert report(cluster, first_refused, down=True) < REQUEST * 4 // 5  # beside it there is what was asked for


async def test_a_volume_is_refused_before_too_much_is_remembered(cluster: Cluster) -> None:
    remember(cluster, 1500)
    assert isinstance(await placed(cluster), Placement)
    assert remember(cluster, 2100) < CONFIG_MAP
    found = await placed(cluster)
    assert isinstance(found, Refusal)
    assert found.reason == "TooManyVolumes"


async def test_a_brick_stays_before_too_much_is_remembered_and_the_status_says_why(cluster: Cluster) -> None:
    plan = await drained(cluster, 2500)
    assert "no more bricks can be remembered to be elsewhere" in plan.details["stuck"]
    assert "no more bricks can be remembered to be elsewhere" in plan.nodes["h3"].message
    assert "moving" not in plan.details


async def test_a_brick_moves_while_there_is_room_to_remember_it(cluster: Cluster) -> None:
    assert "moving" in (await drained(cluster, 2100)).details


async def test_one_that_is_elsewhere_already_moves_on_for_that_adds_nothing(cluster: Cluster) -> None:
    remember(cluster, 2500)
    seen, place = see(await cluster.bench.view()), BrickPlace("n", "h", "10.0.0.1", BASE, f"{BASE}/{name(1)}.m1")
    assert why_no_move(seen, Moved(count=1, bricks={"1": place}), 1) == ""
    assert why_no_move(seen, Moved(count=1, bricks={"1": place}), 2) != ""
