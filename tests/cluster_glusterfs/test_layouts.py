"""Volumes with an arbiter and with erasure coding, on real daemons: they are laid out as asked, and outlive a host."""

from __future__ import annotations

import pytest

from tests.cluster.sites import Site

from .gluster import CLAIM, CLUSTER, NODE, READ, WRITE, bricks_of, until_whole
from .homes import until_the_store_outlives_a_host

pytestmark = [pytest.mark.netns, pytest.mark.deep, pytest.mark.timeout(600)]

CALM = CLUSTER.replace("moveDataAfterSeconds: 8", "moveDataAfterSeconds: 600")
ARBITER = CALM.replace("type: glusterfs,", "type: glusterfs, replication: {replicas: 3, arbiter: true},")
DISPERSED = CALM.replace("type: glusterfs,", "type: glusterfs, replication: {disperse: {data: 2, redundancy: 1}},")
WHOLE = 4 << 20
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
    await outlives_a_host(site)
