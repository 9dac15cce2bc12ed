"""Bricks in directories that were declared, on real daemons: what is left of ours goes, and what is beside it stays."""

from __future__ import annotations

import sys

import pytest

from quartermaster.testing.lab import VirtualHost
from tests.cluster.sites import Site

from .gluster import CLAIM, CLUSTER, LONG_S, NODE, until_whole

pytestmark = [pytest.mark.netns, pytest.mark.deep, pytest.mark.timeout(600)]

BASE = "/var/lib/files/bricks"
THEIRS = "pvc-9c1d4f0e-54a1-4ac5-8f0a-0b5d5c1f6a11"
ATTEMPT = "pvc-6a6f2a7e-7c1b-4d0e-9a57-3c0f4ad1b0aa.bcdfgh"
PREPARE = f"mkfs.xfs -q -f /dev/vdb && mkdir -p /var/lib/files && mount /dev/vdb /var/lib/files && mkdir {BASE}"
MARK = f"import os; os.setxattr('{BASE}/{ATTEMPT}', 'trusted.glusterfs.volume-id', b'0123456789abcdef')"


async def inside(host: VirtualHost) -> list[str]:
    return (await host.run(["ls", BASE])).text.split()


async def test_bricks_of_a_deleted_volume_and_of_an_attempt_go_and_what_is_of_others_stays(site: Site) -> None:
    hosts = site.lab.hosts[:3]
    await site.apply(CLUSTER)
    for host in hosts:
        await host.run(["sh", "-c", PREPARE])
        await site.apply(NODE.format(host=host.name).replace("devices: [/dev/vdb]", f"directories: [{BASE}]"))
    await until_whole(site, 3)
    for host in hosts:
        await host.run(["sh", "-c", f"mkdir {BASE}/{THEIRS} {BASE}/{ATTEMPT} && echo theirs > {BASE}/{THEIRS}/file"])
        await host.run([sys.executable, "-c", MARK])
    await site.apply(CLAIM)
    await site.until_bound("data")
    volume = (await site.show("pvc", "data"))["spec"]["volumeName"]
    assert [volume in await inside(host) for host in hosts] == [True] * 3
    await site.qm("delete", "pvc", "data")

    async def only_theirs() -> bool:
        return [await inside(host) for host in hosts] == [[THEIRS]] * 3

    await site.until("nothing of ours is left", only_theirs, timeout_s=LONG_S)
    for host in hosts:
        assert (await host.run(["cat", f"{BASE}/{THEIRS}/file"])).text == "theirs\n"
    await until_whole(site, 3)
