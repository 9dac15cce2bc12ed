"""A volume is made, a node comes, another one goes, a disk is replaced, the volume goes: and processes die on the way.

Four hosts, of which three have nodes at any time. All processes are those of `dying`; whoever was killed is started
again, as somebody would. Every phase ends only when all is whole, so what a death has left undone is seen. Where bricks
go is not left to chance: of the node that goes they can only move to the one that came, and there to its new disk.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from quartermaster.support.errors import CommandError
from quartermaster.testing.lab import LabProcess, VirtualHost
from tests.cluster.dying import Fatal, Step
from tests.cluster.sites import ROOT, Site

from .dying import Journal
from .gluster import (
    CLAIM,
    CLUSTER,
    NODE,
    READ,
    WRITE,
    bricks_of,
    is_whole,
    left_over,
    pool_has,
    replace_disk,
    state_of_gluster,
    until_whole,
)
from .homes import processes_of, until_the_store_outlives_a_host

STEPS = Path(__file__).with_name("steps.txt")
PHASES = ("create", "add", "remove", "replace", "delete")
PHASE_S = 180.0
QUIET_S = 0.7
# Whoever is started again is back before anybody takes its data for lost.
CALM = CLUSTER.replace("moveDataAfterSeconds: 8", "moveDataAfterSeconds: 120")


def known_steps() -> list[Step]:
    return [*_steps()]


def steps_by_chance() -> dict[Step, str]:
    """Those that no cycle has to come to, with what has to be so for one that does."""
    return {step: when for step, when in _steps().items() if when}


def _steps() -> dict[Step, str]:
    lines = [line.partition("  # ") for line in STEPS.read_text().splitlines()]
    return {Step.of(step): when for step, _, when in lines}


class Killing:
    def __init__(self, site: Site, directory: Path, phases: Sequence[str] = PHASES) -> None:
        """`phases`: those that come; without "create" the volume is there when they begin."""
        self.site = site
        self.phases = phases
        self.journal = Journal(directory)
        self._directory = directory
        self._processes: dict[tuple[str, str], LabProcess] = {}
        self._volume = ""

    async def begin(self) -> None:
        """Three nodes serve, and the processes of all hosts are replaced by ones that can be told to die."""
        self._directory.mkdir()
        self.journal.arm_all([])
        self.journal.begin("")
        *three, fourth = self.site.lab.hosts
        await self.site.add(fourth)
        await self.site.apply("---\n".join([CALM, *(NODE.format(host=host.name) for host in three)]))
        await until_whole(self.site, 3)
        if self.phases == PHASES:
            await until_the_store_outlives_a_host(self.site)  # what makes it so would be steps as well
        for host, role in processes_of(self.site):
            await self.site.stop_process(host, role)
            await self._start(host, role)
        await self._until("three nodes serve", lambda: is_whole(self.site, 3))
        if "create" not in self.phases:
            await self._create()

    async def cycle(self, fatals: Sequence[Fatal]) -> list[Step]:
        """All that was done, when all phases have come to their end; whoever died in between is back."""
        self.journal.arm_all(fatals)
        for phase in self.phases:
            self.journal.begin(phase)
            await getattr(self, f"_{phase}")()
        self.journal.begin("")
        return [*self.journal.trace("leader"), *self.journal.trace("agent")]

    async def end(self) -> None:
        for process in self._processes.values():
            await process.signal(signal.SIGKILL)

    async def _create(self) -> None:
        await self.site.apply(CLAIM)
        await self._until("the claim is bound", self._is_bound)
        await self._until("the volume is whole", lambda: is_whole(self.site, 3))
        await self._until("the volume is mounted", self._is_mounted)
        await self._second.run(["sh", "-c", WRITE.format(files="1 2")], timeout_s=90)
        await self._until("everybody knows of the volume", self._is_known)

    async def _add(self) -> None:
        await self.site.apply(NODE.format(host=self._fourth.name))
        await self._until("the fourth node serves", lambda: is_whole(self.site, 4))

    async def _remove(self) -> None:
        third = self.site.lab.hosts[2]
        await self.site.qm("node", "remove", third.name, "--no-wait")
        await self._until("the third node is gone", lambda: self._is_without(third))
        await self._second.run(["sh", "-c", READ], timeout_s=90)

    async def _replace(self) -> None:
        """The disk of the node that has just got a brick dies, and a blank one is there."""
        before = await left_over(self._fourth)
        await replace_disk(self._fourth)

        async def replaced() -> bool:
            after = await left_over(self._fourth)
            return after != before and len(after) == 1 and await is_whole(self.site, 3)

        await self._until("the dead disk's brick is made anew", replaced)
        await self._second.run(["sh", "-c", READ], timeout_s=90)

    async def _delete(self) -> None:
        await self.site.qm("volume", "unmount", "/mnt/data", host=self._second)
        await self.site.qm("delete", "pvc", "data", "--no-wait")
        await self._until("no volume and no brick is left", self._is_deleted)

    @property
    def _second(self) -> VirtualHost:
        return self.site.lab.hosts[1]

    @property
    def _fourth(self) -> VirtualHost:
        return self.site.lab.hosts[3]

    async def _start(self, host: VirtualHost, role: str) -> None:
        environment = {**self.site.environment, "PYTHONPATH": str(ROOT), "QM_DYING": str(self._directory)}
        argv = [sys.executable, "-m", "tests.cluster_glusterfs.dying", *self.site.command_of(host, role)]
        log = host.directory / "logs" / f"{role}.log"
        self._processes[host.name, role] = await host.spawn(argv, log=log, environment=environment)

    async def _until(self, what: str, holds: Callable[[], Awaitable[bool]]) -> None:
        async def revived() -> bool:
            for host, role in processes_of(self.site):
                if not self._processes[host.name, role].running:
                    await self._start(host, role)
            return await holds()

        try:
            await self.site.until(what, revived, timeout_s=PHASE_S)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{await state_of_gluster(self.site.first)}") from error
        await self.site.until("nothing more is done", self._is_quiet, timeout_s=PHASE_S)

    async def _is_quiet(self) -> bool:
        before = [len(self.journal.trace(who)) for who in ("leader", "agent")]
        await asyncio.sleep(QUIET_S)
        return before == [len(self.journal.trace(who)) for who in ("leader", "agent")]

    async def _is_bound(self) -> bool:
        return bool((await self.site.show("pvc", "data")).get("status", {}).get("phase") == "Bound")

    async def _is_known(self) -> bool:
        """The nodes have told of its bricks, and the leader has noted who runs them: they look now and then."""
        self._volume = (await self.site.show("pvc", "data"))["spec"]["volumeName"]
        noted = (await self.site.show("configmap", "quartermaster-glusterfs-default"))["data"]
        return self._volume in noted.get("processes", "") and await self._nodes_with_it() == 3

    async def _nodes_with_it(self) -> int:
        """By what they have told."""
        asked = (await self.site.show("assignments"))["items"]
        nodes = [json.dumps(one.get("status")) for one in asked if one["spec"]["agent"] == "glusterd"]
        return sum(self._volume in told for told in nodes)

    async def _is_mounted(self) -> bool:
        """Who is to grant it may have died: it is asked for again, as somebody would."""
        try:
            await self.site.qm("volume", "mount", "data", "/mnt/data", host=self._second)
        except CommandError:
            return False
        return True

    async def _is_without(self, gone: VirtualHost) -> bool:
        """It has no brick, is in no pool and has no assignment; the others have all that it had."""
        nodes = [item["metadata"]["name"] for item in (await self.site.show("storagenodes"))["items"]]
        staying = [host for host in self.site.lab.hosts if host is not gone]
        if gone.name in nodes or not await is_whole(self.site, 3) or not await pool_has(self.site.first, 3):
            return False
        asked = [item["spec"] for item in (await self.site.show("assignments"))["items"]]
        left = [one for one in asked if one["host"] == gone.name and one["agent"].startswith("gluster")]
        moved = await bricks_of(self.site.first) == sorted(host.address for host in staying)
        return moved and not left and [len(await left_over(host)) for host in (gone, *staying)] == [0, 1, 1, 1]

    async def _is_deleted(self) -> bool:
        left = [await left_over(host) for host in self.site.lab.hosts]
        gone = await bricks_of(self.site.first) == [] and left == [[]] * 4
        return gone and await self._nodes_with_it() == 0 and await is_whole(self.site, 3)
