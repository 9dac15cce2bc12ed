"""From a write to the reconciler's call, the writer and the controller being two processes (memory: one)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from bench.engine.counts import Counts, Part
from bench.jobs.latency import LatencyReport
from bench.jobs.writer import WriterReport
from bench.report import Bar, Plot, Table, percentile, show
from bench.running import job, require, run_job, say

NAMESPACE = "latency"
READY_TIMEOUT_S = 60.0
JOB_TIMEOUT_S = 180.0
SQLITE = "sqlite"
SQLITE_P99_MS = 20.0


class Latency(msgspec.Struct, frozen=True):
    store: str
    latencies_ms: tuple[float, ...]
    writes_ms: tuple[float, ...]


async def measure(
    directory: Path, name: str, url: str, counts: Counts, environment: Mapping[str, str] | None = None
) -> Latency:
    say(f"{name}: latency of {counts.writes:,} writes")
    in_memory = url == "memory:"
    arguments = [f"--store={url}", f"--namespace={NAMESPACE}", f"--objects={counts.writes}"]
    watcher = [*arguments, *(["--write"] if in_memory else [])]
    async with job(directory, "bench.jobs.latency", *watcher, environment=environment) as running:
        require(await running.line(READY_TIMEOUT_S) == "ready", f"{name}: the watcher is not ready")
        writes: tuple[float, ...] = ()
        if not in_memory:
            written = await run_job(
                directory,
                "bench.jobs.writer",
                *arguments,
                answer=WriterReport,
                timeout_s=JOB_TIMEOUT_S,
                environment=environment,
            )
            writes = written.writes_ms
        report = await running.report(LatencyReport, JOB_TIMEOUT_S)
    require(len(report.latencies_ms) == counts.writes, f"{name}: {len(report.latencies_ms)} of {counts.writes} arrived")
    return Latency(name, report.latencies_ms, writes or report.writes_ms)


def summarise(measured: Sequence[Latency]) -> Part:
    bars = tuple(
        Bar(
            "sqlite, from a write to the reconciler of another process, p99",
            percentile(one.latencies_ms, 0.99),
            "at most",
            SQLITE_P99_MS,
            "ms",
            f"p50 {show(percentile(one.latencies_ms, 0.5))} ms; the write itself p50 "
            f"{show(percentile(one.writes_ms, 0.5))} ms, p99 {show(percentile(one.writes_ms, 0.99))} ms",
        )
        for one in measured
        if one.store == SQLITE
    )
    table = Table(
        "From a write to the reconciler's call",
        ("store", "writes", "p50", "p99", "largest", "the write itself, p50", "p99"),
        tuple(
            (one.store, str(len(one.latencies_ms)), *_shown(one.latencies_ms), *_shown(one.writes_ms)[:2])
            for one in measured
        ),
        "Counted from before the writer's call, so the write (and its sync to disk) is part of it. The writer and the "
        "controller are two processes; memory has one.",
    )
    plot = Plot(
        "engine-latency",
        "From a write to the reconciler's call",
        "ms",
        tuple(one.store for one in measured),
        {
            "p50": tuple(percentile(one.latencies_ms, 0.5) for one in measured),
            "p99": tuple(percentile(one.latencies_ms, 0.99) for one in measured),
        },
        logarithmic=True,
    )
    return Part(bars, (table,), (plot,))


def _shown(values: Sequence[float]) -> tuple[str, ...]:
    return tuple(f"{show(figure)} ms" for figure in (*(percentile(values, q) for q in (0.5, 0.99)), max(values)))
