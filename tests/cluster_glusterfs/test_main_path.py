"""A GlusterFS cluster on virtual hosts with real daemons: from nothing to files that outlive a host."""

from __future__ import annotations

import asyncio

import pytest

from tests.cluster.sites import Site

from .gluster import CLAIM, CLUSTER, LONG_S, NODE, READ, SIZE, WRITE, bricks_of, history, pool_has, until_whole
from .homes import until_the_store_outlives_a_host

pytestmark = [pytest.mark.netns, pytest.mark.slow, pytest.mark.timeout(600)]

# Commands of gluster that leave everything as it is.
LOOKS = ("pool list", "volume info", "volume status", "volume heal")


# In `make test` the demo is this test on etcd: it does and checks the same, on hosts of the same kind.
@pytest.mark.parametrize("site", [pytest.param("etcd", marks=pytest.mark.deep), "kubernetes"], indirect=True)
async def test_files_outlive_a_host_and_the_host_that_takes_its_place_gets_them(site: Site) -> None:
    first, second, third, fourth = site.lab.hosts
    await site.apply(CLUSTER)
    for host in (first, second, third):
        await site.apply(NODE.format(host=host.name))
    await until_whole(site, 3)

    await site.apply(CLAIM)
    assert (await site.qm("volume", "mount", "data", "/mnt/data", host=first)).split()[-1] == "/mnt/data"
    size = int((await first.run(["df", "--block-size=1", "--output=size", "/mnt/data"])).text.split()[-1])
    assert abs(size - SIZE) <= SIZE // 20
    await first.run(["sh", "-c", WRITE.format(files="1 2 3")])

    await until_the_store_outlives_a_host(site)
    await third.kill()
    await first.run(["sh", "-c", READ])
    await first.run(["sh", "-c", WRITE.format(files="4")], timeout_s=60)

    await site.add(fourth)
    await site.apply(NODE.format(host=fourth.name))

    async def replaced() -> bool:
        return await bricks_of(first) == sorted(one.address for one in (first, second, fourth))

    await site.until("the fourth host has the third one's brick", replaced, timeout_s=LONG_S)

    async def silent() -> bool:
        return await site.state_of_host(third) != "Ready"

    await site.until("the third host counts as silent", silent, timeout_s=LONG_S)
    await site.qm("node", "remove", third.name, "--lost", "--yes")
    await until_whole(site, 3)
    await first.run(["sh", "-c", READ])
    await site.qm("volume", "mount", "data", "/mnt/data", host=fourth)
    await fourth.run(["sh", "-c", READ])
    await site.until("the pool has let the third host go", lambda: pool_has(first, 3), timeout_s=LONG_S)


async def test_a_second_configuration_run_changes_nothing(site: Site) -> None:
    """Counted by what glusterd itself writes down of every command that it was given."""
    await site.apply(CLUSTER)
    for host in site.lab.hosts[:3]:
        await site.apply(NODE.format(host=host.name))
    await until_whole(site, 3)
    await site.apply(CLAIM)
    await site.until_bound("data")
    await until_whole(site, 3)
    before = [await history(host) for host in site.lab.hosts[:3]]
    assert any("volume create" in line for lines in before for line in lines)
    versions = {item["metadata"]["name"]: item["spec"] for item in (await site.show("assignments"))["items"]}
    for host in site.lab.hosts[:3]:
        await site.restart_agent(host)  # every configuration is run again at the start of an agent
    await asyncio.sleep(8)
    await until_whole(site, 3)
    after = [await history(host) for host in site.lab.hosts[:3]]
    new = [line for old, lines in zip(before, after, strict=True) for line in lines[len(old) :]]
    assert [line for line in new if not any(look in line for look in LOOKS)] == []
    assert {item["metadata"]["name"]: item["spec"] for item in (await site.show("assignments"))["items"]} == versions
