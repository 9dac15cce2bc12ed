"""Hosts come and go, are cut off and come back; agents die and are replaced."""

from __future__ import annotations

import pytest

from quartermaster.testing.lab import VirtualHost

from .conftest import MakeSite
from .sites import DISK
from .test_life import serving

pytestmark = [pytest.mark.netns, pytest.mark.deep, pytest.mark.timeout(300)]


async def test_a_fourth_host_comes_and_goes_and_the_capacity_with_it(make_site: MakeSite) -> None:
    site = await serving(make_site, hosts=3, spare=1)
    fourth = site.lab.hosts[3]
    assert await site.capacity() // DISK == 3
    await site.add(fourth)
    await site.declare(fourth)
    await site.until_online(4)
    await site.qm("delete", "storagenode", fourth.name)
    await site.until_online(3)
    await site.remove(fourth)

    async def gone() -> bool:
        return fourth.name not in await site.qm("get", "hosts")

    await site.until("the host is gone", gone)


async def test_a_host_that_is_cut_off_is_told_and_comes_back(make_site: MakeSite) -> None:
    site = await serving(make_site)
    third = site.lab.hosts[2]
    await third.cut()

    async def degraded() -> bool:
        status = (await site.show("storagestatus"))["items"][0]["status"]
        return bool(status.get("readyCount") == 2)

    await site.until("the status shows two nodes", degraded)
    await third.heal()
    await site.until_online(3)


async def test_an_agent_is_replaced_and_the_disk_stays_mounted(make_site: MakeSite) -> None:
    site = await serving(make_site)
    second = site.lab.hosts[1]
    before = await mounts_of(second)
    assert before
    await site.restart_agent(second)

    async def ready() -> bool:
        return await site.state_of_host(second) == "Ready"

    await site.until("the host reports", ready)
    assert await mounts_of(second) == before


async def mounts_of(host: VirtualHost) -> list[str]:
    table = (await host.run(["cat", "/proc/self/mountinfo"])).text
    return [line for line in table.splitlines() if "/agents/local/mounts/" in line]
