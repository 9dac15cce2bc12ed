"""The agent of etcd on one host: what it starts, what it refuses to start, and who may do that at the same time."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from quartermaster.backends.base import AgentContext
from quartermaster.backends.etcd.agent import EtcdAgent, start_member
from quartermaster.backends.etcd.files import PEER, SERVER, tls_files
from quartermaster.backends.etcd.member import LocalMember, MemberConfig
from quartermaster.backends.etcd.tool import DAEMON
from quartermaster.host import Host
from quartermaster.host.fake import FakeMachine, fake_host
from quartermaster.resources.model import ObjectMeta
from quartermaster.resources.orchestration import Assignment, AssignmentSpec
from quartermaster.stores.kv.memory import MemoryKeyValue
from quartermaster.stores.objects import ObjectStore
from quartermaster.support.errors import HostError
from quartermaster.support.tasks import TaskGroup

CONFIG = MemberConfig(member="etcd-2", address="10.0.0.2", cluster="c", initial="etcd-2=https://10.0.0.2:2380")


class SlowToStop:
    """A daemon that ends and takes its time to be forgotten."""

    def __init__(self, machine: FakeMachine, host: Host) -> None:
        self._machine = machine
        self._daemons = host.daemons
        self.stopping = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._daemons, name)

    async def stop(self, name: str) -> bool:
        self._machine.kill(name)
        self.stopping.set()
        await asyncio.sleep(0.1)
        return await self._daemons.stop(name)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    for name in (SERVER, PEER):
        files = tls_files(tmp_path / "tls", name)
        for path in (files.authority, files.certificate, files.key):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
    (tmp_path / "etcd").mkdir()
    return tmp_path


def context(state: Path, machine: Host, config: MemberConfig | None) -> AgentContext:
    desired = msgspec.to_builtins(config) if config is not None else None
    spec = AssignmentSpec(host="h2", agent="etcd", desired=desired, absent=True if config is None else None)

    async def report(_message: str) -> None:
        """Nobody listens."""

    return AgentContext(
        host="h2",
        namespace="default",
        machine=machine,
        directory=state,
        store=ObjectStore(MemoryKeyValue()),
        assignment=Assignment(metadata=ObjectMeta(name="etcd.h2", namespace="default"), spec=spec),
        report=report,
    )


def written_by(state: Path, member: str) -> None:
    (state / "etcd" / member / "member" / "wal").mkdir(parents=True)
    (state / "etcd" / member / "member" / "wal" / "0.wal").touch()


async def test_a_member_that_has_run_is_started_with_its_data_and_never_without(state: Path) -> None:
    machine = FakeMachine()
    host, agent = fake_host(machine), EtcdAgent(state)
    begun = msgspec.structs.replace(CONFIG, begun=True)
    with pytest.raises(HostError, match="cannot start etcd-2: its data are not on this host"):
        await agent.configure_local_service(context(state, host, begun))
    assert DAEMON not in machine.processes
    assert LocalMember(state).read() is None, "nothing is written down that a later start would believe"
    written_by(state, "etcd-2")
    assert await agent.configure_local_service(context(state, host, begun)) == {"member": "etcd-2"}
    assert machine.processes[DAEMON].lives


async def test_after_a_boot_a_member_whose_disk_was_lost_is_not_started_either(state: Path) -> None:
    machine, local = FakeMachine(), LocalMember(state)
    local.write(msgspec.structs.replace(CONFIG, begun=True))
    with pytest.raises(HostError, match="its data are not on this host"):
        await start_member(local, fake_host(machine))
    await EtcdAgent(state).initialize(context(state, fake_host(machine), CONFIG))
    assert DAEMON not in machine.processes
    written_by(state, "etcd-2")
    assert await start_member(local, fake_host(machine))


async def test_a_member_that_is_taken_off_is_not_started_again_meanwhile(state: Path) -> None:
    machine, agent, local = FakeMachine(), EtcdAgent(state), LocalMember(state)
    plain = fake_host(machine)
    slow = SlowToStop(machine, plain)
    host = msgspec.structs.replace(plain, daemons=slow)
    await agent.configure_local_service(context(state, host, CONFIG))
    async with TaskGroup() as group:
        group.start(agent.destroy_local_service(context(state, host, None)))
        await slow.stopping.wait()
        assert not await start_member(local, host)
    assert DAEMON not in machine.processes
    assert local.read() is None
