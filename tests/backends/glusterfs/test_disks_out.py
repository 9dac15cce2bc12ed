"""A disk that is taken out: its bricks move, what is left of them is removed, and only then it is let go."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from quartermaster.backends.glusterfs.facts import read_memory
from quartermaster.host.fake.directories import FakeDirectories
from quartermaster.planning.outcomes import READY
from quartermaster.resources.orchestration import FAILED, assignment_name

from .modelled import VOLUME, Cluster

BOTH = ["/dev/vdb", "/dev/vdc"]
FIRST = f".{VOLUME}.removing"


@pytest.fixture
async def cluster(tmp_path: Path) -> Cluster:
    """h1, h2 and h3 have a copy each, h3 on its first disk of two."""
    made = Cluster(tmp_path)
    await made.begin()
    made.bench.machines["h3"].add_disk("vdc", serial="second")
    made.bench.declare("h3", devices=BOTH)
    await made.rounds(4)
    return made


def offered(cluster: Cluster) -> list[str]:
    return sorted(one.source for one in cluster.bench.machines["h3"].mounts if "glusterd" in one.target)


def bricks(cluster: Cluster) -> list[str]:
    paths = [path for _, path in cluster.bench.machines["h3"].directories]
    return sorted(name for path in paths if VOLUME in (name := path.rpartition("/")[2]))


async def moved_away(cluster: Cluster, devices: list[str]) -> None:
    """The plan knows that the copy elsewhere is whole, and no agent has removed what is left."""
    cluster.bench.declare("h3", devices=devices)
    for _ in range(8):
        plan = await cluster.bench.plan()
        cluster.bench.memory = dict(plan.memory)
        for desired in plan.assignments:
            cluster.bench.ask(desired)
        moved = read_memory(plan.memory).moves.get(VOLUME)
        if moved is not None and moved.open is None:
            return
        await cluster.bench.work(again=True)
        cluster.gluster.settle(healing=True)
    raise AssertionError("the brick does not move")


async def test_it_is_taken_back_when_it_is_listed_again(cluster: Cluster) -> None:
    cluster.bench.declare("h3", devices=["/dev/vdc"])
    await cluster.rounds(10)
    assert (offered(cluster), bricks(cluster)) == (["/dev/vdc"], [f"{VOLUME}.m1"])
    cluster.bench.declare("h3", devices=BOTH)
    plan = await cluster.rounds(4)
    assert plan.nodes["h3"].state == READY
    assert offered(cluster) == BOTH


async def test_it_stays_until_what_is_left_on_it_can_be_removed_and_its_node_says_so(cluster: Cluster) -> None:
    await moved_away(cluster, ["/dev/vdc"])
    cluster.lose("h2", for_good=False)
    plan = await cluster.rounds(4)
    assert (offered(cluster), bricks(cluster)) == (BOTH, [VOLUME, f"{VOLUME}.m1"])
    left = "what its volumes have left on it goes when every copy of them is whole"
    assert plan.nodes["h3"].message == f"the disk /dev/vdb is no longer declared, and stays: {left}"
    cluster.come_back("h2")
    plan = await cluster.rounds(8)
    assert (offered(cluster), bricks(cluster)) == (["/dev/vdc"], [f"{VOLUME}.m1"])
    assert plan.nodes["h3"].message == ""


async def test_it_stays_while_the_removal_is_at_work(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    async def cut_off(_: FakeDirectories, __: str) -> bool:
        raise TimeoutError

    with monkeypatch.context() as slow:
        slow.setattr(FakeDirectories, "_remove", cut_off)
        cluster.bench.declare("h3", devices=["/dev/vdc"])
        plan = await cluster.rounds(10)
        assert (offered(cluster), bricks(cluster)) == (BOTH, [FIRST, f"{VOLUME}.m1"])
        assert plan.nodes["h3"].message.endswith("stays: what its volumes have left on it is being removed")
    await cluster.rounds(4)
    assert (offered(cluster), bricks(cluster)) == (["/dev/vdc"], [f"{VOLUME}.m1"])


async def test_one_that_is_pulled_out_is_not_waited_for(cluster: Cluster) -> None:
    await moved_away(cluster, ["/dev/vdc"])
    cluster.lose("h2", for_good=False)
    await cluster.rounds(2)
    machine = cluster.bench.machines["h3"]
    number = machine.pull_disk("/dev/vdb").number
    machine.mounts[:] = [one for one in machine.mounts if one.number != number]
    plan = await cluster.rounds(4)
    assert offered(cluster) == ["/dev/vdc"]
    assert (plan.nodes["h3"].state, plan.nodes["h3"].message) == (READY, "")


async def test_what_a_volume_in_nobodys_books_has_left_keeps_none(cluster: Cluster) -> None:
    """Nobody will ever know whether it is whole."""
    await moved_away(cluster, ["/dev/vdc"])
    del cluster.bench.volumes[VOLUME]
    for name in [name for name, one in cluster.bench.assignments.items() if one.spec.instance == VOLUME]:
        del cluster.bench.assignments[name]
    await cluster.rounds(4)
    assert offered(cluster) == ["/dev/vdc"]
    assert VOLUME in [path.rpartition("/")[2] for _, path in cluster.bench.machines["h3"].directories]


async def test_the_last_disk_of_a_node_is_not_kept_where_its_agent_fails(cluster: Cluster) -> None:
    """That may be the fault of the disk."""
    cluster.bench.add("h4")
    await cluster.rounds(4)
    await moved_away(cluster, [])
    cluster.lose("h2", for_good=False)
    await cluster.rounds(2)
    assert offered(cluster) == ["/dev/vdb"]
    name = assignment_name("glusterd", "h3")
    status = cluster.bench.assignments[name].status
    failed = replace(status, state=FAILED, message="cannot use /dev/vdb: its file system does not answer")
    cluster.bench.assignments[name] = replace(cluster.bench.assignments[name], status=failed)
    await cluster.round()
    assert offered(cluster) == []
