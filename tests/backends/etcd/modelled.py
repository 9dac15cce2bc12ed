"""Leaders, agents and modelled machines in the simulation's loop, with a twin of etcd between them.

The store is in memory, so that leaders can be killed at each of their steps; the twin keeps etcd's own rules.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from quartermaster.backends.etcd.agent import EtcdAgent
from quartermaster.backends.etcd.fake import FakeEtcd, FakeUsers
from quartermaster.backends.etcd.files import PEER, SERVER, tls_files
from quartermaster.backends.etcd.maintenance import Maintenance, Schedule
from quartermaster.backends.etcd.manager import EtcdManager
from quartermaster.backends.etcd.member import LocalMember, MemberConfig, initial_cluster
from quartermaster.backends.etcd.membership import EtcdSettings, Membership
from quartermaster.backends.etcd.memory import MEMORY_NAME, Memory, first_memory, from_object, to_object
from quartermaster.backends.etcd.rights import Rights
from quartermaster.backends.etcd.tool import DAEMON
from quartermaster.engine.controller import Scope
from quartermaster.engine.election import Election
from quartermaster.engine.runtime import Runtime
from quartermaster.host import Daemon, DaemonRuntime, DaemonStatus, Facts
from quartermaster.host import Host as Machine
from quartermaster.host.fake import FakeCommands, FakeMachine, Faults, Moment, fake_host
from quartermaster.orchestration.agent import AgentRuntime
from quartermaster.orchestration.leader import Orchestrator
from quartermaster.orchestration.timings import Timings
from quartermaster.planning.health import HostHealth
from quartermaster.resources.kubernetes.core import ConfigMap
from quartermaster.resources.orchestration import Host
from quartermaster.stores.kv.memory import MemoryKeyValue
from quartermaster.stores.objects import ObjectStore
from quartermaster.testing.simulation import Process, simulation_loop
from quartermaster.testing.simulation.process import PROCESS
from tests.orchestration.samples import still_facts

TIMINGS = Timings(
    heartbeat_s=1.0, unhealthy_after_s=6.0, move_data_after_s=30.0, debounce_s=0.0, verify_s=20.0, inventory_s=600.0
)
SETTINGS = EtcdSettings(look_s=5.0, step_s=0.5, dead_after_s=30.0, prepare_s=20.0, unfit_s=60.0)
LEADERS = ("leader-0", "leader-1")
_FACTS = Facts(
    name="m",
    addresses=(),
    boot="b",
    kernel="6",
    architecture="x86_64",
    distribution="Linux",
    memory=1 << 30,
    cores=1,
    root=True,
    systemd=False,
    tools={},
)


class Steps:
    """Counts what leaders do that others can see, and kills the one that is about to do the chosen one."""

    def __init__(self, kill_at: int | None = None) -> None:
        self.seen: list[str] = []
        self._kill_at = kill_at

    def note(self, name: str) -> None:
        process = PROCESS.get()
        if process is None or process.name not in LEADERS:
            return
        if len(self.seen) == self._kill_at:
            process.kill()
        self.seen.append(name)

    async def before(self, call: str, key: str) -> None:
        if call == "transact" and "/leases/" not in key and "/events/" not in key:
            self.note(f"write {key}")
        await asyncio.sleep(0)

    async def after(self, call: str, key: str) -> None:
        await asyncio.sleep(0)

    async def deliver(self, key: str) -> None:
        await asyncio.sleep(0)

    def plan(self, _number: int, name: str) -> Moment | None:
        if name.startswith(("add", "promote", "remove")):
            self.note(name)
        return None


class Disk:
    """What etcd does to its directory. It notes a member that is started again without what it wrote before."""

    def __init__(self, made: ModelledCluster, daemons: DaemonRuntime) -> None:
        self._made = made
        self._daemons = daemons

    def __getattr__(self, name: str) -> Any:
        return getattr(self._daemons, name)

    async def ensure(self, daemon: Daemon) -> DaemonStatus:
        argv = daemon.argv
        member, data, state = (
            argv[argv.index(flag) + 1] for flag in ("--name", "--data-dir", "--initial-cluster-state")
        )
        log = Path(data, "member", "wal")
        if not (await self._daemons.status(daemon.name)).running:
            if not log.exists() and (member in self._made.started or (state == "new" and self._made.started)):
                self._made.etcd.violations.append(f"{member} was started without its data, as {state}")
            self._made.started[member] = None
        status = await self._daemons.ensure(daemon)
        log.mkdir(parents=True, exist_ok=True)
        (log / "0.wal").touch()
        return status


class ModelledCluster:
    def __init__(self, directory: Path, *, kill_at: int | None = None, tool_faults: Faults | None = None) -> None:
        self.steps = Steps(kill_at)
        self.kv = MemoryKeyValue(faults=self.steps)
        self.store = ObjectStore(self.kv)
        self.machines: dict[str, FakeMachine] = {}
        self.etcd = FakeEtcd(self.machines)
        self.etcd.faults = tool_faults or Faults(self.steps.plan)
        self.users = FakeUsers()
        self.processes: dict[str, Process[None]] = {}
        self.certified: Callable[[str], bool] = lambda _host: True
        self.directory = directory
        self.started: dict[str, None] = {}  # the members that ever ran

    async def begin(self) -> None:
        """What `qm up` does on h1."""
        config = MemberConfig(member="etcd-1", address=address("h1"), cluster="c", new_cluster=True)
        self.machine("h1")
        local = LocalMember(self._state("h1"))
        named = MemberConfig(
            member="etcd-1",
            address=config.address,
            cluster="c",
            new_cluster=True,
            initial=initial_cluster([("etcd-1", config.peer_url)]),
        )
        local.write(named)
        await self.with_disk(fake_host(self.machines[address("h1")])).daemons.ensure(local.daemon(named))
        local.write(replace(named, new_cluster=False, begun=True))
        self.etcd.bootstrap("etcd-1", config.peer_url, config.client_url)
        await self.store.create(to_object(first_memory("c", "h1", named), "default"))

    def lead(self, name: str) -> None:
        self._start(name, self._candidate(name))

    def host(
        self, name: str, *, labels: dict[str, str] | None = None, etcd: bool = True, claims: str = "", has: str = ""
    ) -> None:
        """An agent on a machine, which is made if it is new; it may claim an address, and find that it has another."""
        machine = self.machine(name)
        commands = FakeCommands()
        if etcd:
            commands.answer("etcd", "--version", stdout="etcd Version: 3.6.0\n")
        state = self._state(name)

        async def agent() -> None:
            await AgentRuntime(
                ObjectStore(self.kv, manager=name),
                name,
                self.with_disk(fake_host(machine, commands=commands)),
                [EtcdAgent(state)],
                directory=state,
                addresses=(claims or address(name),),
                labels=labels,
                timings=TIMINGS,
                facts=still_facts(replace(_FACTS, addresses=(has,) if has else ())),
            ).run()

        self._start(name, agent())

    def machine(self, name: str) -> FakeMachine:
        return self.machines.setdefault(address(name), FakeMachine())

    def lose(self, name: str) -> None:
        """The machine with all that ran on it."""
        self.processes[name].kill()
        self.machine(name).reboot()

    def with_disk(self, machine: Machine) -> Machine:
        return replace(machine, daemons=Disk(self, machine.daemons))

    def wipe(self, name: str) -> None:
        """A new machine takes its place, or it has lost its disk: certificates are given again, data are not."""
        shutil.rmtree(self._state(name) / "etcd")

    async def take_out(self, name: str) -> None:
        """Somebody deletes the Host of a machine that is gone."""
        await self.store.delete(Host, name, "default")

    async def memory(self) -> Memory:
        return from_object(await self.store.get(ConfigMap, MEMORY_NAME, "default"))

    async def settle(self, *hosts: str, timeout_s: float = 300.0) -> Memory:
        """Until exactly these hosts carry a member, and nothing moves any more."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        while True:
            memory = await self.memory()
            serving = sorted(seat.host for seat in memory.seats if seat.phase == "serving")
            voters = sorted(name for name in (host_of(one.peer_urls[0]) for one in self.etcd.voters))
            if serving == voters == sorted(hosts) and len(memory.seats) == len(serving):
                return memory
            assert asyncio.get_running_loop().time() < deadline, f"wanted {hosts}: {memory.seats}, {voters}"
            await asyncio.sleep(0.5)

    async def until_there(self, host: str, phase: str) -> None:
        """Until a member on that host is in that phase, or there is none."""
        async with asyncio.timeout(300.0):
            while phase != "".join(seat.phase for seat in (await self.memory()).seats if seat.host == host):
                await asyncio.sleep(0.5)

    def daemons(self) -> list[str]:
        """The hosts on which a member runs."""
        return sorted(
            host_of(f"//{where}:1")
            for where, machine in self.machines.items()
            if DAEMON in machine.processes and machine.processes[DAEMON].lives
        )

    async def stop(self) -> None:
        for process in self.processes.values():
            if not process.killed:
                process.task.cancel()
                await asyncio.wait([process.task])

    def _start(self, name: str, work: object) -> None:
        self.processes[name] = simulation_loop().start_process(name, work)  # type: ignore[arg-type]

    async def _candidate(self, name: str) -> None:
        store = ObjectStore(self.kv, manager=name)
        election = Election(store, name="leader", identity=name, lease_s=5, retry_s=1.0)
        runtime = Runtime(store, election=election)
        runtime.add(Orchestrator([self._build], TIMINGS, reads=[ConfigMap]))
        await runtime.run()

    def _build(self, scope: Scope, health: HostHealth) -> EtcdManager:
        rights = Rights(self.users, scope.caches.of(Host, "default"), forget_s=60.0)
        membership = Membership(
            scope,
            health,
            self.etcd,
            rights,
            namespace="default",
            certified=lambda host: self.certified(host),
            settings=SETTINGS,
        )
        schedule = Schedule(compact_s=20.0, defragment_s=60.0, defragment_from=1000)
        maintenance = Maintenance(self.etcd, schedule)
        return EtcdManager(scope, membership, rights, maintenance, namespace="default", settings=SETTINGS)

    def _state(self, name: str) -> Path:
        """With certificates that only have to be there."""
        state = self.directory / name
        for certificate in (SERVER, PEER):
            files = tls_files(state / "tls", certificate)
            for path in (files.authority, files.certificate, files.key):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()
        (state / "etcd").mkdir(exist_ok=True)
        return state


def address(host: str) -> str:
    return f"10.0.0.{int(host.removeprefix('h'))}"


def host_of(url: str) -> str:
    return f"h{url.partition('//')[2].rpartition(':')[0].rpartition('.')[2]}"


@asynccontextmanager
async def modelled(*hosts: str) -> AsyncIterator[ModelledCluster]:
    """A leader, and agents on these hosts, of which h1 has made the cluster."""
    with tempfile.TemporaryDirectory() as directory:
        made = ModelledCluster(Path(directory))
        await made.begin()
        made.lead(LEADERS[0])
        for name in hosts:
            made.host(name)
        yield made
        await made.stop()
