"""Hosts with a real etcd each, on loopback addresses of their own: agent, candidate for the lead, way in for others.

All in this process, so that a test can end a host's processes at a line of its choice; the members are daemons and
live on, as they do when a real agent dies.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from quartermaster.backends.etcd.membership import EtcdSettings
from quartermaster.backends.etcd.memory import MEMORY_NAME, Memory, from_object
from quartermaster.backends.etcd.tool import DAEMON
from quartermaster.engine.runtime import Runtime
from quartermaster.host import open_host
from quartermaster.operators.assembly import operator_runtime
from quartermaster.operators.hosting import HostProcess
from quartermaster.operators.settings import HostSettings
from quartermaster.orchestration.joining.access import StoreAccess, read_access
from quartermaster.orchestration.joining.authority import load_authority
from quartermaster.orchestration.joining.bootstrap import bootstrap
from quartermaster.orchestration.joining.client import join
from quartermaster.orchestration.joining.tokens import create_token, encode
from quartermaster.orchestration.joining.wire import PORT
from quartermaster.orchestration.timings import Timings
from quartermaster.resources.kubernetes.core import ConfigMap
from quartermaster.stores import open_store
from quartermaster.stores.base import Store
from quartermaster.support.errors import ForbiddenError
from quartermaster.support.tasks import TaskGroup

FLAGS = ("--unsafe-no-fsync", "--heartbeat-interval=50", "--election-timeout=500")
TIMINGS = Timings(
    heartbeat_s=0.5,
    unhealthy_after_s=5.0,
    move_data_after_s=8.0,
    debounce_s=0.0,
    sweep_s=30.0,
    verify_s=2.0,
    daemons_s=1.0,
)
SETTINGS = EtcdSettings(
    look_s=1.0, step_s=0.1, dead_after_s=8.0, prepare_s=40.0, unfit_s=60.0, settle_s=12.0, flags=FLAGS
)


_NUMBERS = itertools.count()


class LoopbackHost:
    """One host: its state directory, its address, and what runs on it."""

    def __init__(self, directory: Path, name: str, address: str, zone: str = "") -> None:
        self.name = name
        self.address = address
        self.directory = directory / name
        self.machine = open_host(self.directory, device_root=_empty(directory / "devices"))
        self.labels = {"topology.kubernetes.io/zone": zone} if zone else {}
        self.settings = SETTINGS
        self._tasks: list[asyncio.Task[None]] = []
        self._group: TaskGroup | None = None

    @property
    def addresses(self) -> list[str]:
        # Peers on loopback call from 127.0.0.1 whatever their own address is.
        return [self.address, "127.0.0.1"]

    @property
    def access(self) -> StoreAccess:
        found = read_access(self.directory)
        assert found is not None
        return found

    def start(self, group: TaskGroup) -> None:
        """What `qm agent` runs, with an operator that is quicker to act than people would like it to be."""
        settings = HostSettings(name=self.name, addresses=tuple(self.addresses), labels=self.labels, timings=TIMINGS)
        process = HostProcess(self.directory, settings, self.machine, operator=self._operator)
        self._tasks = [group.start(process.run(), name=self.name)]

    async def kill(self) -> None:
        """The host's process is gone between two lines; its daemons live on."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=10)
        self._tasks = []

    async def lose(self) -> None:
        """The whole host is gone for good."""
        await self.kill()
        await self.machine.daemons.stop(DAEMON)

    @property
    def runs(self) -> bool:
        return bool(self._tasks) and not any(task.done() for task in self._tasks)

    def wipe(self) -> None:
        """Another machine, of the same name and address: nothing that was on this one is there."""
        shutil.rmtree(self.directory)

    def _operator(self, store: Store, access: StoreAccess | None) -> Runtime:
        return operator_runtime(
            store,
            backends=(),
            timings=TIMINGS,
            access=access,
            etcd=self.settings,
            identity=self.name,
            lease_s=3,
            retry_s=1.0,
        )


class Cluster:
    """Hosts h1, h2 … of which the first makes the cluster and the others join."""

    def __init__(self, directory: Path, group: TaskGroup) -> None:
        self.directory = directory
        self.hosts: dict[str, LoopbackHost] = {}
        self.settings = SETTINGS
        self._group = group
        # Every test its own addresses: two runs on one machine do not meet, nor does one with what another left.
        pid, number = os.getpid(), next(_NUMBERS)
        self._network = f"127.{pid % 200 + 20}.{(pid // 200 * 16 + number) % 250 + 1}"

    def host(self, name: str, zone: str = "") -> LoopbackHost:
        number = int(name.removeprefix("h"))
        made = LoopbackHost(self.directory, name, f"{self._network}.{number}", zone)
        made.settings = self.settings
        self.hosts[name] = made
        return made

    async def begin(self, name: str = "h1", zone: str = "", *, flags: Sequence[str] = ()) -> LoopbackHost:
        first = self.host(name, zone)
        await bootstrap(
            first.directory, name, first.addresses, machine=first.machine, flags=(*self.settings.flags, *flags)
        )
        first.start(self._group)
        return first

    async def add(self, name: str, zone: str = "", *, token: str = "", claims: str = "") -> LoopbackHost:
        """Its agent may claim another address than the one that the host came in with."""
        new = self.host(name, zone)
        await join(new.directory, token or await self.token(), host=name, addresses=new.addresses)
        new.address = claims or new.address
        new.start(self._group)
        return new

    async def token(self, **options: object) -> str:
        async with self.store() as store:
            memory = from_object(await store.get(ConfigMap, MEMORY_NAME, "default"))
            authority = await load_authority(store, "default")
            addresses = tuple(f"{seat.config.address}:{PORT}" for seat in memory.seats if seat.phase == "serving")
            made = await create_token(
                store, "default", fingerprint=authority.fingerprint, addresses=addresses, **options
            )
            return encode(made)

    @asynccontextmanager
    async def store(self) -> AsyncIterator[Store]:
        """As a leader; by any host that may lead."""
        for host in self.hosts.values():
            access = read_access(host.directory)
            if access is not None and access.leader_url:
                store = await open_store(access.leader_url)
                try:
                    yield store
                finally:
                    await store.close()
                return
        raise AssertionError("no host may lead")

    async def memory(self) -> Memory:
        async with self.store() as store:
            return from_object(await store.get(ConfigMap, MEMORY_NAME, "default"))

    async def until_members(self, *hosts: str, timeout_s: float = 60.0) -> Memory:
        """Until exactly these hosts carry a member that serves."""
        memory = None
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while True:
                    with suppress(ForbiddenError):  # the host that was asked has just lost the right to lead
                        memory = await self.memory()
                        if is_served_by(memory, hosts):
                            return memory
                    await asyncio.sleep(0.1)
        raise AssertionError(f"members should be on {hosts}, and are: {memory}")

    async def close(self) -> None:
        for host in self.hosts.values():
            await host.lose()


def is_served_by(memory: Memory, hosts: Sequence[str]) -> bool:
    serving = all(seat.phase == "serving" for seat in memory.seats)
    return serving and {seat.host for seat in memory.seats} == set(hosts)


@asynccontextmanager
async def cluster(directory: Path) -> AsyncIterator[Cluster]:
    async with TaskGroup() as group:
        made = Cluster(directory, group)
        try:
            yield made
        finally:
            await made.close()
            group.cancel()


async def until(condition: Callable[[], object], *, timeout_s: float = 30.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.05)


def _empty(directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    return directory


__all__: Sequence[str] = ("Cluster", "LoopbackHost", "cluster", "until")
