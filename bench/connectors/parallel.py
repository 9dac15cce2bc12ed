"""Very many attaches at once, of distinct targets, from several processes: nobody waits for anybody."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec

from bench.connectors.counts import Counts, Part
from bench.connectors.host import FakeHost, Ran, fake_host
from bench.connectors.kernel import Target
from bench.connectors.library import BRICK, OURS, start_library
from bench.connectors.script import attach_of, prepare_records, script_text, start_script
from bench.connectors.volumes import add_iscsi, connect, iscsi_data
from bench.report import Bar, Plot, Table, show
from bench.running import require, say

LATE_S = 0.050
FACTOR = 2.0
PEER_PATIENCE_S = 900.0


class Times(msgspec.Struct, frozen=True):
    volumes: int
    processes: int
    commands: int
    floor_s: float
    ours_s: float
    brick_s: float | None = None


async def run(directory: Path, counts: Counts) -> Part:
    async with fake_host(directory, "parallel") as host:
        targets = declare(host, counts)
        ours_s = await together(directory, host, counts, targets, OURS)
        commands = host.commands()
        require(
            len(host.kernel.disks()) == counts.volumes, f"{len(host.kernel.disks())} of {counts.volumes} are attached"
        )
    floor_s = await floor(directory, counts, commands)
    brick_s = None
    if counts.peer:
        say(f"os-brick attaches {counts.volumes} volumes, which takes minutes")
        async with fake_host(directory, "parallel-brick") as host:
            brick_s = await together(directory, host, counts, declare(host, counts), BRICK)
    return summarise(Times(counts.volumes, counts.processes, len(commands), floor_s, ours_s, brick_s))


def declare(host: FakeHost, counts: Counts) -> list[Target]:
    return [add_iscsi(host.kernel, number, late_s=LATE_S) for number in range(1, counts.volumes + 1)]


def shares(targets: Sequence[Target], processes: int) -> list[list[Target]]:
    """As even as can be."""
    return [list(targets[number::processes]) for number in range(processes)]


async def together(directory: Path, host: FakeHost, counts: Counts, targets: Sequence[Target], name: str) -> float:
    """From the word to begin until the last volume is there."""
    async with AsyncExitStack() as stack:
        running = [
            await stack.enter_async_context(start_library(directory, host, name)) for _ in range(counts.processes)
        ]
        began = time.monotonic()
        outcomes = await asyncio.gather(
            *(
                each.well(*(connect("iscsi", iscsi_data(target)) for target in share), timeout_s=PEER_PATIENCE_S)
                for each, share in zip(running, shares(targets, counts.processes), strict=True)
            )
        )
    return max(outcome.ended_s for each in outcomes for outcome in each) - began


async def floor(directory: Path, counts: Counts, commands: Sequence[Ran]) -> float:
    """As many bash processes, each of which runs the same commands for its share, all volumes at once."""
    async with fake_host(directory, "parallel-floor") as host, AsyncExitStack() as stack:
        targets = declare(host, counts)
        prepare_records(host, targets)
        scripts = []
        for number, share in enumerate(shares(targets, counts.processes)):
            attaches = [attach_of(commands_of(commands, target), target) for target in share]
            script = await start_script(host, script_text(host.root / "never", attaches), f"floor-{number}")
            stack.push_async_callback(script.end)
            scripts.append(script)
        began = time.monotonic()
        await asyncio.gather(*(script.time_ms() for script in scripts))
        took_s = time.monotonic() - began
        require(len(host.kernel.disks()) == counts.volumes, "the bare scripts do not attach all volumes")
        return took_s


def commands_of(commands: Sequence[Ran], target: Target) -> list[Ran]:
    """Those of one volume: they name its target, its adapter or its disk."""
    words = (target.name, f"/sys/class/scsi_host/host{target.host}/scan", f"/dev/{target.disk(1)}")
    return [each for each in commands if any(word in each.argv for word in words)]


def summarise(times: Times) -> Part:
    beside = f"{show(times.ours_s)} s; floor {show(times.floor_s)} s"
    if times.brick_s is not None:
        beside += f"; os-brick {show(times.brick_s)} s"
    what = f"{times.volumes} attaches at once by {times.processes} processes"
    bar = Bar(f"{what}, beside the floor", times.ours_s / times.floor_s, "at most", FACTOR, "times the floor", beside)
    took = {f"{times.commands} commands by bash": times.floor_s, OURS: times.ours_s}
    if times.brick_s is not None:
        took[BRICK] = times.brick_s
    rows = tuple((name, f"{show(each)} s", f"{show(times.volumes / each)}/s") for name, each in took.items())
    title = f"{what}, devices after {1000 * LATE_S:.0f} ms"
    table = Table(title, ("what", "until the last", "volumes"), rows)
    plot = Plot(
        "connectors-parallel", title, "s", tuple(took), {"until the last": tuple(took.values())}, logarithmic=True
    )
    return Part((bar,), (table,), (plot,))
