"""cStor clusters: planning among very many nodes, very many configs, and the hook service."""

from __future__ import annotations

from pathlib import Path

from bench import cstor_chain, cstor_hooks, cstor_planning
from bench.machine import package_versions
from bench.report import Section, text_table

ABOUT = """Planning is the config hook as the controller calls it, with an inventory that is kept up to date. The hook
service is `qm cstor serve` on one core, called by wrk with the request of a cluster that exists."""

PARTS = (cstor_planning.run, cstor_chain.run, cstor_hooks.run)


async def run(directory: Path, *, quick: bool) -> Section:
    parts = []
    for part in PARTS:
        parts.append(await part(directory, quick=quick))
        for table in parts[-1].tables:
            print(text_table(table), flush=True)
    return Section(
        name="cstor",
        about=ABOUT,
        bars=tuple(bar for part in parts for bar in part.bars),
        tables=tuple(table for part in parts for table in part.tables),
        plots=tuple(plot for part in parts for plot in part.plots),
        versions=package_versions("aiohttp", "uvloop", "msgspec"),
    )
