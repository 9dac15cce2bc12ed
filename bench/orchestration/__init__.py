"""Leader and agents: what a change costs as the cluster grows, how long people wait, what an idle process takes."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bench.machine import package_versions, program_version
from bench.orchestration import growth, heartbeats, idle, joining, single
from bench.orchestration.counts import FULL, QUICK, Counts, Part
from bench.report import Section, text_table
from quartermaster.testing.servers import find_program

ABOUT = """Growth: the real operator on a store in memory, with hosts that only report; one node is added to each size.
Everything else runs as users run it: whole commands, processes of their own, a real etcd, virtual hosts."""


PARTS = {
    "growth": growth.run,
    "single": single.run,
    "idle": idle.run,
    "heartbeats": heartbeats.run,
    "joining": joining.run,
}


async def run(directory: Path, *, quick: bool) -> Section:
    if quick:  # nothing is measured, so they need not be alone
        parts = list(await asyncio.gather(*(part(directory, name, QUICK) for name in PARTS)))
    else:
        parts = [await part(directory, name, FULL) for name in PARTS]
    return Section(
        name="orchestration",
        about=ABOUT,
        bars=tuple(bar for part in parts for bar in part.bars),
        tables=tuple(table for part in parts for table in part.tables),
        plots=tuple(plot for part in parts for plot in part.plots),
        versions=(f"etcd {program_version(find_program('etcd'))}", *package_versions("msgspec", "grpcio", "uvloop")),
    )


async def part(directory: Path, name: str, counts: Counts) -> Part:
    place = directory / name
    place.mkdir()
    done = await PARTS[name](place, counts)
    for table in done.tables:
        print(text_table(table), flush=True)
    return done
