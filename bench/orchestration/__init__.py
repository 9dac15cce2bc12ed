"""Leader and agents: what a change costs as the cluster grows, how long people wait, what an idle process takes."""

from __future__ import annotations

from pathlib import Path

from bench.machine import package_versions
from bench.orchestration import growth, heartbeats, idle, joining, single
from bench.orchestration.counts import FULL, QUICK, Part
from bench.report import Section, text_table
from quartermaster.testing.servers import ETCD_VERSION

ABOUT = """Growth: the real operator on a store in memory, with hosts that only report; one node is added to each size.
Everything else runs as users run it: whole commands, processes of their own, a real etcd, virtual hosts."""


async def run(directory: Path, *, quick: bool) -> Section:
    counts = QUICK if quick else FULL
    parts: list[Part] = []
    for name, measure in (
        ("growth", growth.run),
        ("single", single.run),
        ("idle", idle.run),
        ("heartbeats", heartbeats.run),
        ("joining", joining.run),
    ):
        place = directory / name
        place.mkdir()
        parts.append(await measure(place, counts))
        for table in parts[-1].tables:
            print(text_table(table), flush=True)
    return Section(
        name="orchestration",
        about=ABOUT,
        bars=tuple(bar for part in parts for bar in part.bars),
        tables=tuple(table for part in parts for table in part.tables),
        plots=tuple(plot for part in parts for plot in part.plots),
        versions=("etcd " + ETCD_VERSION, *package_versions("msgspec", "grpcio", "uvloop")),
    )
