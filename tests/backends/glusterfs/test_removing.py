"""Removing a large brick takes longer than a run of an agent has: nothing is let go before it is done."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from quartermaster.backends.glusterfs.seeing import see
from quartermaster.host.fake.directories import FakeDirectories
from quartermaster.host.fake.machine import ROOT
from quartermaster.planning.cluster import ClusterPlan, Desired
from quartermaster.resources.orchestration import RUNNING, assignment_name
from quartermaster.support.errors import HostError

from .modelled import GIB, VOLUME, Cluster

HOSTS = ("h1", "h2", "h3", "h4")
BASE = "/srv/bricks"


@pytest.fixture
def slow() -> Iterator[pytest.MonkeyPatch]:
    """Nothing that is begun comes to its end before this is undone."""

    async def cut_off(_: FakeDirectories, __: str) -> bool:
        raise TimeoutError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FakeDirectories, "_remove", cut_off)
        yield patch


async def on_disks(tmp_path: Path) -> Cluster:
    cluster = Cluster(tmp_path)
    await cluster.begin()
    cluster.bench.add("h4")
    await cluster.rounds(4)
    return cluster


def bricks_in(cluster: Cluster, host: str, base: str = "") -> list[str]:
    paths = [path for _, path in cluster.bench.machines[host].directories if path.startswith(base)]
    return [name for path in paths if "pvc" in (name := path.rpartition("/")[2])]


def of_node(plan: ClusterPlan, host: str) -> Desired:
    return next(one for one in plan.assignments if (one.agent, one.host) == ("glusterd", host))


async def test_a_node_leaves_only_when_its_agent_has_done_so(tmp_path: Path, slow: pytest.MonkeyPatch) -> None:
    cluster = await on_disks(tmp_path)
    cluster.bench.mark("h3", deleting=True)
    plan = await cluster.rounds(12)
    assert bricks_in(cluster, "h3") == [f".{VOLUME}.removing"]
    assert "h3" not in plan.removable
    assert plan.nodes["h3"].message == "what its volumes have left on it is being removed"
    slow.undo()
    plan = await cluster.rounds(4)
    assert bricks_in(cluster, "h3") == []
    assert "h3" in plan.removable


async def test_a_directory_that_is_declared_no_more_stays_until_its_agent_has_done_so(
    tmp_path: Path, slow: pytest.MonkeyPatch
) -> None:
    cluster = Cluster(tmp_path)
    bench = cluster.bench
    for host in HOSTS:
        bench.add(host, directories=[BASE])
        bench.machines[host].directories[ROOT.number, BASE] = None
    await bench.settle()
    bench.online = True
    await bench.make(VOLUME, GIB)
    await cluster.rounds(2)
    host = cluster.bricks()[1]
    bench.machines[host].directories[ROOT.number, "/srv/other"] = None
    bench.declare(host, directories=["/srv/other"])
    await cluster.rounds(10)
    assert bricks_in(cluster, host, BASE) == [f".{VOLUME}.removing"]
    slow.undo()
    await cluster.rounds(4)
    assert bricks_in(cluster, host, BASE) == []


async def test_it_is_told_until_it_is_done_and_no_longer(tmp_path: Path, slow: pytest.MonkeyPatch) -> None:
    cluster = await on_disks(tmp_path)
    base = next(iter(see(await cluster.bench.view()).node_facts["h4"].bricks))
    machine = cluster.bench.machines["h4"]
    number = next(mount.number for mount in machine.mounts if mount.target == base)
    machine.directories[number, f"{base}/.pvc-2.removing"] = None
    await cluster.rounds(2)
    assert see(await cluster.bench.view()).node_facts["h4"].removing == {base: (".pvc-2.removing",)}
    slow.undo()
    await cluster.rounds(2)
    assert see(await cluster.bench.view()).node_facts["h4"].removing == {}


async def test_nobody_waits_for_what_cannot_be_removed(tmp_path: Path, slow: pytest.MonkeyPatch) -> None:
    cluster = await on_disks(tmp_path)
    cluster.bench.mark("h3", deleting=True)
    await cluster.rounds(12)

    async def refused(_: FakeDirectories, path: str) -> bool:
        raise HostError(f"cannot remove {path}: Operation not permitted")

    slow.setattr(FakeDirectories, "_remove", refused)
    plan = await cluster.rounds(4)
    assert "h3" in plan.removable


async def test_what_is_asked_for_stands_while_the_agent_is_at_work(tmp_path: Path) -> None:
    """To ask makes what was told older than what is asked: taken back for that, it was asked for again and again."""
    cluster = await on_disks(tmp_path)
    cluster.bench.mark("h3", deleting=True)
    for _ in range(12):
        desired = of_node(await cluster.bench.plan(), "h3")
        if (desired.config or {}).get("remove"):
            break
        await cluster.round()
    assert (desired.config or {}).get("remove")
    cluster.bench.ask(desired)
    name = assignment_name("glusterd", "h3", "")
    asked = cluster.bench.assignments[name]
    at_work = replace(asked.status, state=RUNNING, observed_generation=asked.spec.generation)
    cluster.bench.assignments[name] = replace(asked, status=at_work)
    assert of_node(await cluster.bench.plan(), "h3").config == desired.config
