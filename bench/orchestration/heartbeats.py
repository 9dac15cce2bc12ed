"""A leader as a process of its own that hears the heartbeats of many hosts, on a real etcd.

The hosts are one process that writes what their agents would: each heartbeat is a renewal of its own, as agents make
it.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from bench.orchestration.counts import Counts, Part
from bench.orchestration.growth import NAMESPACE, make_host
from bench.orchestration.idle import cost_of, process
from bench.report import Bar, Table, show
from bench.running import require, say
from quartermaster.orchestration.heartbeat import Heartbeat
from quartermaster.resources.orchestration import Host
from quartermaster.stores import Store, open_store
from quartermaster.stores.objects import ObjectStore
from quartermaster.testing.servers import EtcdCluster

MEMORY_MIB, CORE_SHARE = 300.0, 10.0
EVERY_S = 5.0
DEVICES = 10
START_S = 120.0


async def run(directory: Path, counts: Counts) -> Part:
    async with EtcdCluster(directory / "etcd", size=1) as etcd:
        url = f"etcd://{','.join(address.partition('//')[2] for address in etcd.endpoints)}/bench"
        store = await open_store(url)
        assert isinstance(store, ObjectStore)
        try:
            say(f"{counts.hosts:,} hosts and their nodes are made")
            for number in range(counts.hosts):
                await make_host(store, number, DEVICES)
            beater = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "bench.orchestration.beater", url, str(counts.hosts), str(EVERY_S)),
                stdout=asyncio.subprocess.PIPE,
            )
            try:
                async with process(directory, "operator", "--store", url) as pid:
                    await until_settled(store, counts.hosts, counts.settle_s)
                    say(f"{counts.beating_s:.0f} s of heartbeats")
                    before, began = cost_of(pid), time.monotonic()
                    await asyncio.sleep(counts.beating_s)
                    after, took_s = cost_of(pid), time.monotonic() - began
                    require(beater.returncode is None, "the hosts have stopped beating")
                    silent = [one.metadata.name for one in (await store.list(Host, NAMESPACE)).items if not ready(one)]
                    require(not silent, f"{len(silent)} hosts are taken for silent, {silent[:3]} among them")
            finally:
                beater.terminate()
                await beater.wait()
        finally:
            await store.close()
    share = 100 * (after.cpu_s - before.cpu_s) / took_s
    rate = counts.hosts / EVERY_S
    bars = (
        Bar(f"leader with {counts.hosts:,} hosts, memory", after.rss_mib, "at most", MEMORY_MIB, "MiB"),
        Bar(f"leader with {counts.hosts:,} hosts, processor", share, "at most", CORE_SHARE, "% of a core"),
    )
    row = (
        f"{counts.hosts:,}",
        f"{took_s:.0f} s",
        f"{show(rate)}/s",
        f"{show(share)} % of a core",
        f"{show(before.rss_mib)} MiB",
        f"{show(after.rss_mib)} MiB",
    )
    header = ("hosts", "for", "heartbeats", "processor", "memory at first", "memory in the end")
    return Part(bars, (Table("A leader that hears heartbeats", header, (row,)),))


def ready(host: Host) -> bool:
    return host.status.state == "Ready"


async def until_settled(store: Store, hosts: int, settle_s: float) -> None:
    """Until the leader has marked every host, and is through with the nodes."""
    deadline = time.monotonic() + START_S
    while True:
        marked = sum(bool(one.status.conditions) for one in (await store.list(Host, NAMESPACE)).items)
        if marked == hosts:
            break
        require(time.monotonic() < deadline, f"{marked} of {hosts} hosts are marked after {START_S:.0f} s")
        await asyncio.sleep(0.5)
    await asyncio.sleep(settle_s)


async def beat_for_all(url: str, hosts: int, every_s: float) -> None:
    """Spread over the interval, as agents that were started at different times."""
    store = await open_store(url)
    beats = [Heartbeat(f"h{number:05}", NAMESPACE, every_s=every_s) for number in range(hosts)]
    turn = asyncio.Semaphore(32)

    async def one(beat: Heartbeat) -> None:
        async with turn:
            await beat.beat(store)

    loop = asyncio.get_running_loop()
    waiting: list[asyncio.Task[None]] = []
    for rounds in range(1_000_000):
        began = loop.time()
        for number, beat in enumerate(beats):
            pause_s = began + every_s * number / hosts - loop.time()
            if pause_s > 0:
                await asyncio.sleep(pause_s)
            waiting.append(asyncio.ensure_future(one(beat)))
        await asyncio.gather(*waiting)
        waiting.clear()
        if rounds == 0:
            print("beating", flush=True)
        await asyncio.sleep(max(0.0, began + every_s - loop.time()))
