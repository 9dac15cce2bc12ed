"""A host's process stands for the lead while it may; what goes wrong there costs neither its agent nor its member."""

from __future__ import annotations

import asyncio

import pytest

from quartermaster.engine.election import LEADER_LEASE
from quartermaster.engine.runtime import Runtime
from quartermaster.host import DaemonState
from quartermaster.orchestration.heartbeat import heartbeat_name
from quartermaster.orchestration.joining.certificates import HostCertificates
from quartermaster.resources import Lease
from quartermaster.stores import open_store

from .hosts import Cluster, LoopbackHost, until


@pytest.mark.slow
async def test_an_operator_that_fails_is_tried_again_and_the_agent_goes_on(
    etcd_hosts: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: list[None] = []
    usual = LoopbackHost._operator

    def failing_at_first(host: LoopbackHost, *arguments: object) -> Runtime:
        attempts.append(None)
        if len(attempts) == 1:
            raise FileNotFoundError("leader.crt")
        return usual(host, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(LoopbackHost, "_operator", failing_at_first)
    first = await etcd_hosts.begin("h1")
    async with etcd_hosts.store() as store, asyncio.timeout(30):
        while not await store.lease_held("default", LEADER_LEASE):
            await asyncio.sleep(0.05)
    assert len(attempts) >= 2
    assert first.runs


@pytest.mark.slow
async def test_a_host_that_loses_the_right_to_lead_steps_down_and_its_agent_and_member_go_on(
    etcd_hosts: Cluster,
) -> None:
    first = await etcd_hosts.begin("h1")
    store = await open_store(first.access.leader_url)
    async with asyncio.timeout(30):
        while not await store.lease_held("default", LEADER_LEASE):
            await asyncio.sleep(0.05)
        files = HostCertificates(first.directory)
        kept = {path: path.read_bytes() for path in files.directory.glob("leader.*")}
        record = (files.directory / "certificates.json").read_bytes()
        files.discard("leader")
        # No key can be made for another one, or the host would be given it within a moment.
        pending = files.directory / "pending"
        pending.rmdir()
        pending.touch()
        while await store.lease_held("default", LEADER_LEASE):
            await asyncio.sleep(0.05)
        before = (await store.get(Lease, heartbeat_name("h1"), "default")).spec.renew_time
        while (await store.get(Lease, heartbeat_name("h1"), "default")).spec.renew_time == before:
            await asyncio.sleep(0.05)
        assert first.runs
        assert (await first.machine.daemons.status("quartermaster-etcd")).state is DaemonState.RUNNING
        pending.unlink()
        for path, content in kept.items():
            path.write_bytes(content)
        (files.directory / "certificates.json").write_bytes(record)
        while not await store.lease_held("default", LEADER_LEASE):
            await asyncio.sleep(0.05)
    await store.close()
    await until(lambda: first.runs)
