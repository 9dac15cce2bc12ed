"""What runs on real daemons and is in no store: `qm adopt` writes it down, and not a file is touched."""

from __future__ import annotations

import pytest

from quartermaster.testing.lab import VirtualHost
from tests.cluster.sites import Site

from .gluster import CLUSTER, LONG_S, READ, bricks_of, changes, history, pool_has, until_whole, with_files
from .homes import throw_the_store_away

# What somebody types who has three hosts with a disk each.
SERVE = (
    "mkfs.xfs -q -f /dev/vdb && mkdir -p /srv/disk && mount /dev/vdb /srv/disk && mkdir /srv/disk/bricks && glusterd"
)
BY_HAND = """
until gluster pool list; do sleep 0.2; done
gluster peer probe {second} && gluster peer probe {third}
until [ "$(gluster pool list | grep -c Connected)" = 3 ]; do sleep 0.2; done
gluster --mode=script volume create photos replica 3 {bricks} && gluster volume start photos
mkdir /mnt/photos && mount -t glusterfs {first}:/photos /mnt/photos
cd /mnt/photos && head -c 4M /dev/urandom > file && sha256sum file > sums
"""
READ_PHOTOS = "cd /mnt/photos && sha256sum --check --quiet sums"

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


async def test_a_pool_that_somebody_made_by_hand_is_taken_over_as_it_is(site: Site) -> None:
    hosts = site.lab.hosts[:3]
    first, second, third = hosts
    for host in hosts:
        await host.run(["sh", "-ec", SERVE], timeout_s=LONG_S)
    bricks = " ".join(f"{host.address}:/srv/disk/bricks/photos" for host in hosts)
    script = BY_HAND.format(first=first.address, second=second.address, third=third.address, bricks=bricks)
    await first.run(["sh", "-ec", script], timeout_s=LONG_S)
    daemons = [(await host.run(["pgrep", "-x", "glusterd"])).text for host in hosts]
    before = await options_of(first)

    shown = await site.qm("adopt", "glusterfs", "--cluster", "old", "--yes")
    assert "persistentvolume/photos written" in shown
    await until_whole(site, 3)
    assert [name for name in await options_of(first) if name not in before] == [
        "user.quartermaster.adopted",
        "user.quartermaster.owner",
        "user.quartermaster.size",
    ]
    assert await bricks_of(first) == sorted(host.address for host in hosts)
    assert [(await host.run(["pgrep", "-x", "glusterd"])).text for host in hosts] == daemons
    (volume,) = (await site.show("pv"))["items"]
    assert (volume["metadata"]["name"], volume["spec"]["persistentVolumeReclaimPolicy"]) == ("photos", "Retain")
    await first.run(["sh", "-c", READ_PHOTOS])


async def options_of(host: VirtualHost) -> list[str]:
    """Those of the volume `photos` that were set."""
    shown = (await host.run(["gluster", "--mode=script", "volume", "info", "photos"])).text
    _, _, options = shown.partition("Options Reconfigured:")
    return sorted(line.partition(":")[0] for line in options.split("\n") if ": " in line)
