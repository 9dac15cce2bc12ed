"""python -m bench --bench engine|cli|cstor|orchestration|connectors|glusterfs|all … [--quick]"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from pathlib import Path

from bench import cli, connectors, cstor, document, engine, glusterfs, orchestration
from bench.machine import this_machine
from bench.report import bar_line
from bench.running import BenchFailedError
from quartermaster.support.errors import QuartermasterError

BENCHMARKS = {
    "engine": engine.run,
    "cli": cli.run,
    "cstor": cstor.run,
    "orchestration": orchestration.run,
    "connectors": connectors.run,
    "glusterfs": glusterfs.run,
}
BUSY = 1.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench")
    parser.add_argument("--bench", nargs="+", choices=[*BENCHMARKS, "all"], default=["all"])
    parser.add_argument("--quick", action="store_true", help="small counts; checks what is done, judges no timing")
    arguments = parser.parse_args()
    names = list(BENCHMARKS) if "all" in arguments.bench else arguments.bench
    failed: list[str] = []
    for name in names:
        try:
            failed += run(name, quick=arguments.quick)
        except (BenchFailedError, QuartermasterError) as error:
            print(f"FAILED {name}: {error}", flush=True)
            failed.append(name)
    if failed:
        print(f"bench FAILED: {', '.join(failed)}", flush=True)
    return 1 if failed else 0


def run(name: str, *, quick: bool) -> list[str]:
    """The names of the bars that were missed; none in the quick form, which has not measured anything."""
    machine = this_machine()
    started = time.monotonic()
    print(f"bench {name}{' (quick)' if quick else ''}: {machine.describe().rstrip(';')}", flush=True)
    if machine.load > BUSY and not quick:
        print("  the machine is busy: the figures say more about that than about the program", flush=True)
    directory = Path(tempfile.mkdtemp(prefix="quartermaster-bench-"))
    try:
        section = asyncio.run(BENCHMARKS[name](directory, quick=quick))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    elapsed_s = time.monotonic() - started
    if quick:
        print(f"bench {name}: everything was done in {elapsed_s:.0f} s; no timing is judged", flush=True)
        return []
    for bar in section.bars:
        print(bar_line(bar), flush=True)
    document.write(section, machine)
    print(f"bench {name}: {elapsed_s:.0f} s; written to docs/benchmarks.md", flush=True)
    return [bar.name for bar in section.bars if not bar.held]


if __name__ == "__main__":
    sys.exit(main())
