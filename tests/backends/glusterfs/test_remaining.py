"""What is said to be left of a volume when a host is given up: copies that are known to be whole, and nothing else."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from quartermaster.backends.base import Remains, hosts_now, remains_without
from quartermaster.planning.cluster import ClusterView
from quartermaster.resources.marks import ABANDON
from quartermaster.resources.storage import Disperse, Replication
from tests.backends.conformance.bench import Bench

from .modelled import VOLUME, Cluster


async def volume_on_three(directory: Path, replication: Replication | None = None) -> Cluster:
    class Kept(Bench):
        async def view(self) -> ClusterView:
            view = await super().view()
            return replace(view, settings=replace(view.settings, replication=replication))

    made = Cluster(directory)
    made.bench.__class__ = Kept
    await made.begin()
    await made.rounds(2)
    return made


async def remains(cluster: Cluster, host: str) -> Remains | None:
    driver = cluster.bench.backend.volumes()
    return remains_without(driver, await cluster.bench.view(), host).get(VOLUME)


async def test_two_copies_that_answer_and_are_healed_have_all_of_it(tmp_path: Path) -> None:
    cluster = await volume_on_three(tmp_path)
    cluster.lose("h3")
    await cluster.rounds(3)
    assert await remains(cluster, "h3") is Remains.WHOLE


async def test_a_copy_that_lacks_something_is_not_said_to_have_all_of_it(tmp_path: Path) -> None:
    cluster = await volume_on_three(tmp_path)
    cluster.lose("h2", for_good=False)
    await cluster.rounds(2, healing=False)
    assert cluster.gluster.write(VOLUME, 5)
    cluster.come_back("h2")
    await cluster.rounds(3, healing=False)
    cluster.lose("h3", for_good=False)
    cluster.lose("h1")
    await cluster.rounds(3, healing=False)
    assert await remains(cluster, "h1") is Remains.DOUBTFUL


async def test_an_arbiter_is_no_copy(tmp_path: Path) -> None:
    cluster = await volume_on_three(tmp_path, Replication(replicas=3, arbiter=True))
    first, second, _ = cluster.bricks()
    cluster.lose(first)
    cluster.lose(second, for_good=False)
    await cluster.rounds(3)
    assert await remains(cluster, first) is Remains.SILENT


async def test_one_part_of_three_of_which_two_are_needed_is_no_copy(tmp_path: Path) -> None:
    cluster = await volume_on_three(tmp_path, Replication(disperse=Disperse(data=2, redundancy=1)))
    first, second, _ = cluster.bricks()
    cluster.lose(first)
    cluster.lose(second, for_good=False)
    await cluster.rounds(3)
    assert await remains(cluster, first) is Remains.SILENT


async def test_who_gives_up_the_last_two_hosts_that_have_content_has_nothing_left(tmp_path: Path) -> None:
    cluster = await volume_on_three(tmp_path, Replication(replicas=3, arbiter=True))
    first, second, _ = cluster.bricks()
    cluster.lose(first)
    cluster.lose(second)
    cluster.bench.mark(second, {ABANDON: second}, deleting=True)
    assert await remains(cluster, first) is Remains.NOTHING


async def test_what_is_kept_once_is_nowhere_else(tmp_path: Path) -> None:
    cluster = await volume_on_three(tmp_path, Replication(replicas=1))
    (host,) = cluster.bricks()
    cluster.lose(host)
    assert await remains(cluster, host) is Remains.NOTHING


async def test_a_brick_that_has_moved_counts_where_it_is_now(tmp_path: Path) -> None:
    cluster = await volume_on_three(tmp_path)
    cluster.bench.add("h4")
    await cluster.rounds(4)
    assert await remains(cluster, "h4") is None
    cluster.bench.mark("h3", deleting=True)
    await cluster.rounds(12)
    assert sorted(cluster.bricks()) == ["h1", "h2", "h4"]
    assert await remains(cluster, "h3") is None
    now = hosts_now(cluster.bench.backend.volumes(), await cluster.bench.view())
    assert sorted(now[VOLUME]) == ["h1", "h2", "h4"]
    cluster.lose("h4")
    await cluster.rounds(2)
    assert await remains(cluster, "h4") is Remains.WHOLE


async def test_while_the_host_that_looks_at_the_pool_is_silent_nobody_knows(tmp_path: Path) -> None:
    cluster = await volume_on_three(tmp_path)
    coordinator = (await cluster.bench.plan()).memory["coordinator"]
    cluster.lose(coordinator)
    assert await remains(cluster, coordinator) is Remains.DOUBTFUL
