"""A cluster on virtual hosts from nothing to a volume that was written to; test_mounts has the same in `make test`."""

from __future__ import annotations

import pytest

from .conftest import MakeSite
from .sites import CLUSTER, Site

pytestmark = [pytest.mark.netns, pytest.mark.deep, pytest.mark.timeout(300)]


async def serving(make_site: MakeSite, hosts: int = 3, spare: int = 0) -> Site:
    site = await make_site(hosts, spare)
    await site.apply(CLUSTER)
    for host in site.lab.hosts[:hosts]:
        await site.declare(host)
    await site.until_online(hosts)
    return site


async def test_from_nothing_to_a_volume_that_was_written_to(make_site: MakeSite) -> None:
    site = await serving(make_site)
    second = site.lab.hosts[1]
    await site.claim("data", second)
    await site.until_bound("data")
    mounted = (await site.qm("volume", "mount", "data", "/run/data", host=second)).split()[-1]
    await second.run(["sh", "-c", f"echo written > {mounted}/file && sync"])
    assert (await second.run(["cat", f"{mounted}/file"])).text == "written\n"
    await site.qm("volume", "unmount", "/run/data", host=second)
    again = (await site.qm("volume", "mount", "data", "/run/data", host=second)).split()[-1]
    assert (await second.run(["cat", f"{again}/file"])).text == "written\n"
