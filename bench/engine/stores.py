"""The same job on the stores of our own, in absolute figures; and on memory at three sizes, where it must stay flat."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from bench.engine.counts import Counts, Part
from bench.jobs.usage import JobReport
from bench.report import Bar, Plot, Table, show
from bench.running import require, run_job, say
from bench.workload import count_written, create_nodes
from quartermaster.stores import open_store

WORKERS = 16
JOB_TIMEOUT_S = 600.0
FLAT_PERCENT = 30.0


class Run(msgspec.Struct, frozen=True):
    store: str
    objects: int
    report: JobReport

    @property
    def us_per_object(self) -> float:
        """From the first list to the last status."""
        return 1e6 * (self.report.last_s - self.report.before.at_s) / self.objects


async def run_job_on(directory: Path, name: str, url: str, objects: int) -> Run:
    """`objects` fresh objects, made by this process where another one can see them."""
    say(f"{name}: {objects:,} objects")
    namespace, in_memory = f"job-{objects}", url == "memory:"
    arguments = [f"--store={url}", f"--namespace={namespace}", f"--objects={objects}", f"--workers={WORKERS}"]
    if not in_memory:
        store = await open_store(url)
        try:
            await create_nodes(store, namespace, objects)
        finally:
            await store.close()
    report = await run_job(
        directory,
        "bench.jobs.controller",
        *arguments,
        *(["--create"] if in_memory else []),
        answer=JobReport,
        timeout_s=JOB_TIMEOUT_S,
    )
    require(report.reconciled == objects, f"{name}: {report.reconciled} of {objects} were reconciled")
    require(report.written == objects, f"{name}: {report.written} of {objects} were written")
    if not in_memory:
        store = await open_store(url)
        try:
            written = await count_written(store, namespace)
        finally:
            await store.close()
        require(written == objects, f"{name}: {written} of {objects} have their status")
    return Run(name, objects, report)


async def run_scale(directory: Path, counts: Counts) -> list[Run]:
    """On memory at each size, the median of some rounds: what else the machine does changes from one to the next."""
    rounds = [
        [await run_job_on(directory, "memory", "memory:", objects) for objects in counts.scale]
        for _ in range(counts.rounds)
    ]
    return [
        sorted(of_size, key=lambda run: run.report.cpu_ms)[len(of_size) // 2] for of_size in zip(*rounds, strict=True)
    ]


def summarise(runs: Sequence[Run], scale: Sequence[Run]) -> Part:
    # Processor time: this store waits for nothing, and so it is the same as time on a machine that is idle otherwise.
    costs = [1000 * run.report.cpu_ms for run in scale]
    spread = 100 * (max(costs) / min(costs) - 1)
    sizes = ", ".join(f"{run.objects:,}: {show(cost)} µs" for run, cost in zip(scale, costs, strict=True))
    bar = Bar(
        "CPU per object on memory, dearest size beside cheapest", spread, "at most", FLAT_PERCENT, "% more", sizes
    )
    table = Table(
        "The same job on the other stores",
        ("store", "objects", "rate while writing", "from first list to last status", "CPU per object", "memory growth"),
        tuple(
            (
                run.store,
                f"{run.objects:,}",
                f"{show(run.report.rate)}/s",
                f"{show(run.us_per_object)} µs per object",
                f"{show(run.report.cpu_ms)} ms",
                f"{show(run.report.growth_mib)} MiB",
            )
            for run in runs
        ),
        f"{WORKERS} workers. etcd: three members on this machine that sync to disk. sqlite: WAL, synchronous=FULL. "
        "memory: the store is in the same process, so its work is part of the figures; the median of three rounds.",
    )
    labels = tuple(f"{run.store}, {run.objects:,}" for run in runs)
    plot = Plot(
        "engine-stores",
        "Statuses written per second, other stores",
        "per second",
        labels,
        {"rate": tuple(run.report.rate for run in runs)},
    )
    return Part((bar,), (table,), (plot,))
