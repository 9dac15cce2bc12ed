"""`make check` and `make test`: which steps there are, which run side by side, and one line of totals in the end.

All steps run even if one fails, so that one run shows everything there is to mend. Building the real servers takes
minutes on a new machine: it goes on beside the linters and the tests that need no server.
"""

import argparse
import asyncio
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.setup import cache_directory

STEP_TIMEOUT_S = 3600
DEEP_TIMEOUT_S = 12 * 3600
FAST = "not slow and not etcd and not kubernetes and not netns and not systemd and not hostlab and not deep"
# The fast tests run in two processes that know nothing of each other: to hand them out one by one costs as much again.
FIRST_HALF = {"backends", "bench", "cli", "cluster", "cluster_glusterfs", "connectors", "cstor"}
WORKERS = 3  # on two cores: slow tests wait about as long as they work


@dataclass(frozen=True)
class Step:
    """One command; `live` shows its output while it runs and not only when it fails."""

    name: str
    arguments: Sequence[str]
    live: bool = False
    timeout_s: int = STEP_TIMEOUT_S


@dataclass(frozen=True)
class Result:
    name: str
    passed: bool
    output: str = ""


def module(name: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", name, *arguments]


FORMAT = Step("format", module("ruff", "format", "--check", "--quiet"))
LINT = Step("lint", module("ruff", "check", "--quiet"))
# What mypy found is kept outside the clone: in a new one only what differs is looked at again.
TYPES = Step("types", module("mypy", "--strict", "--cache-dir", str(cache_directory() / "mypy")))
IMPORTS = Step("imports", [os.path.join(os.path.dirname(sys.executable), "lint-imports"), "--no-cache"])
LINTERS = [FORMAT, LINT, IMPORTS, TYPES]
# Two halves of about the same length, which judge no timing and so may run side by side.
BENCHMARKS = [
    Step(f"benchmarks: {', '.join(names)}", module("bench", "--quick", "--bench", *names))
    for names in (("engine", "glusterfs"), ("cli", "cstor", "orchestration", "connectors"))
]


def fast_steps() -> list[Step]:
    folders = sorted(path for path in Path("tests").iterdir() if path.is_dir() and path.name != "__pycache__")
    halves = [[str(one) for one in folders if (one.name in FIRST_HALF) is first] for first in (True, False)]
    return [
        Step(f"fast tests, {which} half", module("pytest", "-q", "--durations", "6", "-m", FAST, *half))
        for which, half in zip(("first", "second"), halves, strict=True)
    ]


def pytest_step(name: str, markers: str, *, live: bool = False, timeout_s: int = STEP_TIMEOUT_S) -> Step:
    shared = ("-n", str(WORKERS), "--dist", "worksteal")
    return Step(name, module("pytest", "-q", *shared, "--durations", "12", "-m", markers), live, timeout_s)


def say(message: str) -> None:
    print(message, flush=True)


async def run(step: Step) -> Result:
    started = time.monotonic()
    if step.live:
        say(f"-- {step.name}")
    process = await asyncio.create_subprocess_exec(
        *step.arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert process.stdout is not None
    chunks: list[str] = []
    try:
        async with asyncio.timeout(step.timeout_s):
            while chunk := (await process.stdout.read(65536)).decode(errors="replace"):
                chunks.append(chunk)
                if step.live:
                    print(chunk, end="", flush=True)
            await process.wait()
    except TimeoutError:
        chunks.append(f"\nit did not end within {step.timeout_s} s")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    output = "".join(chunks)
    result = Result(step.name, process.returncode == 0, output)
    if not result.passed and not step.live:
        say(output.rstrip())
    elapsed_s = time.monotonic() - started
    say(f"-- {step.name}: {'ok' if result.passed else 'FAILED'} ({elapsed_s:.1f} s){last_line(output)}")
    return result


def last_line(output: str) -> str:
    """The summary of pytest; other tools say nothing that is worth a line when they pass."""
    found = re.findall(r"^=*\s*(\d+ (?:passed|failed|error).*?)(?: in [\d.]+s.*)$", output, re.MULTILINE)
    return f": {found[-1]}" if found else ""


async def run_in_order(steps: Sequence[Step]) -> list[Result]:
    return [await run(step) for step in steps]


async def check() -> list[Result]:
    first, second = fast_steps()
    linters, *halves = await asyncio.gather(run_in_order(LINTERS), run_in_order([first]), run_in_order([second]))
    return [*linters, *(result for half in halves for result in half)]


async def test(deep: bool) -> list[Result]:
    build = await asyncio.create_subprocess_exec(*module("tools.servers", "build"))
    try:
        # Tests that need a server wait for its build; the others fill the processors meanwhile.
        markers, timeout_s = ("deep or not deep", DEEP_TIMEOUT_S) if deep else ("not deep", STEP_TIMEOUT_S)
        tests = pytest_step("tests", markers, live=True, timeout_s=timeout_s)
        linters, tested = await asyncio.gather(run_in_order(LINTERS), run(tests))
        built = await asyncio.wait_for(build.wait(), STEP_TIMEOUT_S) == 0
    finally:
        if build.returncode is None:
            build.terminate()
            await build.wait()
    benchmarks = await asyncio.gather(*(run(step) for step in BENCHMARKS))
    return [*linters, tested, Result("build of servers", built), *benchmarks]


def totals(results: Sequence[Result]) -> str:
    counts: Counter[str] = Counter()
    for result in results:
        for number, word in re.findall(r"(\d+) (passed|failed|errors?|skipped|xfailed)", last_line(result.output)):
            counts[word] += int(number)
    return ", ".join(f"{number} {word}" for word, number in counts.items()) or "no tests"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.verify")
    parser.add_argument("what", choices=["check", "test"])
    parser.add_argument("--deep", action="store_true", help="with the long forms of the tests")
    arguments = parser.parse_args()
    started = time.monotonic()
    results = asyncio.run(check() if arguments.what == "check" else test(arguments.deep))
    failed = [result.name for result in results if not result.passed]
    verdict = f"FAILED: {', '.join(failed)}" if failed else "ok"
    say(f"{arguments.what} {verdict} | {totals(results)} | {time.monotonic() - started:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
