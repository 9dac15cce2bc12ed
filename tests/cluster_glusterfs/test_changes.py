"""Nodes and disks of a GlusterFS cluster come and go, on real daemons; the files stay."""

from __future__ import annotations

import pytest

from tests.cluster.sites import Site

from .gluster import (
    CLAIM,
    LONG_S,
    MOUNTED,
    NODE,
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

pytestmark = [pytest.mark.netns, pytest.mark.deep, pytest.mark.timeout(600)]
DISK = 900 << 20


async def test_a_fourth_node_comes_and_the_one_that_kept_the_volume_goes(site: Site) -> None:
    first, second, third, fourth = site.lab.hosts
    await with_files(site)
    before = await site.capacity()
    assert before // DISK == 3
    await site.add(fourth)
    await site.apply(NODE.format(host=fourth.name))
    await until_whole(site, 4)
    assert (await site.capacity()) // DISK == 4

    await site.qm("node", "remove", first.name)
    await until_whole(site, 3)
    assert await site.capacity() == before
    assert await bricks_of(second) == sorted(one.address for one in (second, third, fourth))
    assert await pool_has(second, 3)
    assert await left_over(first) == []
    await second.run(["sh", "-c", READ])

    # Its bricks are elsewhere by now than where it was made: there it grows, and from there it is mounted.
    await site.apply(CLAIM.replace("200Mi", "300Mi"))

    async def grown() -> bool:
        found = (await site.show("pvc", "data"))["status"]
        shown = await second.run(["df", "--block-size=1M", "--output=size", "/mnt/data"])
        return found["capacity"]["storage"] == "300Mi" and shown.text.split()[-1] == "300"

    await site.until("the volume has grown", grown, timeout_s=LONG_S)
    servers = (await status_of(site))["spec"]["glusterfs"]["details"]["servers"].split(", ")
    assert sorted(servers) == sorted(one.address for one in (second, third, fourth))
    await site.qm("volume", "unmount", "/mnt/data", host=second)
    await site.qm("volume", "mount", "data", "/mnt/data", host=first)  # which is no node any more
    await first.run(["sh", "-c", READ])
    mounted = (await first.run(["findmnt", "--noheadings", "--output=source", "/mnt/data"])).text.partition(":")[0]
    assert mounted in servers

    await site.qm("volume", "unmount", "/mnt/data", host=first)
    await site.qm("delete", "pvc", "data")

    async def nothing_left() -> bool:
        return await bricks_of(second) == [] and [await left_over(one) for one in (second, third, fourth)] == [[]] * 3

    await site.until("no volume and no brick is left", nothing_left, timeout_s=LONG_S)
    await site.apply(NODE.format(host=first.name))  # with its disk as it left it
    await until_whole(site, 4)
    assert (await site.capacity()) // DISK == 4


async def test_a_disk_dies_and_a_blank_one_takes_its_place(site: Site) -> None:
    _, second, third, _ = site.lab.hosts
    await with_files(site)
    await third.run(["sh", "-c", f"xfs_io -x -c shutdown {MOUNTED}"])
    await second.run(["sh", "-c", READ])
    await second.run(["sh", "-c", WRITE.format(files="4")], timeout_s=60)

    async def missed() -> bool:
        conditions = (await status_of(site))["status"].get("conditions", ())
        return any(one["type"] == "Degraded" and one["status"] == "True" for one in conditions)

    await site.until("the status says that something is missing", missed, timeout_s=LONG_S)
    await replace_disk(third)
    await until_whole(site, 3)
    await second.run(["sh", "-c", READ])
    sums = await third.run(["sh", "-c", f"cd {MOUNTED}/pvc-* && sha256sum -c sums"])
    assert "FAILED" not in sums.text
    assert await bricks_of(second) == sorted(one.address for one in site.lab.hosts[:3])
    assert [len(await left_over(one)) for one in site.lab.hosts[:3]] == [1, 1, 1]
    assert await pool_has(second, 3)
