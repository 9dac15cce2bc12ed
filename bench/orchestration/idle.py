"""What an agent costs a host on which nothing happens: as a process of its own, on a real etcd."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from bench.orchestration.counts import Counts, Part
from bench.report import Bar, Table, show
from bench.running import BenchFailedError, as_installed, require
from quartermaster.orchestration.heartbeat import heartbeat_name
from quartermaster.resources.kubernetes.core import Lease
from quartermaster.resources.orchestration import Host
from quartermaster.stores import Store, open_store
from quartermaster.support.errors import NotFoundError
from quartermaster.testing.servers import EtcdCluster

QM = str(Path(sys.executable).parent / "qm")
CORE_SHARE, MEMORY_MIB = 1.0, 60.0
START_S = 30.0


class Cost(msgspec.Struct, frozen=True):
    cpu_s: float
    rss_mib: float


async def run(directory: Path, counts: Counts) -> Part:
    async with EtcdCluster(directory / "etcd", size=1) as etcd:
        url = f"etcd://{','.join(address.partition('//')[2] for address in etcd.endpoints)}/bench"
        store = await open_store(url)
        try:
            async with process(directory, "agent", "--store", url, "--name", "idle") as pid:
                beats = await until_beating(store)
                await asyncio.sleep(counts.settle_s)
                before = cost_of(pid)
                await asyncio.sleep(counts.idle_s)
                after = cost_of(pid)
                await until_beating_again(store, beats)
        finally:
            await store.close()
    share = 100 * (after.cpu_s - before.cpu_s) / counts.idle_s
    bars = (
        Bar("agent idle, processor", share, "at most", CORE_SHARE, "% of a core"),
        Bar("agent idle, memory", after.rss_mib, "at most", MEMORY_MIB, "MiB"),
    )
    row = (f"{counts.idle_s:.0f} s", f"{show(share)} % of a core", f"{show(after.rss_mib)} MiB")
    return Part(bars, (Table("An agent on which nothing happens", ("for", "processor", "memory"), (row,)),))


async def until_beating(store: Store) -> str:
    for _ in range(int(START_S / 0.1)):
        try:
            await store.get(Host, "idle", "default")
            return await version(store)
        except NotFoundError:
            await asyncio.sleep(0.1)
    raise BenchFailedError(f"the agent did not register within {START_S:.0f} s")


async def until_beating_again(store: Store, before: str) -> None:
    for _ in range(int(START_S / 0.1)):
        if await version(store) != before:
            return
        await asyncio.sleep(0.1)
    raise BenchFailedError("the agent gave no sign of life")


async def version(store: Store) -> str:
    return (await store.get(Lease, heartbeat_name("idle"), "default")).metadata.resource_version


@asynccontextmanager
async def process(directory: Path, *arguments: str) -> AsyncIterator[int]:
    """`qm` with these arguments, until the end of the block; gives its number."""
    (directory / "home").mkdir(exist_ok=True)
    environment = as_installed(directory.parent) | {
        "HOME": str(directory / "home"),
        "QM_STATE_DIR": str(directory / "state"),
        "NO_COLOR": "1",
    }
    with (directory / f"{arguments[0]}.log").open("wb") as log:
        running = await asyncio.create_subprocess_exec(
            QM, *arguments, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log, env=environment
        )
    try:
        yield running.pid
        said = (directory / f"{arguments[0]}.log").read_text()[-2000:]
        require(running.returncode is None, f"qm {arguments[0]} has ended: {said}")
    finally:
        if running.returncode is None:
            running.terminate()
            try:
                await asyncio.wait_for(running.wait(), 20.0)
            except TimeoutError:
                running.kill()
                await running.wait()


def cost_of(pid: int) -> Cost:
    """Of the process alone, so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks = os.sysconf("SC_CLK_TCK")
    memory = Path(f"/proc/{pid}/statm").read_text().split()[1]
    return Cost((int(fields[11]) + int(fields[12])) / ticks, int(memory) * os.sysconf("SC_PAGE_SIZE") / 2**20)
