"""The store is thrown away, on real daemons: `qm adopt` writes down again what runs, and not a file is touched."""

from __future__ import annotations

import pytest

from tests.cluster.sites import Site

from .gluster import CLUSTER, LONG_S, READ, bricks_of, changes, history, pool_has, until_whole, with_files
from .homes import throw_the_store_away

pytestmark = [pytest.mark.netns, pytest.mark.deep, pytest.mark.timeout(600)]


async def test_the_store_is_lost_and_written_down_again_from_what_runs(site: Site) -> None:
    first, second, third, _ = site.lab.hosts
    hosts = [first, second, third]
    await with_files(site)
    capacity = await site.capacity()
    claims = (await site.show("pvc", "data"))["spec"]["resources"]
    await throw_the_store_away(site, hosts)
    await second.run(["sh", "-c", READ])

    await site.bring_up(3)

    async def hosts_are_ready() -> bool:
        states = [one.get("status", {}).get("state") for one in (await site.show("hosts"))["items"]]
        return states == ["Ready"] * 3

    await site.until("three hosts are Ready", hosts_are_ready, timeout_s=LONG_S)
    before = [await history(host) for host in hosts]
    shown = await site.qm("adopt", "glusterfs")
    assert [f"storagenode/{host.name} on host {host.name}: /dev/vdb" in shown for host in hosts] == [True] * 3
    assert (await site.show("storagenodes"))["items"] == []  # it was a dry run
    written = await site.qm("adopt", "glusterfs", "--yes")
    assert "persistentvolumeclaim/data written" in written
    await site.apply(CLUSTER)
    await until_whole(site, 3)
    await site.until_bound("data")
    assert await site.capacity() == capacity
    assert (await site.show("pvc", "data"))["spec"]["resources"] == claims
    assert await bricks_of(first) == sorted(host.address for host in hosts)
    assert await pool_has(first, 3)
    after = [await history(host) for host in hosts]
    assert [line for old, new in zip(before, after, strict=True) for line in changes(new[len(old) :])] == []
    await second.run(["sh", "-c", READ])
    await site.qm("volume", "mount", "data", "/mnt/again", host=third)
    await third.run(["sh", "-c", READ.replace("/mnt/data", "/mnt/again")])
    assert "all of it was there already" in await site.qm("adopt", "glusterfs", "--yes")
