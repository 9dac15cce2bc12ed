"""A GlusterFS cluster on virtual hosts with real daemons: from nothing to files that outlive a host."""

from __future__ import annotations

import pytest

from tests.cluster.sites import Site

from .gluster import CLAIM, CLUSTER, LONG_S, NODE, READ, SIZE, WRITE, bricks_of, changes, history, pool_has, until_whole
from .homes import start_again, until_the_store_outlives_a_host

pytestmark = [pytest.mark.netns, pytest.mark.slow, pytest.mark.timeout(600)]


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
    hosts = first, *others = site.lab.hosts[:3]
    await site.apply(CLUSTER)
    for host in hosts:
        await site.apply(NODE.format(host=host.name))
    await until_whole(site, 3)
    await site.apply(CLAIM)
    await site.until_bound("data")
    await until_whole(site, 3)
    versions = {item["metadata"]["name"]: item["spec"] for item in (await site.show("assignments"))["items"]}
    for host in hosts:
        await site.kill_agent(host)
    before = [await history(host) for host in hosts]
    assert any("volume create" in line for lines in before for line in lines)
    for host in (*others, first):  # the coordinator last; every configuration is run again at the start of an agent
        await start_again(site, host)

    async def commands_since() -> list[list[str]]:
        return [lines[len(old) :] for old, lines in zip(before, [await history(one) for one in hosts], strict=True)]

    async def coordinator_has_looked() -> bool:
        """At the pool and all volumes: this look is the last one of its run."""
        return any("volume status" in line for lines in await commands_since() for line in lines)

    await site.until("the pool was configured again", coordinator_has_looked, timeout_s=LONG_S)
    await until_whole(site, 3)
    assert [line for lines in await commands_since() for line in changes(lines)] == []
    assert {item["metadata"]["name"]: item["spec"] for item in (await site.show("assignments"))["items"]} == versions
