"""What a program pays before its first attach: the import, and a connector for iSCSI. Each time in a new process."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

import msgspec

from bench.connectors.counts import Counts, Part
from bench.connectors.library import BRICK, OURS
from bench.connectors.output import output_of
from bench.connectors.peer import peer_python
from bench.report import Bar, Plot, Table, show
from bench.running import ROOT, as_installed

BARE = "asyncio alone"
PYTHON = sys.executable
SHARE, MEMORY_MIB = 0.2, 4.0
TIMEOUT_S = 60.0
# The time is that of the statements; the memory is what the process has in the end.
FRAME = """
import time
began = time.perf_counter()
{body}
took = time.perf_counter() - began
import json, sys
found = (getattr(module, "__file__", None) or "" for module in list(sys.modules.values()))
inside = {{file.partition("/site-packages/")[2].partition("/")[0] for file in found if "/site-packages/" in file}}
packages = {{name for name in inside if name and not name.startswith("_") and "quartermaster" not in name}}
resident = [line for line in open("/proc/self/status") if line.startswith("VmRSS")][0].split()[1]
print(json.dumps({{"ms": 1000 * took, "mib": int(resident) / 1024, "packages": len(packages)}}))
"""
BODIES = {
    BARE: """
import asyncio
async def main():
    return None
asyncio.run(main())
""",
    OURS: """
import sys
sys.modules["typing_extensions"] = None  # msgspec takes it where another package brought it; ours do not bring it
import asyncio
async def main():
    from quartermaster.connectors import open_connector, registry
    from quartermaster.connectors.model import Platform
    registry.find_driver("ISCSI", platform=Platform.X86)
    return open_connector()
asyncio.run(main())
""",
    BRICK: """
from oslo_config import cfg
import os_brick
from os_brick.initiator import connector
cfg.CONF([], project="bench", default_config_files=[])
os_brick.setup(cfg.CONF)
connector.InitiatorConnector.factory("ISCSI", "")
""",
}


class Cost(msgspec.Struct, frozen=True):
    ms: float
    mib: float
    packages: int  # of others, that were loaded


async def run(directory: Path, counts: Counts) -> Part:
    pythons = {BARE: PYTHON, OURS: PYTHON}
    if counts.peer:
        pythons[BRICK] = str(peer_python())
    costs: dict[str, list[Cost]] = {name: [] for name in pythons}
    for name, python in pythons.items():
        await measure(directory, python, BODIES[name])  # the first writes the bytecode
    for _ in range(counts.imports):
        for name, python in pythons.items():
            costs[name].append(await measure(directory, python, BODIES[name]))
    return summarise(costs)


async def measure(directory: Path, python: str, body: str) -> Cost:
    argv = (python, "-W", "ignore", "-c", FRAME.format(body=body))
    environment = as_installed(directory)
    output = await output_of(argv, what="an import", timeout_s=TIMEOUT_S, cwd=ROOT, environment=environment)
    return msgspec.json.decode(output.splitlines()[-1], type=Cost)


def summarise(costs: Mapping[str, Sequence[Cost]]) -> Part:
    ms = {name: median(cost.ms for cost in each) for name, each in costs.items()}
    mib = {name: median(cost.mib for cost in each) for name, each in costs.items()}
    peer = f"os-brick {show(mib[BRICK] - mib[BARE])} MiB" if BRICK in mib else ""
    over = Bar(
        "import and first connector, memory over asyncio", mib[OURS] - mib[BARE], "at most", MEMORY_MIB, "MiB", peer
    )
    bars: tuple[Bar, ...] = (over,)
    if BRICK in ms:
        times = f"{show(ms[OURS])} ms; os-brick {show(ms[BRICK])} ms; asyncio alone {show(ms[BARE])} ms"
        share = ms[OURS] / ms[BRICK]
        bars = (Bar("import and first connector beside os-brick's time", share, "at most", SHARE, "of it", times), over)
    rows = tuple(
        (name, f"{show(ms[name])} ms", f"{show(mib[name])} MiB", f"{median(cost.packages for cost in each):.0f}")
        for name, each in costs.items()
    )
    table = Table("Import and first connector", ("what", "time", "resident memory", "packages of others"), rows)
    plot = Plot(
        "connectors-import", "Import and first connector, median", "ms", tuple(ms), {"time": tuple(ms.values())}
    )
    return Part(bars, (table,), (plot,))
