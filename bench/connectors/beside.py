"""A healthy attach while another volume of the same session waits for a LUN that never appears."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median

import msgspec

from bench.connectors.counts import Counts, Part
from bench.connectors.host import FakeHost, fake_host
from bench.connectors.kernel import Lun, Target
from bench.connectors.library import BRICK, OURS, Call, Library, Outcome, start_library
from bench.connectors.volumes import NEVER, add_iscsi, connect, disconnect, iscsi_data, wwid
from bench.report import Bar, Table, show
from bench.running import require, say

OVER_MS = 20.0
HEALTHY, SICK, KEEPING = 1, 2, 3  # LUNs; the last one keeps the session up all the time
LATER_S = 0.5  # when the other is at its wait for sure
PEER_PATIENCE_S = 600.0


class Beside(msgspec.Struct, frozen=True):
    alone_ms: tuple[float, ...]
    beside_ms: tuple[float, ...]
    waited: bool  # the sick one was still waiting when each healthy one had ended
    brick_alone_ms: float | None = None
    brick_beside_ms: float | None = None


async def run(directory: Path, counts: Counts) -> Part:
    async with fake_host(directory, "beside") as host, start_library(directory, host, OURS) as running:
        target = declare(host)
        await running.well(connect("iscsi", iscsi_data(target, KEEPING)))
        alone = [await alone_once(running, target) for _ in range(counts.healthy + 1)][1:]
        pairs = [await beside_once(running, target, patience_s=counts.patience_s) for _ in range(counts.healthy)]
    healthy = tuple(outcome.took_ms for outcome, _ in pairs)
    found = Beside(tuple(alone), healthy, all(good.ended_s < bad.ended_s for good, bad in pairs))
    if counts.peer:
        found = await with_peer(directory, found)
    return summarise(found)


def declare(host: FakeHost) -> Target:
    target = add_iscsi(host.kernel, 1, late_s=0.05)
    target.luns |= {SICK: Lun(wwid(2), NEVER), KEEPING: Lun(wwid(3))}
    return target


async def alone_once(running: Library, target: Target) -> float:
    (outcome,) = await running.well(connect("iscsi", iscsi_data(target, HEALTHY)))
    await running.well(disconnect("iscsi", iscsi_data(target, HEALTHY)))
    return outcome.took_ms


async def beside_once(running: Library, target: Target, *, patience_s: float) -> tuple[Outcome, Outcome]:
    calls: Sequence[Call] = (
        connect("iscsi", iscsi_data(target, SICK), timeout_s=patience_s),
        connect("iscsi", iscsi_data(target, HEALTHY), after_s=LATER_S),
    )
    bad, good = await running.make(*calls, timeout_s=PEER_PATIENCE_S)
    require(not good.error, f"{running.name} fails beside a sick volume: {good.error}")
    require(bool(bad.error), f"{running.name} attaches a LUN that is not there: {bad.value}")
    await running.well(disconnect("iscsi", iscsi_data(target, HEALTHY)))
    return good, bad


async def with_peer(directory: Path, found: Beside) -> Beside:
    say("os-brick attaches beside a LUN that never appears, which takes minutes")
    async with fake_host(directory, "beside-brick") as host, start_library(directory, host, BRICK) as running:
        target = declare(host)
        await running.well(connect("iscsi", iscsi_data(target, KEEPING)))
        alone_ms = await alone_once(running, target)
        good, _ = await beside_once(running, target, patience_s=0.0)
    return msgspec.structs.replace(found, brick_alone_ms=alone_ms, brick_beside_ms=good.took_ms)


def summarise(found: Beside) -> Part:
    require(found.waited, "the attach whose LUN never appears ended before the healthy one")
    alone, beside = median(found.alone_ms), median(found.beside_ms)
    peer = f"{show(alone)} ms alone, {show(beside)} ms beside it"
    rows = [(OURS, f"{show(alone)} ms", f"{show(beside)} ms")]
    if found.brick_alone_ms is not None and found.brick_beside_ms is not None:
        rows.append((BRICK, f"{show(found.brick_alone_ms)} ms", f"{show(found.brick_beside_ms)} ms"))
        peer += f"; os-brick {show(found.brick_beside_ms / 1000)} s"
    name = "healthy attach beside a LUN that never appears, on one session: more than alone"
    bar = Bar(name, beside - alone, "at most", OVER_MS, "ms", peer)
    header = ("what", "healthy attach alone", "beside a LUN that never appears")
    return Part((bar,), (Table("A healthy attach beside a sick one", header, tuple(rows)),))
