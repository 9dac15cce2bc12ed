"""What a cluster holds to, on real daemons: the size of a volume, who may use it, and what is not its own.

One cluster serves for all of it, in one test: to make it takes longer than any of these.
"""

from __future__ import annotations

import asyncio
import sys

import pytest

from quartermaster.backends.glusterfs.belonging import IDENTITY_FILE
from quartermaster.backends.glusterfs.node_agent import LABEL
from quartermaster.support.errors import CommandError
from quartermaster.testing.lab import VirtualHost
from tests.cluster.sites import PATIENCE_S, OnKubernetes, Site

from .gluster import (
    CLAIM,
    LONG_S,
    NODE,
    READ,
    SIZE,
    bricks_of,
    left_over,
    new_serial,
    pool_has,
    status_of,
    until_whole,
    with_files,
)

pytestmark = [pytest.mark.netns, pytest.mark.deep, pytest.mark.timeout(600)]

GROWN = 2 * SIZE
AT_LEAST_S = 5.0  # as long as a volume takes to be deleted
OVER = 32 << 20  # what may be written past the size until gluster notices
# Prints how many bytes are safe, and why there are no more.
FILL = """
import errno, os, sys
safe = 0
with open("/mnt/data/large", "wb", buffering=0) as file:
    try:
        while safe < int(sys.argv[1]):
            file.write(bytes(4 << 20)); os.fsync(file.fileno()); safe += 4 << 20
    except OSError as error:
        print(safe, errno.errorcode[error.errno], flush=True); os._exit(0)
print(safe, "")
"""
# With files as a brick has them, by which it is told whether anybody touched it.
OLD_BRICK = """
mkfs.xfs -q {label} {device} && mkdir -p /var/lib/old && mount {device} /var/lib/old && cd /var/lib/old &&
mkdir pvc-old && echo kept > pvc-old/file && echo '{{"cluster": "another", "node": "n", "uuid": "u"}}' > {identity} &&
cd / && umount /var/lib/old
"""
SEEN = "blkid --probe {device}; head -c 64M {device} | sha256sum"
ENTER = "mkdir -p /var/lib/seen && mount -t glusterfs {server}:/{volume} /var/lib/seen && cat /var/lib/seen/sums"


async def test_sizes_and_clients_and_what_is_not_its_own_are_respected(site: Site) -> None:
    await with_files(site)
    await writes_end_at_the_size(site)
    await the_volume_grows(site)
    await a_stranger_is_not_let_in(site)
    await disks_with_old_bricks_are_left_alone(site)
    await a_peer_joins_that_nobody_declared(site)
    await a_mounted_volume_is_not_deleted(site)
    await the_peer_is_told_and_left_alone(site)


async def shell(host: VirtualHost, script: str, *accept: int) -> str:
    result = await host.run(["sh", "-c", script], timeout_s=PATIENCE_S, accept=accept or (0,))
    return result.text


async def fill(host: VirtualHost, size: int) -> tuple[int, str]:
    result = await host.run([sys.executable, "-c", FILL, str(size)], timeout_s=PATIENCE_S)
    written, _, why = result.text.strip("\n").partition(" ")
    return int(written), why


async def writes_end_at_the_size(site: Site) -> None:
    second = site.lab.hosts[1]
    written, why = await fill(second, GROWN)
    assert why in {"EDQUOT", "ENOSPC"}
    assert SIZE // 2 < written <= SIZE + OVER
    await shell(second, f"rm /mnt/data/large; {READ}")


async def the_volume_grows(site: Site) -> None:
    second = site.lab.hosts[1]
    await site.apply(CLAIM.replace("200Mi", f"{GROWN}"))

    async def grown() -> bool:
        return int((await shell(second, "df --block-size=1 --output=size /mnt/data")).split()[-1]) > GROWN * 0.95

    await site.until("df shows the new size", grown, timeout_s=LONG_S)
    assert await fill(second, SIZE + OVER) == (SIZE + OVER, "")
    await shell(second, f"rm /mnt/data/large; {READ}")


async def a_stranger_is_not_let_in(site: Site) -> None:
    """The fourth host has not joined."""
    *_, fourth = site.lab.hosts
    volume = (await site.show("pvc", "data"))["spec"]["volumeName"]
    for server in site.lab.hosts[:3]:
        enter = ENTER.format(server=server.address, volume=volume)
        with pytest.raises(CommandError):
            await shell(fourth, enter)
    log = await shell(fourth, "cat /var/log/glusterfs/var-lib-seen.log")
    assert "AUTH_FAILED" in log or "uthentication failed" in log or "authenication failed" in log
    await shell(site.lab.hosts[2], f"{ENTER.format(server=site.first.address, volume=volume)} && umount /var/lib/seen")


async def disks_with_old_bricks_are_left_alone(site: Site) -> None:
    first = site.first
    disks = {"/dev/vdc": f"-L {LABEL}", "/dev/vdd": ""}
    for device, label in disks.items():
        await first.add_disk("1Gi", serial=new_serial(first))
        await shell(first, OLD_BRICK.format(device=device, label=label, identity=IDENTITY_FILE))
    before = [await shell(first, SEEN.format(device=device)) for device in disks]
    node = NODE.format(host=first.name)
    await site.apply(node.replace("[/dev/vdb]", "[/dev/vdb, /dev/vdc, /dev/vdd]"))

    async def told() -> bool:
        said = str((await site.show("storagenode", first.name))["status"])
        return "/dev/vdc holds data of another cluster" in said and "/dev/vdd holds data that is not ours" in said

    await site.until("the node says why it does not take them", told, timeout_s=LONG_S)
    await site.apply(node)
    await until_whole(site, 3)
    assert [await shell(first, SEEN.format(device=device)) for device in disks] == before


async def a_peer_joins_that_nobody_declared(site: Site) -> None:
    await shell(site.lab.hosts[3], "glusterd --pid-file=/run/glusterd-own.pid")
    await shell(site.first, f"gluster --mode=script peer probe {site.lab.hosts[3].address}")


async def a_mounted_volume_is_not_deleted(site: Site) -> None:
    """Kubernetes lets a claim go that no Pod uses; elsewhere the claim too stays while it is mounted."""
    hosts = site.lab.hosts[:3]
    if isinstance(site, OnKubernetes):
        name = (await site.show("pvc", "data"))["spec"]["volumeName"]
        await site.qm("delete", "pvc", "data")

        async def released() -> bool:
            return bool((await site.show("pv", name))["status"]["phase"] == "Released")

        await site.until("the volume has no claim any more", released, timeout_s=LONG_S)
        await asyncio.sleep(AT_LEAST_S)
    else:
        with pytest.raises(CommandError, match="/mnt/data"):
            await site.qm("delete", "pvc", "data", "--timeout", "3s")
    assert await bricks_of(site.first) == sorted(host.address for host in hosts)
    await shell(hosts[1], READ)
    name = (await site.show("pv"))["items"][0]["metadata"]["name"]
    await shell(hosts[2], f"mount -t glusterfs {hosts[0].address}:/{name} /var/lib/seen")
    await site.qm("volume", "unmount", "/mnt/data", host=hosts[1])

    async def told() -> bool:
        return "in use, and was not mounted by `qm` (fuse: 1)" in str(await site.show("events"))

    await site.until("it is said that somebody uses it", told, timeout_s=LONG_S)
    await shell(hosts[2], f"cd /var/lib/seen && {READ.removeprefix('cd /mnt/data && ')}")
    await site.qm("delete", "pv", name, "--force", "--no-wait")

    async def deleted() -> bool:
        return await bricks_of(site.first) == [] and [await left_over(host) for host in hosts] == [[]] * 3

    await site.until("no volume and no brick is left", deleted, timeout_s=LONG_S)
    await shell(hosts[2], "umount --lazy /var/lib/seen")


async def the_peer_is_told_and_left_alone(site: Site) -> None:
    fourth = site.lab.hosts[3]

    async def told() -> bool:
        conditions = (await status_of(site))["status"].get("conditions", ())
        return any(one["reason"] == "UnknownPeers" and fourth.address in one["message"] for one in conditions)

    await site.until("the status names the peer", told, timeout_s=LONG_S)
    assert await pool_has(site.first, 4)
    assert await pool_has(fourth, 4)
    assert await left_over(fourth) == []
    assert "vdb" not in await shell(fourth, "cat /proc/mounts")
    await shell(fourth, "blkid --probe /dev/vdb", 2)  # nothing is on its disk
