"""New bricks of erasure-coded volumes, of which gluster counts nothing at first: when they are taken for whole.

On a modelled GlusterFS under the real plan and agents. A brick is filled there in two rounds of healing: its root, from
which on what it lacks is counted, and the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from quartermaster.backends.glusterfs import pool_agent, root_agent
from quartermaster.backends.glusterfs.facts import BRICK_MARK, OpenMove, read_memory
from quartermaster.backends.glusterfs.fake import FakeBrick
from quartermaster.backends.glusterfs.moving import decide_moves
from quartermaster.backends.glusterfs.root_agent import ROOT_VERSION
from quartermaster.backends.glusterfs.seeing import see
from quartermaster.planning.cluster import ClusterView
from quartermaster.resources.orchestration import FAILED, assignment_name
from quartermaster.resources.storage import Disperse, Replication
from tests.backends.conformance.bench import Bench

from .modelled import GIB, VOLUME, Cluster

INDEX = ".glusterfs/indices/xattrop"
ENTRY = "0a1b2c3d-0000-0000-0000-000000000001"


class Coded(Bench):
    """Volumes are kept in two parts with data and one more."""

    async def view(self) -> ClusterView:
        view = await super().view()
        return replace(
            view, settings=replace(view.settings, replication=Replication(disperse=Disperse(data=2, redundancy=1)))
        )


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two looks at a directory that is marked."""
    monkeypatch.setattr(root_agent, "_LOOK_S", 0.001)


@pytest.fixture
async def cluster(tmp_path: Path) -> Cluster:
    made = Cluster(tmp_path)
    made.bench.__class__ = Coded
    made.bench.add("h1", "h2", "h3")
    await made.bench.settle()
    made.bench.online = True
    await made.bench.make(VOLUME, GIB)
    await made.bench.work(again=True)
    return made


def filled(cluster: Cluster) -> bool:
    return VOLUME in read_memory(cluster.bench.memory).filled


def new_bricks(cluster: Cluster) -> list[FakeBrick]:
    found = cluster.gluster.volume(cluster.bench.address("h1"), VOLUME)
    return [brick for brick in found.bricks if ".m" in brick.path]


async def replaced(cluster: Cluster) -> FakeBrick:
    """A node leaves, and its brick is on another one, which is empty."""
    cluster.bench.add("h4", "h5")
    await cluster.rounds(4, healing=False)
    cluster.bench.mark("h2", deleting=True)
    for _ in range(8):
        await cluster.round(healing=False)
        if new := new_bricks(cluster):
            return new[0]
    raise AssertionError("the brick did not move")


async def test_nothing_more_moves_while_a_new_brick_is_empty_although_nothing_is_counted(cluster: Cluster) -> None:
    assert cluster.gluster.write(VOLUME, 7)
    new = await replaced(cluster)
    cluster.bench.mark("h3", deleting=True)
    plan = await cluster.rounds(12, healing=False)
    assert not new.rooted
    assert plan.degraded.holds
    assert "h3" in cluster.bricks()
    assert not filled(cluster)
    assert read_memory(cluster.bench.memory).behind == {VOLUME: (cluster.bricks().index("h4"),)}


async def test_two_nodes_that_leave_at_once_go_one_after_the_other_and_nothing_is_lost(cluster: Cluster) -> None:
    assert cluster.gluster.write(VOLUME, 7)
    cluster.bench.add("h4", "h5")
    await cluster.rounds(4)
    cluster.bench.mark("h2", deleting=True)
    cluster.bench.mark("h3", deleting=True)
    for number in range(60):
        await cluster.round(healing=number % 5 == 4)
        assert not cluster.gluster.is_lost(VOLUME)
    assert sorted(cluster.bricks()) == ["h1", "h4", "h5"]
    plan = await cluster.bench.plan()
    assert {"h2", "h3"} <= set(plan.removable)
    assert not plan.degraded.holds
    assert not [one for one in cluster.bench.assignments.values() if one.spec.agent == "glusterfs-root"]


async def test_a_move_that_waits_counts_on_the_bricks_that_are_beside_it_by_now(cluster: Cluster) -> None:
    """It was decided by a look from before one of these was replaced. The new one counts when it was filled."""
    assert cluster.gluster.write(VOLUME, 7)
    new = await replaced(cluster)
    at = cluster.bricks().index("h3")

    def decided() -> tuple[set[str], str]:
        """What it is made from, and why it waits."""
        seen = see(view)
        fact, known = seen.facts.volumes[VOLUME], seen.memory.moves[VOLUME]
        place = replace(seen.bricks[VOLUME][at], path=f"{seen.bricks[VOLUME][at].path}.m9")
        old = fact.bricks[at]
        waits = OpenMove(at, old, "h3 leaves", sources=("h2:/gone",), needed=2, place=seen.bricks[VOLUME][at])
        moved = replace(known, bricks={**known.bricks, str(at): place}, open=waits)
        found = decide_moves(replace(seen, memory=replace(seen.memory, moves={VOLUME: moved})))
        open_move = found.moved[VOLUME].open
        assert open_move is not None
        return set(open_move.sources), found.stuck.get(VOLUME, "")

    other = next(
        one.name for one in cluster.gluster.volume(cluster.bench.address("h1"), VOLUME).bricks if "h1" in one.name
    )
    cluster.bench.mark("h3", deleting=True)
    view = await cluster.bench.view()
    sources, why = decided()
    assert sources == {other}
    assert f"whether {new.name} was filled is not known yet" in why
    await cluster.rounds(8)
    assert filled(cluster)
    view = await cluster.bench.view()
    assert decided() == ({other, new.name}, "")


async def test_what_is_to_be_healed_when_the_root_has_been_is_waited_for(cluster: Cluster) -> None:
    assert cluster.gluster.write(VOLUME, 7)
    new = await replaced(cluster)
    await cluster.round()
    assert new.rooted
    await cluster.rounds(8, healing=False)
    assert not filled(cluster)
    await cluster.rounds(8)
    assert filled(cluster)


async def test_an_empty_volume_has_nothing_to_be_filled_with(cluster: Cluster) -> None:
    await replaced(cluster)
    await cluster.rounds(8, healing=False)
    assert filled(cluster)


async def test_of_a_volume_that_is_empty_by_an_older_look_nothing_is_concluded(cluster: Cluster) -> None:
    """All say that nothing is in their roots, and one has not been asked since the new brick is in its place."""
    new = await replaced(cluster)
    await cluster.round(healing=False)
    key = assignment_name("glusterfs-root", "h3", f"roots-{VOLUME}")
    one = cluster.bench.assignments[key]
    older = {**(one.spec.desired or {}), "new": ["one before"]}
    cluster.bench.assignments[key] = replace(one, spec=replace(one.spec, desired=older))
    plan = await cluster.bench.plan()
    pool = next(one for one in plan.assignments if one.agent == "glusterfs-pool" and one.config)
    assert pool.config is not None
    assert new.name not in pool.config.get("rooted", ())
    assert VOLUME in pool.config["empty"]


def mark_a_directory(cluster: Cluster) -> Callable[[], None]:
    """As whoever makes files in it does, on a brick beside the new one; the answer takes that back."""
    volume = cluster.gluster.volume(cluster.bench.address("h1"), VOLUME)
    path = next(brick.path for brick in volume.bricks if brick.address == cluster.bench.address("h1"))
    machine = cluster.bench.machines["h1"]
    number = next(number for number, known in machine.directories if known == path)
    mark = (number, f"{path}/{INDEX}/{ENTRY}")
    machine.files[mark] = b""
    machine.links.add((number, f"{path}/.glusterfs/0a/1b/{ENTRY}"))
    return lambda: machine.files.__delitem__(mark)


async def test_a_directory_that_is_marked_may_hide_what_is_in_it(cluster: Cluster) -> None:
    assert cluster.gluster.write(VOLUME, 7)
    await replaced(cluster)
    take_back = mark_a_directory(cluster)
    await cluster.rounds(8)
    assert not filled(cluster)
    take_back()
    await cluster.rounds(8)
    assert filled(cluster)


async def test_where_a_directory_is_always_marked_many_counts_of_nothing_over_minutes_have_to_do(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cluster.gluster.write(VOLUME, 7)
    await replaced(cluster)
    mark_a_directory(cluster)
    monkeypatch.setattr(pool_agent, "_QUIET_COUNTS", 3)
    await cluster.rounds(12)
    assert not filled(cluster)  # so many counts, and no minutes
    monkeypatch.setattr(pool_agent, "_QUIET_S", 0.0)
    await cluster.rounds(4)
    assert filled(cluster)


async def test_an_agent_that_may_not_read_the_root_says_so_and_nothing_is_concluded(cluster: Cluster) -> None:
    new = await replaced(cluster)
    for machine in cluster.bench.machines.values():
        for known in machine.attributes.values():
            known.pop(ROOT_VERSION, None)
            known.pop(BRICK_MARK, None)
    await cluster.rounds(6)
    assert not filled(cluster)
    told = [one for one in cluster.bench.assignments.values() if one.spec.agent == "glusterfs-root"]
    assert {one.status.state for one in told} == {FAILED}
    assert any(new.path in one.status.message for one in told)


async def test_what_is_known_survives_a_change_of_the_leader(cluster: Cluster) -> None:
    assert cluster.gluster.write(VOLUME, 7)
    await replaced(cluster)
    await cluster.rounds(10)
    assert filled(cluster)
    known = read_memory(cluster.bench.memory).filled
    plan = await cluster.bench.plan()  # by what is in the store alone
    assert read_memory(plan.memory).filled == known
