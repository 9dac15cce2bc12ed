"""Volumes with an arbiter and with erasure coding, on real daemons: they are laid out as asked, and outlive a host."""

from __future__ import annotations

import pytest

from tests.cluster.sites import Site

from .gluster import (
    CLAIM,
    CLUSTER,
    LONG_S,
    MOUNTED,
    NODE,
    READ,
    WRITE,
    bricks_of,
    left_over,
    new_serial,
    pool_has,
    until_whole,
)
from .homes import start_again, until_the_store_outlives_a_host

pytestmark = [pytest.mark.netns, pytest.mark.deep, pytest.mark.timeout(600)]

CALM = CLUSTER.replace("moveDataAfterSeconds: 8", "moveDataAfterSeconds: 600")
ARBITER = CALM.replace("type: glusterfs,", "type: glusterfs, replication: {replicas: 3, arbiter: true},")
DISPERSED = CALM.replace("type: glusterfs,", "type: glusterfs, replication: {disperse: {data: 2, redundancy: 1}},")
WHOLE = 4 << 20
MANY = (
    "cd /mnt/data && for d in 1 2 3; do for e in 1 2 3; do mkdir -p d$d/e$e/f && for n in $(seq 12); do "
    "head -c 20000 /dev/urandom > d$d/e$e/f/$n; done; done; done && "
    "mkdir -p a/b/c/d/e/f/g && echo deep > a/b/c/d/e/f/g/h && "
    "find . -type f ! -name all ! -name sums -exec sha256sum {} + > all && sync"
)
FILES = 111  # these, and two that were there; and two with their sums
READ_MANY = f"cd /mnt/data && sha256sum --check --quiet all && test $(wc -l < all) -eq {FILES}"
# Files of which a part is in the brick on this host.
PARTS = f"find {MOUNTED}/pvc-* -name .glusterfs -prune -o -type f -size +0 -print | wc -l"
RUNNING = "gluster --mode=script volume status all detail | grep -c '^Online *: Y'; true"
# Of one of the files, in the brick on this host.
STORED = "stat --format=%s /var/lib/quartermaster/agents/glusterd/mounts/-/*/pvc-*/file1"


async def written(site: Site, cluster: str) -> tuple[str, list[int]]:
    """What gluster says of the volume, and how much of a file each host has."""
    hosts = site.lab.hosts[:3]
    await site.apply(cluster)
    for host in hosts:
        await site.apply(NODE.format(host=host.name))
    await until_whole(site, 3)
    await site.apply(CLAIM)
    await site.qm("volume", "mount", "data", "/mnt/data", host=hosts[1])
    await hosts[1].run(["sh", "-c", WRITE.format(files="1 2")], timeout_s=60)
    info = (await site.first.run(["gluster", "--mode=script", "volume", "info"])).text
    assert await bricks_of(site.first) == sorted(host.address for host in hosts)
    return info, sorted([int((await host.run(["sh", "-c", STORED])).text) for host in hosts])


async def outlives_a_host(site: Site) -> None:
    _, second, third, _ = site.lab.hosts
    await until_the_store_outlives_a_host(site)
    await third.kill()
    await second.run(["sh", "-c", READ], timeout_s=60)
    await second.run(["sh", "-c", WRITE.format(files="3")], timeout_s=60)
    await second.run(["sh", "-c", READ], timeout_s=60)


async def test_an_arbiter_keeps_names_and_no_data(site: Site) -> None:
    info, stored = await written(site, ARBITER)
    assert "Number of Bricks: 1 x (2 + 1) = 3" in info
    assert stored == [0, WHOLE, WHOLE]
    await outlives_a_host(site)


async def test_with_erasure_coding_each_host_has_a_part(site: Site) -> None:
    info, stored = await written(site, DISPERSED)
    assert "Type: Disperse" in info
    assert stored == [WHOLE // 2] * 3
    await two_leave_at_once(site)


async def two_leave_at_once(site: Site) -> None:
    """gluster counts nothing for a new part until it begins to fill it: if the second left then, files were lost."""
    first, second, third, fourth = site.lab.hosts
    fifth = await site.lab.add_host(disks=0)
    await fifth.add_disk("1Gi", serial=new_serial(fifth))
    await second.run(["sh", "-c", MANY], timeout_s=LONG_S)
    for host in (fourth, fifth):
        await site.add(host)
        await site.apply(NODE.format(host=host.name))
    await until_whole(site, 5)
    for host in (first, third):
        await site.qm("node", "remove", host.name, "--no-wait")
    parts: dict[str, list[int]] = {}  # of each new brick and those before it, when it was first seen

    async def both_moved() -> bool:
        bricks = await bricks_of(second)
        for host in [one for one in (fourth, fifth) if one.address in bricks and one.address not in parts]:
            before = [one for one in (fourth, fifth) if one.address in parts]
            parts[host.address] = [int((await one.run(["sh", "-c", PARTS])).text) for one in before]
        return len(parts) == 2

    await site.until("both parts are elsewhere", both_moved, timeout_s=LONG_S)
    assert [count >= FILES + 2 for found in parts.values() for count in found] == [True]
    await until_whole(site, 3)
    assert await bricks_of(second) == sorted(one.address for one in (second, fourth, fifth))
    assert await pool_has(second, 3)
    assert [await left_over(one) for one in (first, third)] == [[], []]
    await site.qm("volume", "unmount", "/mnt/data", host=second)
    await site.qm("volume", "mount", "data", "/mnt/data", host=second)
    await second.run(["sh", "-c", READ_MANY], timeout_s=LONG_S)
    # Each of the new parts is needed where the other one is missing.
    await until_the_store_outlives_a_host(site)
    await fifth.kill()
    await second.run(["sh", "-c", READ_MANY], timeout_s=LONG_S)
    await start_again(site, fifth)

    async def all_run() -> bool:
        return (await second.run(["sh", "-c", RUNNING])).text.strip() == "3"

    # The status may be from before its brick ran again, and whoever has it mounted comes back to it later still.
    await site.until("all three bricks run", all_run, timeout_s=LONG_S)
    await until_whole(site, 3)
    await site.qm("volume", "unmount", "/mnt/data", host=second)
    await site.qm("volume", "mount", "data", "/mnt/data", host=second)
    await fourth.kill()
    await second.run(["sh", "-c", READ_MANY], timeout_s=LONG_S)
