"""What `python -m` of a scenario does: one seed with its trace, or many with a line each.

A line is seed, steps, virtual seconds, and a digest of the trace that is equal whenever the same seed runs again.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from quartermaster.support import log
from quartermaster.testing.simulation import Run, run
from quartermaster.testing.simulation.loop import Record

from .invariants import ViolationError


class Tally(msgspec.Struct, frozen=True):
    """How often each kind of fault happened, and how much of what was meant to happen did."""

    faults: dict[str, int]
    events: dict[str, int]


Scenario = Callable[[], Coroutine[Any, Any, Tally]]


def digest(result: Run[Any]) -> str:
    trace = hashlib.sha256(repr(result.trace).encode()).hexdigest()[:16]
    return f"{result.seed} {result.steps} {result.time_s:.6f} {result.fingerprint:016x} {trace}"


def show(trace: list[Record]) -> None:
    for time_s, process, *parts in trace:
        print(f"{time_s:10.3f}  {process:10}", *parts)


def main(program: str, scenario: Scenario, *, max_steps: int) -> int:
    parser = argparse.ArgumentParser(prog=f"python -m {program}")
    parser.add_argument("--seed", type=int, help="one seed only")
    parser.add_argument("--trace", action="store_true", help="show what happened")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=10)
    arguments = parser.parse_args()
    log.configure(verbosity=-1)
    first, count = (arguments.seed, 1) if arguments.seed is not None else (arguments.first, arguments.count)
    totals: dict[str, int] = {}
    for seed in range(first, first + count):
        trace: list[Record] = []
        # A sixth of the time otherwise, for a trace that only grows. What a seed has left goes before the next one.
        gc.collect()
        gc.disable()
        try:
            result = run(scenario, seed=seed, max_steps=max_steps, trace=trace)
        except Exception as error:
            show(trace if arguments.trace else [])
            name = error.invariant if isinstance(error, ViolationError) else type(error).__name__
            print(json.dumps({"seed": seed, "violated": name, "detail": str(error)}), flush=True)
            return 1
        show(trace if arguments.trace else [])
        print(digest(result))
        for part in (result.value.faults, result.value.events):
            for name, number in part.items():
                totals[name] = totals.get(name, 0) + number
    print(json.dumps({"totals": totals}))
    return 0
