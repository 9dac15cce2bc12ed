"""A volume that is to be deleted while it is used: it stays, is looked after as before, and goes by force alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from quartermaster.backends.glusterfs.reasons import IN_USE
from quartermaster.resources.marks import ABANDON, DELETE_IN_USE
from quartermaster.resources.orchestration import FAILED
from quartermaster.support.errors import HostError

from .modelled import VOLUME, Cluster, ask_for_its_end


@pytest.fixture
async def cluster(tmp_path: Path) -> Cluster:
    """Of four nodes three have a copy, and two clients that we know nothing of have it mounted."""
    made = Cluster(tmp_path)
    await made.begin()
    made.bench.add("h4")
    await made.rounds(3)
    made.gluster.volume(made.bench.address("h1"), VOLUME).mounts = 2
    return made


async def refused(cluster: Cluster) -> str:
    """The name of the assignment that is to end it, when that was tried."""
    name = await ask_for_its_end(cluster)
    await cluster.rounds(2)
    assert is_started(cluster)
    refused = cluster.bench.assignments[name].status
    assert refused.reason == IN_USE
    assert "it is in use, and was not mounted by `qm` (fuse: 2)" in refused.message
    return name


def is_started(cluster: Cluster) -> bool:
    return cluster.gluster.volume(cluster.bench.address("h1"), VOLUME).started


def is_there(cluster: Cluster) -> bool:
    return VOLUME in cluster.gluster.pool_of(cluster.bench.address("h1")).volumes


async def test_it_is_deleted_when_nobody_uses_it_any_more(cluster: Cluster) -> None:
    await refused(cluster)
    cluster.gluster.volume(cluster.bench.address("h1"), VOLUME).mounts = 0
    await cluster.rounds(2)
    assert not is_there(cluster)


async def test_it_is_deleted_by_force(cluster: Cluster) -> None:
    name = await refused(cluster)
    asked = cluster.bench.assignments[name]
    forced = replace(asked.metadata, annotations={DELETE_IN_USE: "true"})
    cluster.bench.assignments[name] = replace(asked, metadata=forced)
    await cluster.rounds(2)
    assert not is_there(cluster)


async def test_it_stays_when_its_object_is_taken_away(cluster: Cluster) -> None:
    await refused(cluster)
    del cluster.bench.volumes[VOLUME]
    await cluster.rounds(3)
    assert is_started(cluster)


async def test_it_moves_from_a_node_that_leaves(cluster: Cluster) -> None:
    await refused(cluster)
    cluster.bench.mark("h3", deleting=True)
    plan = await cluster.rounds(8)
    assert cluster.bricks() == ["h1", "h2", "h4"]
    assert "h3" in plan.removable


async def test_a_copy_that_is_lost_is_made_anew_of_one_that_is_whole(cluster: Cluster) -> None:
    await refused(cluster)
    cluster.lose("h3")
    cluster.bench.mark("h3", {ABANDON: "h3"}, deleting=True)
    plan = await cluster.bench.plan()
    assert '"needed":1' in plan.memory["moves"]
    await cluster.rounds(6)
    assert cluster.bricks() == ["h1", "h2", "h4"]


async def test_whether_it_is_used_is_asked_also_while_a_host_is_away(cluster: Cluster) -> None:
    cluster.lose("h3", for_good=False)
    await refused(cluster)


async def test_it_is_as_good_as_any_other_while_nobody_could_ask_whether_it_is_used(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy of a lost host is made anew from whole ones, and not given up for an empty one anywhere."""

    async def fails(*_: object) -> None:
        raise HostError("cannot ask gluster")

    name = await ask_for_its_end(cluster)
    with monkeypatch.context() as patch:
        patch.setattr("quartermaster.backends.glusterfs.volume_agent.Gluster.volume", fails)
        await cluster.bench.work()
    assert cluster.bench.assignments[name].status.state == FAILED
    cluster.lose("h3")
    cluster.bench.mark("h3", {ABANDON: "h3"}, deleting=True)
    assert '"needed":1' in (await cluster.bench.plan()).memory["moves"]


async def test_where_nobody_can_say_it_stays(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quartermaster.backends.glusterfs.parsing._CLIENTS", "Something else")
    name = await ask_for_its_end(cluster)
    await cluster.rounds(2)
    assert is_started(cluster)
    refused = cluster.bench.assignments[name].status
    assert refused.reason == IN_USE
    assert "nobody can say whether it is in use" in refused.message
