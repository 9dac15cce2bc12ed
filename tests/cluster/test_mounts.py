"""Volumes on virtual hosts, mounted by the hosts that use them: with no more rights than a host has."""

from __future__ import annotations

import pytest

from quartermaster.support.errors import CommandError

from .conftest import MakeSite
from .sites import CLUSTER, Site, Standalone

pytestmark = [pytest.mark.netns, pytest.mark.slow, pytest.mark.timeout(300)]

# Nobody has chosen a host: with several nodes the class waits for the first consumer.
CLAIM = """apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], storageClassName: default-local-default, resources: {requests: {storage: 100Mi}}}
"""


async def with_a_claim(make_site: MakeSite) -> Site:
    site = await make_site(3)
    await site.apply(CLUSTER)
    for host in site.lab.hosts:
        await site.declare(host)
    await site.until_online(3)
    await site.apply(CLAIM)
    return site


async def test_a_host_mounts_a_volume_that_is_made_where_it_is_first_used(make_site: MakeSite) -> None:
    site = await with_a_claim(make_site)
    _, second, third = site.lab.hosts
    assert (await site.qm("volume", "mount", "data", "/mnt/data", host=second)).split()[-1] == "/mnt/data"
    await second.run(["sh", "-c", "echo written > /mnt/data/file && sync"])
    with pytest.raises(CommandError) as refused:
        await site.qm("volume", "mount", "data", "/mnt/data", host=third)
    assert "cannot mount data on h3: its volume is on h2; run the same command on h2" in refused.value.stderr
    (row,) = (line.split() for line in (await site.qm("volume", "list")).splitlines()[1:])
    assert row[4:6] == ["h2", "h2:/mnt/data"]

    assert await site.qm("volume", "unmount", "/mnt/data", host=second) == "/mnt/data unmounted\n"
    assert (await site.show("mounts"))["items"] == []
    await site.qm("volume", "mount", "data", "/mnt/again", host=second)
    assert (await second.run(["cat", "/mnt/again/file"])).text == "written\n"
    await site.qm("volume", "mount", "data", "/mnt/again", host=second)
    assert len((await site.show("mounts"))["items"]) == 1


# On Kubernetes it is Kubernetes itself that decides when a claim goes.
@pytest.mark.parametrize("make_site", ["etcd"], indirect=True)
async def test_a_claim_in_use_outlives_its_deletion_and_a_lost_host_is_given_up_by_name(make_site: MakeSite) -> None:
    site = await with_a_claim(make_site)
    _, second, third = site.lab.hosts
    await site.qm("volume", "mount", "data", "/mnt/data", host=second)
    await site.qm("delete", "pvc", "data", "--no-wait")
    with pytest.raises(CommandError, match=r"h2: it lives"):
        await site.qm("volume", "unmount", "data", "--gone", "h2")
    assert isinstance(site, Standalone)
    await site.until_members(*site.lab.hosts)
    await second.kill()

    async def silent() -> bool:
        return await site.state_of_host(second) != "Ready"

    await site.until("h2 is silent", silent)
    with pytest.raises(CommandError, match=r"may not speak for another host"):
        await site.qm("volume", "unmount", "data", "--gone", "h2", host=third)
    assert (await site.show("pvc"))["items"] != []
    assert await site.qm("volume", "unmount", "data", "--gone", "h2") == "/mnt/data on h2 given up\n"

    async def claim_is_gone() -> bool:
        return not (await site.show("pvc"))["items"]

    await site.until("the claim goes", claim_is_gone)
