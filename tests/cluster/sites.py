"""A cluster on virtual hosts, as users make it: every step is a command of `qm` (or of kubectl) on one of the hosts.
What is waited for is looked up in the store without such a command, which costs a hundred times as much.

Two kinds of it, which tests do not tell apart: an etcd of its own, or a real API server as the store.
"""

from __future__ import annotations

import abc
import asyncio
import contextlib
import json
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from quartermaster.backends.etcd.memory import MEMORY_NAME
from quartermaster.cli.arguments import parse_targets
from quartermaster.cli.finding import Query, find_groups
from quartermaster.cli.output import as_document, as_list
from quartermaster.operators.settings import HostSettings, write_settings
from quartermaster.orchestration.joining.access import read_access
from quartermaster.orchestration.timings import Timings
from quartermaster.resources.quantity import Amount
from quartermaster.stores import Store, open_store
from quartermaster.stores.kubernetes import KubernetesStore
from quartermaster.support.errors import NotFoundError
from quartermaster.testing.lab import Lab, LabProcess, VirtualHost
from quartermaster.testing.servers import KubernetesServer

ROOT = Path(__file__).resolve().parents[2]
QM = str(Path(sys.executable).parent / "qm")
PATIENCE_S = 90.0
DISK = 900 << 20  # what at least is left of a disk of 1 GiB when it has a file system
NODE = """apiVersion: coreos.com/v1
kind: StorageNode
metadata: {{name: {host}}}
spec: {{type: local, nodeSelector: {{kubernetes.io/hostname: {host}}}, devices: [/dev/vdb]}}
"""
TIMINGS = Timings(heartbeat_s=1.0, unhealthy_after_s=4.0, debounce_s=0.0)
CLUSTER = """apiVersion: coreos.com/v1
kind: StorageCluster
metadata: {name: local}
spec: {type: local, timings: {heartbeatSeconds: 1, unhealthyAfterSeconds: 4, moveDataAfterSeconds: 12}}
"""
CLAIM = """apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: {name}, annotations: {{volume.kubernetes.io/selected-node: {host}}}}}
spec:
  accessModes: [ReadWriteOnce]
  storageClassName: default-local-default
  resources: {{requests: {{storage: 100Mi}}}}
"""
# Whoever does not end within 20 s is killed.
STOP = "kill -TERM $1; for _ in $(seq 200); do kill -0 $1 2>/dev/null || exit 0; sleep 0.1; done; kill -KILL $1"


class Site(abc.ABC):
    """What both kinds have in common. `first` is the host on which the administrator sits."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.first = lab.hosts[0]

    async def qm(self, *arguments: str, host: VirtualHost | None = None, stdin: str = "") -> str:
        result = await (host or self.first).run(
            [QM, *arguments], timeout_s=PATIENCE_S, stdin=stdin.encode(), environment=self.environment
        )
        return result.text

    @property
    def environment(self) -> dict[str, str]:
        return {"NO_COLOR": "1"}

    @abc.abstractmethod
    async def bring_up(self, hosts: int) -> None: ...

    @abc.abstractmethod
    async def add(self, host: VirtualHost) -> None: ...

    @abc.abstractmethod
    async def remove(self, host: VirtualHost) -> None: ...

    @abc.abstractmethod
    async def kill_agent(self, host: VirtualHost) -> None: ...

    @abc.abstractmethod
    async def restart_agent(self, host: VirtualHost) -> None: ...

    @abc.abstractmethod
    def command_of(self, host: VirtualHost, role: str) -> list[str]:
        """What `qm` is called with on the host so that it leads, or is its agent."""

    @abc.abstractmethod
    async def end_process(self, host: VirtualHost, role: str) -> None:
        """Killed, and not started again."""

    @abc.abstractmethod
    async def stop_process(self, host: VirtualHost, role: str) -> None:
        """Asked to end, and not started again: nobody has to wait until the lease of a leader runs out."""

    @abc.abstractmethod
    async def apply(self, text: str) -> None: ...

    async def declare(self, host: VirtualHost) -> None:
        await self.apply(NODE.format(host=host.name))

    async def claim(self, name: str, host: VirtualHost) -> None:
        await self.apply(CLAIM.format(name=name, host=host.name))

    @abc.abstractmethod
    async def open_store(self) -> Store:
        """With the rights of whoever uses `qm` on the first host."""

    async def show(self, kind: str, name: str = "") -> dict[str, Any]:
        """What `qm get -o json` prints."""
        targets = parse_targets((kind, name) if name else (kind,))
        store = await self.open_store()
        try:
            groups = await find_groups(store, targets, Query("default"))
        finally:
            await store.close()
        if missing := [sentence for group in groups for sentence in group.missing]:
            raise NotFoundError(missing[0])
        documents = [as_document(obj) for group in groups for obj in group.objects]
        return documents[0] if name else as_list(documents)

    async def until(self, what: str, holds: Callable[[], Awaitable[bool]], timeout_s: float = PATIENCE_S) -> float:
        """Seconds until it held."""
        began = time.monotonic()
        while not await holds():
            if time.monotonic() - began > timeout_s:
                state = await self.qm("get", "hosts,storagenodes,storagestatus,assignments,pvc", "-o", "wide")
                raise AssertionError(f"{what}: not within {timeout_s:.0f} s\n{state}")
            await asyncio.sleep(0.2)
        return time.monotonic() - began

    async def until_online(self, nodes: int) -> None:
        """So many nodes are ready, and their capacity is shown."""

        async def online() -> bool:
            items = (await self.show("storagestatus"))["items"]
            if not items or items[0]["spec"].get("status") != "ONLINE":
                return False
            return bool(items[0]["status"].get("readyCount") == nodes and capacity_of(items[0]) // DISK == nodes)

        await self.until(f"{nodes} nodes are ONLINE", online)

    async def capacity(self) -> int:
        """Bytes, as the status shows them."""
        items = (await self.show("storagestatus"))["items"]
        return capacity_of(items[0]) if items else 0

    async def until_bound(self, name: str) -> None:
        async def bound() -> bool:
            phase = (await self.show("pvc", name)).get("status", {}).get("phase")
            return bool(phase == "Bound")

        await self.until(f"the claim {name} is bound", bound)

    async def state_of_host(self, host: VirtualHost) -> str:
        return str((await self.show("host", host.name)).get("status", {}).get("state", ""))


def capacity_of(status: dict[str, Any]) -> int:
    return Amount.of(status.get("status", {}).get("capacity", {}).get("total", 0)).bytes


class Standalone(Site):
    """An etcd of its own: `qm up`, `qm join`."""

    async def bring_up(self, hosts: int) -> None:
        for host in self.lab.hosts:
            write_settings(host.state, HostSettings(name=host.name, timings=TIMINGS))
        await self.qm("up", "--address", self.first.address)
        for host in self.lab.hosts[1:hosts]:
            await self.add(host)

    async def add(self, host: VirtualHost) -> None:
        token = (await self.qm("token", "create")).split()[-1]
        await self.qm("join", token, "--address", host.address, host=host)

    async def remove(self, host: VirtualHost) -> None:
        await self.qm("leave", host=host)

    async def restart_agent(self, host: VirtualHost) -> None:
        await self.kill_agent(host)
        await self.qm("up", host=host)

    async def kill_agent(self, host: VirtualHost) -> None:
        record = json.loads((host.state / "daemons" / "records" / "agent.json").read_text())
        await host.run(["kill", "-KILL", str(record["pid"])])

    def command_of(self, host: VirtualHost, role: str) -> list[str]:
        return ["agent", "-v"]

    async def end_process(self, host: VirtualHost, role: str) -> None:
        await self.kill_agent(host)

    async def stop_process(self, host: VirtualHost, role: str) -> None:
        record = json.loads((host.state / "daemons" / "records" / "agent.json").read_text())
        await host.run(["sh", "-c", STOP, "stop", str(record["pid"])], timeout_s=PATIENCE_S)

    async def apply(self, text: str) -> None:
        await self.qm("apply", "-f", "-", stdin=text)

    async def open_store(self) -> Store:
        access = read_access(self.first.state)
        assert access is not None, "the first host belongs to no cluster"
        return await open_store(access.leader_url or access.url)

    async def members(self) -> list[str]:
        """The hosts whose member of etcd serves."""
        memory = json.loads((await self.show("configmap", MEMORY_NAME))["data"]["members"])
        return sorted(seat["host"] for seat in memory["seats"] if seat["phase"] == "serving")

    async def until_members(self, *hosts: VirtualHost) -> None:
        """Until then the death of a host may take the majority of the store with it."""
        wanted = sorted(host.name for host in hosts)

        async def so() -> bool:
            return await self.members() == wanted

        await self.until(f"etcd is on {wanted}", so)


class OnKubernetes(Site):
    """A real API server: `kubectl apply`, an operator, and `qm agent` on each host."""

    def __init__(self, lab: Lab, server: KubernetesServer, kubeconfig: Path) -> None:
        super().__init__(lab)
        self.server = server
        self._kubeconfig = kubeconfig
        self._processes: dict[tuple[str, str], LabProcess] = {}

    @property
    def environment(self) -> dict[str, str]:
        return {"NO_COLOR": "1", "KUBECONFIG": str(self._kubeconfig)}

    async def bring_up(self, hosts: int) -> None:
        await self._spawn(self.first, "leader")
        for host in self.lab.hosts[:hosts]:
            await self.add(host)

    async def add(self, host: VirtualHost) -> None:
        await self._spawn(host, "agent")

    async def remove(self, host: VirtualHost) -> None:
        await self._processes[host.name, "agent"].stop()
        await self.server.kubectl("delete", "host.orchestration.coreos.com", host.name)

    async def kill_agent(self, host: VirtualHost) -> None:
        await self.end_process(host, "agent")

    def command_of(self, host: VirtualHost, role: str) -> list[str]:
        if role == "leader":
            return ["operator", "--debounce", "0", "-v"]
        return ["agent", "--store", "kubernetes:", "--name", host.name, "--address", host.address, "-v"]

    async def end_process(self, host: VirtualHost, role: str) -> None:
        await self._processes[host.name, role].signal(signal.SIGKILL)
        await self._processes[host.name, role].wait(10.0)

    async def stop_process(self, host: VirtualHost, role: str) -> None:
        await self._processes[host.name, role].stop()

    async def restart_agent(self, host: VirtualHost) -> None:
        await self.kill_agent(host)
        await self.add(host)

    async def apply(self, text: str) -> None:
        await self.server.kubectl("apply", "-f", "-", stdin=text)

    async def open_store(self) -> Store:
        return await KubernetesStore.open(kubeconfig=self.server.kubeconfig)

    async def _spawn(self, host: VirtualHost, role: str) -> None:
        log = host.directory / "logs" / f"{role}.log"
        argv = [QM, *self.command_of(host, role)]
        self._processes[host.name, role] = await host.spawn(argv, log=log, environment=self.environment)


@contextlib.asynccontextmanager
async def forwarded(address: str, port: int, target: int) -> AsyncIterator[None]:
    """What listens on this machine's loopback, reachable from virtual hosts."""

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", target)
        await asyncio.gather(pump(reader, back), pump(there, writer))

    server = await asyncio.start_server(serve, address, port)
    try:
        yield
    finally:
        server.close()


def kubeconfig_for(server: KubernetesServer, address: str, port: int, path: Path) -> Path:
    """As virtual hosts need it: the server under another address, and its certificate by its own name."""
    content = json.loads(server.kubeconfig.read_text())
    cluster = content["clusters"][0]["cluster"]
    cluster["server"] = f"https://{address}:{port}"
    cluster["tls-server-name"] = "localhost"
    path.write_text(json.dumps(content))
    return path
