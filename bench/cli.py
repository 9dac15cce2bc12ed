"""How long a person waits for `qm`: beside a Python that does nothing, in turns, so that both meet the same machine."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from bench.machine import package_versions
from bench.report import Bar, Plot, Section, Table, percentile, show, text_table
from bench.running import BenchFailedError, as_installed, require
from bench.workload import create_nodes
from quartermaster.stores import open_store

RUNS, QUICK_RUNS = 41, 3
OBJECTS = 100
COMMAND_TIMEOUT_S = 30.0
HELP_MS, GET_MS = 150.0, 250.0
QM = str(Path(sys.executable).parent / "qm")

ABOUT = f"""Each command is run {RUNS} times, in turns with `python -c pass`; figures are medians of the whole command,
from its start to its end, as a person waits for it. The embedded store holds {OBJECTS} StorageNodes."""


async def run(directory: Path, *, quick: bool) -> Section:
    url = f"sqlite:{directory / 'embedded.db'}"
    store = await open_store(url)
    await create_nodes(store, "default", OBJECTS)
    await store.close()
    home = directory / "home"
    home.mkdir()
    environment = {**as_installed(directory), "HOME": str(home), "QM_STORE": url, "NO_COLOR": "1"}
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "qm --help": [QM, "--help"],
        "qm get storagenodes": [QM, "get", "storagenodes"],
    }
    times: dict[str, list[float]] = {name: [] for name in commands}
    for command in commands.values():
        await timed(command, environment)  # the first run writes the bytecode
    for _ in range(QUICK_RUNS if quick else RUNS):
        for name, command in commands.items():
            took_ms, output = await timed(command, environment)
            check(name, output)
            times[name].append(took_ms)
    section = summarise(times)
    for table in section.tables:
        print(text_table(table), flush=True)
    return section


async def timed(command: Sequence[str], environment: Mapping[str, str]) -> tuple[float, str]:
    started = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=dict(environment),
    )
    try:
        output, errors = await asyncio.wait_for(process.communicate(), COMMAND_TIMEOUT_S)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    took_ms = 1000 * (time.perf_counter() - started)
    if process.returncode != 0:
        raise BenchFailedError(f"{Path(command[0]).name} ended with code {process.returncode}: {errors.decode()}")
    return took_ms, output.decode()


def check(name: str, output: str) -> None:
    if name == "qm --help":
        require("Commands:" in output, "qm --help does not list commands")
    elif name.startswith("qm get"):
        shown = sum(line.startswith("node-") for line in output.splitlines())
        require(shown == OBJECTS, f"qm get shows {shown} of {OBJECTS} objects")


def summarise(times: Mapping[str, Sequence[float]]) -> Section:
    bare, helped, got = (median(values) for values in times.values())
    peer = f"bare Python {show(bare)} ms"
    bars = (
        Bar("qm --help over bare Python", helped - bare, "at most", HELP_MS, "ms", f"whole {show(helped)} ms; {peer}"),
        Bar(f"qm get with {OBJECTS} objects", got, "at most", GET_MS, "ms", f"{show(got - bare)} ms over it; {peer}"),
    )
    table = Table(
        "Whole commands",
        ("command", "runs", "median", "p90", "over bare Python"),
        tuple(
            (
                name,
                str(len(values)),
                f"{show(median(values))} ms",
                f"{show(percentile(values, 0.9))} ms",
                f"{show(median(values) - bare)} ms",
            )
            for name, values in times.items()
        ),
    )
    plot = Plot(
        "cli-commands",
        "Whole commands, median",
        "ms",
        tuple(times),
        {"median": tuple(median(values) for values in times.values())},
    )
    return Section("cli", ABOUT, bars, (table,), (plot,), package_versions("click", "msgspec"))
