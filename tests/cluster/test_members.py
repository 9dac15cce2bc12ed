"""The etcd that a cluster stands on, on virtual hosts: it grows with the hosts and outlives one of them.

On Kubernetes there is none.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from quartermaster.backends.etcd.tool import DAEMON
from quartermaster.support.errors import CommandError
from quartermaster.testing.lab import VirtualHost

from .conftest import MakeSite
from .sites import ROOT, Standalone
from .writing import Written

# What an election among the members takes, on a busy machine. A majority lost by us would last until the test gives up.
LONGEST_SILENCE_S = 10.0

pytestmark = [
    pytest.mark.netns,
    pytest.mark.etcd,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.parametrize("make_site", ["etcd"], indirect=True),
]


@asynccontextmanager
async def writing(host: VirtualHost, file: Path) -> AsyncIterator[None]:
    """Somebody writes all the while, and is never kept waiting for longer than an election takes."""
    log = host.directory / "logs" / "writing.log"
    argv = [sys.executable, "-m", "tests.cluster.writing", str(file)]
    writer = await host.spawn(argv, log=log, environment={"PYTHONPATH": str(ROOT)})
    yield
    assert writer.running, log.read_text()
    written = msgspec.json.decode(file.read_bytes(), type=Written)
    await writer.stop()
    assert written.longest_s < LONGEST_SILENCE_S
    assert written.times > 50


async def test_etcd_grows_to_three_and_a_host_lost_for_good_is_replaced_under_a_writer(
    make_site: MakeSite, tmp_path: Path
) -> None:
    site = await make_site(1, spare=3)
    assert isinstance(site, Standalone)
    first, second, third, fourth = site.lab.hosts
    async with writing(first, tmp_path / "written"):
        await site.add(second)
        await site.until_members(first)
        await site.add(third)
        await site.until_members(first, second, third)
        await third.kill()
        await site.add(fourth)

        async def silent() -> bool:
            return await site.state_of_host(third) != "Ready"

        await site.until("the host is missed", silent)
        await site.qm("delete", "host", third.name, "--yes")
        await site.until_members(first, second, fourth)


async def test_a_host_has_its_own_address_stays_while_it_lives_and_declares_things_where_a_member_is(
    make_site: MakeSite,
) -> None:
    site = await make_site(3, spare=1)
    assert isinstance(site, Standalone)
    first, second, third, fourth = site.lab.hosts
    await site.until_members(first, second, third)
    token = (await site.qm("token", "create")).split()[-1]
    for address in (first.address, "10.99.0.1"):
        with pytest.raises(CommandError, match=rf"cannot use {address}: this host does not have that address; it has"):
            await site.qm("join", token, "--address", address, host=fourth)
    with pytest.raises(CommandError, match=rf"cannot delete host {second.name}: it lives \(last heard"):
        await site.qm("delete", "host", second.name)
    await site.qm("join", token, host=fourth)  # the mistakes have cost no token
    assert await site.members() == [first.name, second.name, third.name]

    declared = '{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "mine"}}'
    with pytest.raises(CommandError, match="declare things on a host that carries a member of etcd"):
        await site.qm("apply", "-f", "-", host=second, stdin=declared)

    async def declares() -> bool:
        """The certificate of a leader comes a moment after the member serves."""
        await site.qm("up", host=second)
        try:
            return bool(await site.qm("apply", "-f", "-", host=second, stdin=declared))
        except CommandError:
            return False

    await site.until("things are declared on the second host", declares)


async def test_a_daemon_that_dies_is_started_again_and_one_that_lives_outlives_its_agent(make_site: MakeSite) -> None:
    site = await make_site(1)
    host = site.first
    before = process_of(host)
    await host.run(["kill", "-KILL", str(before)])

    async def back() -> bool:
        return process_of(host) != before and bool(await site.qm("get", "hosts"))

    await site.until("the agent has started etcd again", back)
    again = process_of(host)
    await site.restart_agent(host)
    assert process_of(host) == again
    assert (await host.run(["cat", f"/proc/{again}/comm"])).text == "etcd\n"


def process_of(host: VirtualHost) -> int:
    """Of the host's member, in the host's own counting."""
    record = json.loads((host.state / "daemons" / "records" / f"{DAEMON}.json").read_text())
    return int(record["pid"])
