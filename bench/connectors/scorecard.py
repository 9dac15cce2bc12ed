"""The twelve faults side by side: how often each library is right, and what it did."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from bench.connectors.counts import Counts, Part
from bench.connectors.faults import FAULTS, Fault, Seen
from bench.connectors.library import BRICK, OURS
from bench.report import Bar, Table
from bench.running import require, say


async def run(directory: Path, counts: Counts) -> Part:
    # Nothing here is measured but one wait, so scenarios need not be alone.
    seats = asyncio.Semaphore(2)
    found = {
        OURS: dict(
            zip(FAULTS, await asyncio.gather(*(seen(directory, OURS, each, seats) for each in FAULTS)), strict=True)
        )
    }
    if not counts.peer:
        wrong = [
            f"{fault.number} ({each.what})" for fault, each in found[OURS].items() if not each.right and not fault.timed
        ]
        require(not wrong, f"faults that os-brick has, and we too: {', '.join(wrong)}")
        return summarise(found)
    say("os-brick goes through the twelve faults, which takes minutes")
    found[BRICK] = dict(
        zip(FAULTS, await asyncio.gather(*(seen(directory, BRICK, each, seats) for each in FAULTS)), strict=True)
    )
    return summarise(found)


async def seen(directory: Path, name: str, fault: Fault, seats: asyncio.Semaphore) -> Seen:
    async with seats:
        return await fault.scenario(directory, name)


def summarise(found: Mapping[str, Mapping[Fault, Seen]]) -> Part:
    right = {name: sum(each.right for each in seen.values()) for name, seen in found.items()}
    peer = f"os-brick {right[BRICK]} of {len(FAULTS)}" if BRICK in right else ""
    bar = Bar("scorecard of the twelve faults", float(right[OURS]), "at least", float(len(FAULTS)), "right", peer)
    rows = tuple(
        (str(fault.number), fault.name, *(cell for name in found for cell in _cells(found[name][fault])))
        for fault in FAULTS
    )
    header = ("", "fault", *(cell for name in found for cell in (name, "what it did")))
    return Part((bar,), (Table("Scorecard of the twelve faults", header, rows),))


def _cells(seen: Seen) -> tuple[str, str]:
    return ("right" if seen.right else "wrong", seen.what)
