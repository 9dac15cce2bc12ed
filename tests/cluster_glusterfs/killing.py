"""A volume is made, a node comes, a disk is replaced, the volume and the node go: and processes die at chosen steps.

Four hosts, of which three have nodes throughout. All processes are those of `dying`; whoever was killed is started
again, as somebody would. Every phase ends only when all is whole, so what a death has left undone is seen.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from quartermaster.testing.lab import LabProcess, VirtualHost
from tests.cluster.dying import Fatal, Step
from tests.cluster.sites import ROOT, Standalone

from .dying import Journal
from .gluster import CLAIM, CLUSTER, NODE, READ, WRITE, bricks_of, is_whole, left_over, pool_has

PHASES = ("create", "add", "replace", "delete", "remove")
PHASE_S = 180.0
QUIET_S = 0.7
CALM = CLUSTER.replace("moveDataAfterSeconds: 8", "moveDataAfterSeconds: 60")


class Killing:
    def __init__(self, site: Standalone, directory: Path) -> None:
        self.site = site
        self.journal = Journal(directory)
        self._directory = directory
        self._processes: dict[str, LabProcess] = {}

    async def begin(self) -> None:
        """Three nodes serve, and the processes of all hosts are replaced by ones that can be told to die."""
        self._directory.mkdir()
        self.journal.arm_all([])
        self.journal.begin("")
        *three, fourth = self.site.lab.hosts
        await self.site.add(fourth)
        await self.site.apply(CALM)
        for host in three:
            await self.site.apply(NODE.format(host=host.name))
        await self.site.until_members(*three)
        for host in self.site.lab.hosts:
            await self.site.end_process(host, "agent")
            await self._start(host)
        await self._until("three nodes serve", lambda: is_whole(self.site, 3))

    async def cycle(self, fatals: Sequence[Fatal]) -> list[Step]:
        """All that was done, when all phases have come to their end; whoever died in between is back."""
        first, second, third, fourth = self.site.lab.hosts
        self.journal.arm_all(fatals)
        self.journal.begin("create")
        await self.site.apply(CLAIM)
        await self._until("the claim is bound", self._is_bound)
        await self._until("the volume is whole", lambda: is_whole(self.site, 3))
        await self.site.qm("volume", "mount", "data", "/mnt/data", host=second)
        await second.run(["sh", "-c", WRITE.format(files="1 2")], timeout_s=60)

        self.journal.begin("add")
        await self.site.apply(NODE.format(host=fourth.name))
        await self._until("the fourth node serves", lambda: is_whole(self.site, 4))

        self.journal.begin("replace")
        await third.replace_disk(0)
        await self._until("the dead disk's brick is made anew", self._is_replaced)
        await second.run(["sh", "-c", READ], timeout_s=60)

        self.journal.begin("delete")
        await self.site.qm("volume", "unmount", "/mnt/data", host=second)
        await self.site.qm("delete", "pvc", "data", "--no-wait")
        await self._until("no volume and no brick is left", self._is_deleted)

        self.journal.begin("remove")
        await self.site.qm("node", "remove", fourth.name, "--no-wait")
        await self._until("the fourth node is drained", self._is_drained)
        await self.site.qm("delete", "storagenode", fourth.name, "--no-wait")
        await self._until("three nodes serve again", lambda: is_whole(self.site, 3))
        await self._until("the pool has let the fourth go", lambda: pool_has(first, 3))
        self.journal.begin("")
        return [*self.journal.trace("leader"), *self.journal.trace("agent")]

    async def end(self) -> None:
        for process in self._processes.values():
            await process.signal(signal.SIGKILL)

    async def _start(self, host: VirtualHost) -> None:
        environment = {**self.site.environment, "PYTHONPATH": str(ROOT), "QM_DYING": str(self._directory)}
        argv = [sys.executable, "-m", "tests.cluster_glusterfs.dying", *self.site.command_of(host, "agent")]
        log = host.directory / "logs" / "agent.log"
        self._processes[host.name] = await host.spawn(argv, log=log, environment=environment)

    async def _until(self, what: str, holds: Callable[[], Awaitable[bool]]) -> None:
        async def revived() -> bool:
            for host in self.site.lab.hosts:
                if not self._processes[host.name].running:
                    await self._start(host)
            return await holds()

        await self.site.until(what, revived, timeout_s=PHASE_S)
        await self.site.until("nothing more is done", self._is_quiet, timeout_s=PHASE_S)

    async def _is_quiet(self) -> bool:
        before = [len(self.journal.trace(who)) for who in ("leader", "agent")]
        await asyncio.sleep(QUIET_S)
        return before == [len(self.journal.trace(who)) for who in ("leader", "agent")]

    async def _is_bound(self) -> bool:
        return bool((await self.site.show("pvc", "data")).get("status", {}).get("phase") == "Bound")

    async def _is_replaced(self) -> bool:
        """On other disks than before, everywhere whole; the directory that was given up is gone with its disk."""
        found = await bricks_of(self.site.first)
        bricks = [await left_over(host) for host in self.site.lab.hosts]
        return await is_whole(self.site, 4) and len(set(found)) == 3 and sum(map(len, bricks)) == 3

    async def _is_deleted(self) -> bool:
        left = [await left_over(host) for host in self.site.lab.hosts]
        return await bricks_of(self.site.first) == [] and left == [[]] * 4 and await is_whole(self.site, 4)

    async def _is_drained(self) -> bool:
        items = (await self.site.show("storagenodes"))["items"]
        states = {item["metadata"]["name"]: item.get("status", {}).get("state") for item in items}
        return states.get(self.site.lab.hosts[3].name) == "Drained"
