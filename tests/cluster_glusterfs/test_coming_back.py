"""A host is cut off, or killed, and comes back with its disks: it catches up, and no brick has moved."""

from __future__ import annotations

import pytest

from quartermaster.testing.lab import VirtualHost
from tests.cluster.sites import Site

from .gluster import (
    LONG_S,
    MOUNTED,
    READ,
    WRITE,
    bricks_of,
    left_over,
    pool_has,
    replace_disk,
    status_of,
    until_whole,
    with_files,
)
from .homes import start_again, until_the_store_outlives_a_host

pytestmark = [pytest.mark.netns, pytest.mark.deep, pytest.mark.timeout(600)]


async def until_missed(site: Site) -> None:
    async def missed() -> bool:
        found = await status_of(site)
        degraded = [one for one in found["status"].get("conditions", ()) if one["type"] == "Degraded"]
        return found["status"].get("readyCount") == 2 and any(one["status"] == "True" for one in degraded)

    await site.until("the status says that one of three is missing", missed, timeout_s=LONG_S)


async def all_is_as_it_was(site: Site, back: VirtualHost) -> None:
    """The host that was away has every file, also what was written without it."""
    hosts = site.lab.hosts[:3]
    await until_whole(site, 3)
    assert await bricks_of(hosts[0]) == sorted(host.address for host in hosts)
    assert await pool_has(hosts[0], 3)
    await hosts[1].run(["sh", "-c", READ], timeout_s=60)
    inside = "cd /var/lib/quartermaster/agents/glusterd/mounts/-/*/pvc-* && sha256sum --check --quiet sums"
    await back.run(["sh", "-c", inside])
    assert [len(await left_over(host)) for host in hosts] == [1, 1, 1]


async def test_a_host_that_was_cut_off_catches_up(site: Site) -> None:
    _, second, third, _ = site.lab.hosts
    await with_files(site)
    await until_the_store_outlives_a_host(site)
    await third.cut()
    await second.run(["sh", "-c", WRITE.format(files="4")], timeout_s=90)  # stalls until the host counts as away
    await until_missed(site)
    await second.run(["sh", "-c", READ], timeout_s=60)
    await third.heal()
    await all_is_as_it_was(site, third)


async def test_a_host_that_was_killed_and_started_again_catches_up(site: Site) -> None:
    _, second, third, _ = site.lab.hosts
    await with_files(site)
    await until_the_store_outlives_a_host(site)
    await third.kill()
    await second.run(["sh", "-c", WRITE.format(files="4")], timeout_s=90)
    await until_missed(site)
    await start_again(site, third)
    await all_is_as_it_was(site, third)


async def test_a_host_that_is_started_again_after_a_brick_was_replaced_is_of_the_pool_as_before(site: Site) -> None:
    """The glusterds have put their own names into who may mount while the brick was replaced."""
    _, second, third, _ = site.lab.hosts
    await with_files(site)
    await until_the_store_outlives_a_host(site)
    before = await second.run(["gluster", "volume", "info"])
    await second.run(["sh", "-c", f"xfs_io -x -c shutdown {MOUNTED}"])
    await replace_disk(second)

    async def is_replaced() -> bool:
        return (await third.run(["gluster", "volume", "info"])).text != before.text

    await site.until("another brick has its place", is_replaced, timeout_s=LONG_S)
    await until_whole(site, 3)
    await third.kill()
    await until_missed(site)
    await start_again(site, third)
    await until_whole(site, 3)
    assert await pool_has(site.lab.hosts[0], 3)
    await second.run(["sh", "-c", READ], timeout_s=60)
