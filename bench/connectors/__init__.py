"""The attach library beside os-brick: on fake hosts whose programs are real, and the data paths of its own clients."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bench.connectors import (
    attaching,
    beside,
    commands,
    data,
    importing,
    parallel,
    real,
    scorecard,
    together,
)
from bench.connectors.counts import FULL, QUICK, Counts, Part
from bench.connectors.host import fake_host
from bench.connectors.library import OURS, start_library
from bench.connectors.peer import LOCK, peer_python, pinned
from bench.machine import package_versions, program_version
from bench.report import Section, text_table

ABOUT = """Both libraries run in processes of their own on the same fake hosts: in a mount namespace /sys, /dev and /etc
are files of a simulated kernel, and the programs of storage are executables that take ten milliseconds each. os-brick
runs them as root without its privileged daemon, which is faster than in service. Both get the same payloads, and a
process of either makes its connector once and keeps it, as services do (Nova's volume drivers, say)."""

PARTS = {
    "importing": importing.run,
    "attaching": attaching.run,
    "real": real.run,
    "parallel": parallel.run,
    "beside": beside.run,
    "together": together.run,
    "commands": commands.run,
    "scorecard": scorecard.run,
    "data": data.run,
}


async def run(directory: Path, *, quick: bool) -> Section:
    counts = QUICK if quick else FULL
    if counts.peer:
        peer_python()
    async with fake_host(directory, "first") as host, start_library(directory, host, OURS):
        pass  # the first process writes the bytecode
    if quick:  # nothing is measured, so they need not be alone
        parts = list(await asyncio.gather(*(part(directory, name, counts) for name in PARTS)))
    else:
        parts = [await part(directory, name, counts) for name in PARTS]
    return Section(
        name="connectors",
        about=ABOUT,
        bars=tuple(bar for part in parts for bar in part.bars),
        tables=tuple(table for part in parts for table in part.tables),
        plots=tuple(plot for part in parts for plot in part.plots),
        versions=(
            f"os-brick {pinned(LOCK.read_text())['os-brick']}",
            f"qemu-storage-daemon {program_version('qemu-storage-daemon')}",
            *package_versions("msgspec"),
        ),
    )


async def part(directory: Path, name: str, counts: Counts) -> Part:
    done = await PARTS[name](directory, counts)
    for table in done.tables:
        print(text_table(table), flush=True)
    return done
