"""A hundred real volumes with nothing to do: gluster is asked three times in a pass. Counted at exec, on all hosts."""

from __future__ import annotations

import re

import pytest

from quartermaster.testing.lab import VirtualHost
from tests.cluster.sites import Site

from .gluster import CLAIM, NODE, until_whole

pytestmark = [pytest.mark.netns, pytest.mark.deep, pytest.mark.timeout(3_600)]

VOLUMES = 100
# So many have three copies, more than are counted in one run: what is to be healed is asked only of such. The others
# have one, for three hundred bricks take long to start.
WITH_COPIES = 20
CLUSTER = """apiVersion: coreos.com/v1
kind: StorageCluster
metadata: {name: gluster}
spec: {type: glusterfs, replication: {replicas: %d}}
"""
CALLS = "/var/log/gluster-calls"
WRAPPER = f"""#!/bin/sh
printf '%s\\n' "$*" >> {CALLS}
exec /var/log/gluster-itself "$@"
"""
PASSES = 6
LOOKED = "volume status all"  # ends a pass; what comes before it is asked side by side


async def count_from_now(host: VirtualHost) -> None:
    script = (
        f"cp /usr/sbin/gluster /var/log/gluster-itself && cat > /var/log/gluster-counted && : > {CALLS} && "
        "chmod +x /var/log/gluster-counted && mount --bind /var/log/gluster-counted /usr/sbin/gluster"
    )
    await host.run(["sh", "-c", script], stdin=WRAPPER.encode())


async def calls_of(host: VirtualHost) -> list[str]:
    return (await host.run(["cat", CALLS])).text.splitlines()


async def until_bound(site: Site, count: int) -> None:
    async def bound() -> bool:
        items = (await site.show("pvc"))["items"]
        return sum(item.get("status", {}).get("phase") == "Bound" for item in items) == count

    await site.until(f"{count} claims are bound", bound, timeout_s=2_400)


async def test_a_pass_over_a_hundred_volumes_with_nothing_to_do_is_three_commands(site: Site) -> None:
    hosts = site.lab.hosts[:3]
    await site.apply(CLUSTER % 3)
    for host in hosts:
        await site.apply(NODE.format(host=host.name))
    await until_whole(site, 3)
    claims = [CLAIM.replace("name: data", f"name: data{n}").replace("200Mi", "16Mi") for n in range(VOLUMES)]
    await site.apply("---\n".join(claims[:WITH_COPIES]))
    await until_bound(site, WITH_COPIES)
    await site.apply(CLUSTER % 1)
    await site.apply("---\n".join(claims[WITH_COPIES:]))
    await until_bound(site, VOLUMES)
    bricks = re.findall(r"^Brick\d+:", (await hosts[0].run(["gluster", "volume", "info"])).text, re.MULTILINE)
    assert len(bricks) == VOLUMES + 2 * WITH_COPIES
    await until_whole(site, 3)
    for host in hosts:
        await count_from_now(host)

    async def passes() -> bool:
        return sum([line.endswith(LOOKED) for host in hosts for line in await calls_of(host)]) >= PASSES

    # Long enough for what was seen while volumes were made to be too old, and for every volume to be verified.
    await site.until(f"the coordinator has looked {PASSES} times", passes, timeout_s=600)
    calls = {host.name: await calls_of(host) for host in hosts}
    (coordinator,) = (name for name, lines in calls.items() if any(line.endswith(LOOKED) for line in lines))
    first, *_, last = (at for at, line in enumerate(calls[coordinator]) if line.endswith(LOOKED))
    assert last - first <= 3 * (PASSES - 1), calls
    # Beside it each host may look once, when what it saw before is too old, and not again while nothing changes.
    assert all(len(lines) <= 1 for name, lines in calls.items() if name != coordinator), calls
