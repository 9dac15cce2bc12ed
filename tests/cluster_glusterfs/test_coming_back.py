"""A host is cut off, or killed, and comes back with its disks: it catches up, and no brick has moved. One that was
given up meanwhile has nothing of the pool any more.
"""

from __future__ import annotations

import pytest

from quartermaster.testing.lab import VirtualHost
from tests.cluster.sites import Site

from .gluster import (
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


@pytest.mark.parametrize("dies", ["host", "glusterd"])
async def test_what_died_while_a_volume_was_written_down_has_it_from_its_peers(site: Site, dies: str) -> None:
    """gluster removes the file of the old brick before it writes that of the new one."""
    first, second, third, _ = site.lab.hosts
    await with_files(site)
    await until_the_store_outlives_a_host(site)
    if dies == "host":
        await third.kill()
    else:  # its bricks go on
        await third.run(["pkill", "-STOP", "-f", "quartermaster agent|qm agent"])
        await third.run(["pkill", "-KILL", "-x", "glusterd"])
    volumes = third.state / "agents" / "glusterd" / "glusterd" / "vols"
    (record,) = volumes.glob(f"*/bricks/{first.address}:*")
    record.unlink()
    if dies == "host":
        await start_again(site, third)
    else:
        await third.run(["pkill", "-CONT", "-f", "quartermaster agent|qm agent"])

    async def has_it() -> bool:
        return record.exists()

    await site.until("it has the volume from its peers", has_it, timeout_s=LONG_S)
    await second.run(["sh", "-c", WRITE.format(files="4")], timeout_s=90)
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


# As an adopted volume has none, or one that was made on two nodes: nothing ends the bricks of a host that is cut off.
WITHOUT_QUORUM = "gluster --mode=script volume reset {volume} cluster.server-quorum-type"


async def held_by_gluster(host: VirtualHost) -> list[str]:
    """All of gluster that runs there, and what it has mounted. Nobody mounts a volume there."""
    script = "pgrep --list-full ^gluster; grep -F /agents/glusterd/mounts/ /proc/mounts; true"
    return (await host.run(["sh", "-c", script])).text.splitlines()


async def until_free(site: Site, host: VirtualHost) -> None:
    async def is_free() -> bool:
        return await held_by_gluster(host) == []

    await site.until("no glusterd, no brick and no mount is left where it was given up", is_free, timeout_s=LONG_S)


async def until_refused(site: Site, host: VirtualHost) -> None:
    async def refused() -> bool:
        said = (await site.show("storagenode", host.name)).get("status", {}).get("message", "")
        return "/dev/vdb holds data of another cluster, or of an earlier life of this one" in said

    await site.until("the old brick on its disk is refused with the reason", refused, timeout_s=LONG_S)


async def written_to(host: VirtualHost) -> list[str]:
    """The files in the brick on its disk, which is mounted no more."""
    script = "mkdir -p /run/old && mount -o ro /dev/vdb /run/old && ls /run/old/pvc-* && umount /run/old"
    return (await host.run(["sh", "-c", script])).text.split()


@pytest.mark.parametrize("quorum", [True, False], ids=["with_server_quorum", "without_server_quorum"])
async def test_a_host_that_was_cut_off_and_given_up_serves_nothing_when_it_is_back(site: Site, quorum: bool) -> None:
    first, second, third, fourth = site.lab.hosts
    remaining = (first, second, fourth)
    await with_files(site)
    await until_the_store_outlives_a_host(site)
    if not quorum:
        volume = (await site.show("pvc", "data"))["spec"]["volumeName"]
        await first.run(["sh", "-c", WITHOUT_QUORUM.format(volume=volume)], timeout_s=LONG_S)
    await third.cut()
    await second.run(["sh", "-c", WRITE.format(files="4")], timeout_s=90)
    await until_missed(site)
    await site.add(fourth)
    await site.apply(NODE.format(host=fourth.name))
    await site.qm("node", "remove", third.name, "--lost", "--yes")
    await until_whole(site, 3)
    await second.run(["sh", "-c", WRITE.format(files="5")], timeout_s=90)
    assert any("glusterfsd" in line for line in await held_by_gluster(third)) is not quorum

    await third.heal()
    await until_free(site, third)
    await until_whole(site, 3)
    assert await pool_has(first, 3)
    assert await bricks_of(first) == sorted(one.address for one in remaining)
    await second.run(["sh", "-c", READ], timeout_s=60)

    await site.apply(NODE.format(host=third.name))
    await until_refused(site, third)
    assert await written_to(third) == ["file1", "file2", "file3", "sums"]
    await third.run(["wipefs", "--all", "/dev/vdb"])
    consent = f"[/dev/vdb], wipe: [{third.disks[0].stand_in.serial}]"
    await site.apply(NODE.format(host=third.name).replace("[/dev/vdb]", consent))
    await until_whole(site, 4)
    assert await pool_has(first, 4)
    assert [len(await left_over(one)) for one in (*remaining, third)] == [1, 1, 1, 0]
    await second.run(["sh", "-c", READ], timeout_s=60)
