"""A node is added and removed again while the leader, or the agent of its host, is killed at one chosen step.

Two hosts: the first leads and has a node throughout, the second is the one whose node comes and goes. Both processes
are those of `dying`; whoever was killed is started again, as somebody would.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from quartermaster.testing.lab import LabProcess, VirtualHost

from .dying import Fatal, Journal, Step
from .sites import CLUSTER, DISK, ROOT, Site, capacity_of

STEPS = Path(__file__).with_name("steps.txt")
PHASE_S = 120.0
QUIET_S = 0.7


def known_steps() -> list[Step]:
    return [Step.of(line) for line in STEPS.read_text().splitlines()]


class Killing:
    def __init__(self, site: Site, directory: Path) -> None:
        self.site = site
        self.first, self.second = site.lab.hosts
        self.journal = Journal(directory)
        self._directory = directory
        self._processes: dict[str, LabProcess] = {}

    async def begin(self) -> None:
        """The first node serves, and both processes are replaced by ones that can be told to die."""
        self._directory.mkdir()
        self.journal.arm(None)
        await self.site.apply(CLUSTER)
        await self.site.declare(self.first)
        await self.site.until_online(1)
        for role, host in (("leader", self.first), ("agent", self.second)):
            await self.site.stop_process(host, role)
            await self._start(role)

    async def cycle(self, fatal: Fatal | None) -> list[Step]:
        """All that was done, when both phases have come to their end; whoever died in between is back."""
        await self.second.replace_disk("vdb")
        await self._until("the blank disk is known", self._disk_is_blank)
        self.journal.arm(fatal)
        self.journal.begin("add")
        await self.site.declare(self.second)
        await self._until("the second node is ready", lambda: self._shows(2))
        assert await mounts_of(self.second) == 1
        await self._until("nothing more is done for it", self._is_quiet)
        self.journal.begin("remove")
        await self.site.qm("delete", "storagenode", self.second.name, "--no-wait")
        await self._until("the second node is gone", lambda: self._shows(1))
        if not self.journal.died:
            # The agent looks at its disks once more, and is killed there or noted.
            await self._until("nothing more is done for it", self._is_quiet)
        self.journal.begin("")
        assert await mounts_of(self.second) == 0
        assert await mounts_of(self.first) == 1
        left = (await self.site.show("assignments"))["items"]
        assert [one["metadata"]["name"] for one in left if one["spec"]["agent"] == "local"] == [
            f"local-default.{self.first.name}"
        ]
        return [*self.journal.trace("leader"), *self.journal.trace("agent")]

    async def end(self) -> None:
        for process in self._processes.values():
            await process.signal(signal.SIGKILL)

    async def _start(self, role: str) -> None:
        host = self.first if role == "leader" else self.second
        environment = {**self.site.environment, "PYTHONPATH": str(ROOT), "QM_DYING": str(self._directory)}
        argv = [sys.executable, "-m", "tests.cluster.dying", role, *self.site.command_of(host, role)]
        log = host.directory / "logs" / f"{role}.log"
        self._processes[role] = await host.spawn(argv, log=log, environment=environment)

    async def _until(self, what: str, holds: Callable[[], Awaitable[bool]]) -> None:
        async def revived() -> bool:
            for role, process in list(self._processes.items()):
                if not process.running:
                    await self._start(role)
            return await holds()

        await self.site.until(what, revived, timeout_s=PHASE_S)

    async def _is_quiet(self) -> bool:
        before = len(self.journal.trace("leader")), len(self.journal.trace("agent"))
        await asyncio.sleep(QUIET_S)
        return before == (len(self.journal.trace("leader")), len(self.journal.trace("agent")))

    async def _disk_is_blank(self) -> bool:
        found = (await self.site.show("host", self.second.name)).get("status", {}).get("inventory", {})
        disks = {disk["path"]: disk for disk in found.get("devices", ())}
        serial = self.second.disks[0].stand_in.serial
        shown = disks.get("/dev/vdb", {})
        return bool(shown.get("state") == "Available" and serial in (shown.get("serial"), shown.get("id")))

    async def _shows(self, nodes: int) -> bool:
        """So many nodes are declared and ready, and the status says so."""
        found = (await self.site.show("storagenodes,storagestatus"))["items"]
        declared = [one for one in found if one["kind"] == "StorageNode"]
        ready = [node for node in declared if node.get("status", {}).get("state") == "Ready"]
        (status,) = (one for one in found if one["kind"] == "StorageStatus")
        shown = status["status"].get("readyCount")
        return len(declared) == len(ready) == nodes == shown == capacity_of(status) // DISK


async def mounts_of(host: VirtualHost) -> int:
    """How many disks the host serves."""
    table = (await host.run(["cat", "/proc/self/mountinfo"])).text
    return sum("/agents/local/mounts/" in line for line in table.splitlines())
