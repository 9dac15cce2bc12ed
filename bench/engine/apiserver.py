"""On a real API server: the raw limit and our controller in turns, then kopf, one after another.

All share the machine with the server, so never at once. Each has a namespace of its own with fresh objects. What
others do to the machine meanwhile moves all figures: so each run of ours stands between two runs of the load
generator, is compared with these two, and the median of such pairs is judged, with the spread beside it. The bars name
kopf as it comes, which starts a worker for every object; what it does with its workers bounded to the same concurrency
is shown beside it, and so is our controller with its requests over aiohttp (docs/design/kubernetes-client.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import mean, median

import msgspec

from bench.engine.counts import Counts, Part
from bench.jobs.usage import JobReport
from bench.raw import RawReport, run_raw
from bench.report import Bar, Plot, Table, show
from bench.running import require, run_job, say
from bench.workload import count_written, create_nodes
from quartermaster.stores.kubernetes import KubernetesStore
from quartermaster.testing.servers import KubernetesServer

JOB_TIMEOUT_S = 600.0


class Contest:
    """One server, and what the contenders did on it."""

    def __init__(self, directory: Path, server: KubernetesServer, store: KubernetesStore, counts: Counts) -> None:
        self._directory = directory
        self._server = server
        self._store = store
        self._counts = counts
        self._environment = {"KUBECONFIG": str(server.kubeconfig)}

    async def raw(self, namespace: str) -> RawReport:
        await self._prepare(namespace, self._counts.objects)
        report = await run_raw(
            self._directory, self._server.access, self._store, namespace, connections=self._counts.concurrency
        )
        await self._check(namespace, self._counts.objects)
        return report

    async def ours(self, namespace: str, *, idle_s: float) -> JobReport:
        return await self._controller(namespace, self._counts.objects, f"--idle-s={idle_s}")

    async def ours_over_aiohttp(self, namespace: str) -> JobReport:
        return await self._controller(namespace, self._counts.aiohttp_objects, "--aiohttp")

    async def kopf(self, namespace: str, workers: int) -> JobReport:
        return await self._job(namespace, self._counts.objects, "bench.jobs.peer", f"--workers={workers}")

    async def _controller(self, namespace: str, objects: int, *arguments: str) -> JobReport:
        workers = f"--workers={self._counts.concurrency}"
        report = await self._job(
            namespace, objects, "bench.jobs.controller", "--store=kubernetes:token", workers, *arguments
        )
        require(report.reconciled == objects, f"{report.reconciled} calls for {objects}")
        return report

    async def _job(self, namespace: str, objects: int, module: str, *arguments: str) -> JobReport:
        await self._prepare(namespace, objects)
        report = await run_job(
            self._directory,
            module,
            f"--namespace={namespace}",
            f"--objects={objects}",
            *arguments,
            answer=JobReport,
            timeout_s=JOB_TIMEOUT_S,
            environment=self._environment,
        )
        require(report.reconciled >= objects, f"{module} reconciled {report.reconciled} of {objects}")
        require(report.written == objects, f"{module} wrote {report.written} of {objects}")
        await self._check(namespace, objects)
        return report

    async def _prepare(self, namespace: str, objects: int) -> None:
        say(f"kube-apiserver: {namespace}, {objects:,} objects")
        await self._server.kubectl("create", "namespace", namespace)
        await create_nodes(self._store, namespace, objects)

    async def _check(self, namespace: str, objects: int) -> None:
        written = await count_written(self._store, namespace)
        require(written == objects, f"{namespace}: {written} of {objects} have their status")


class Results(msgspec.Struct, frozen=True, kw_only=True):
    """`raw` has one run more than `ours`: before, between and after them. The last one of ours was idle for a while."""

    raw: tuple[RawReport, ...]
    ours: tuple[JobReport, ...]
    over_aiohttp: JobReport
    bounded: JobReport
    default: JobReport

    @property
    def shares(self) -> list[float]:
        """Of the raw limit, in percent: each run of ours beside the raw runs on either side of it."""
        limits = [mean((before.rate, after.rate)) for before, after in pairwise(self.raw)]
        return [100 * ours.rate / limit for ours, limit in zip(self.ours, limits, strict=True)]


async def run(directory: Path, server: KubernetesServer, counts: Counts) -> Part:
    store = await KubernetesStore.open("token", kubeconfig=server.kubeconfig)
    try:
        contest = Contest(directory, server, store, counts)
        raw, ours = [await contest.raw("raw-1")], []
        for number in range(1, counts.rounds + 1):
            idle_s = counts.idle_s if number == counts.rounds else 0.0
            ours.append(await contest.ours(f"ours-{number}", idle_s=idle_s))
            raw.append(await contest.raw(f"raw-{number + 1}"))
        results = Results(
            raw=tuple(raw),
            ours=tuple(ours),
            over_aiohttp=await contest.ours_over_aiohttp("ours-over-aiohttp"),
            bounded=await contest.kopf("kopf-bounded", counts.concurrency),
            default=await contest.kopf("kopf-default", 0),
        )
    finally:
        await store.close()
    return summarise(counts, results)


def summarise(counts: Counts, results: Results) -> Part:
    raw, ours, bounded, default = results.raw, results.ours, results.bounded, results.default
    shares = results.shares
    cpu_ms = median(report.cpu_ms for report in ours)
    growth_mib = median(report.growth_mib for report in ours)
    idle = ours[-1]
    bars = (
        Bar("rate beside the raw limit, median", median(shares), "at least", 80, "%",
            f"from {show(min(shares))} to {show(max(shares))} %; {rates(ours)}; wrk {rates(raw)}"),
        # Somebody else was busy meanwhile: then the rate above says nothing, whatever it is.
        Bar("the raw runs agree, slowest beside fastest", 100 * min(one.rate for one in raw) / max(
            one.rate for one in raw), "at least", 80, "%"),
        Bar("client CPU beside kopf's", cpu_ms / default.cpu_ms, "at most", 0.25, "of it",
            f"{show(cpu_ms)} ms per object; kopf {show(default.cpu_ms)} ms, bounded {show(bounded.cpu_ms)} ms"),
        Bar("memory growth beside kopf's", growth_mib / default.growth_mib, "at most", 0.2, "of it",
            f"{show(growth_mib)} MiB; kopf {show(default.growth_mib)} MiB, bounded {show(bounded.growth_mib)} MiB"),
        Bar(f"idle with {counts.objects:,} objects cached", idle.idle_share, "at most", 0.5, "% of a core",
            f"over {idle.idle_s:.0f} s"),
    )  # fmt: skip
    note = (
        f"Event loop of Quartermaster and kopf: {idle.loop}. The server's etcd does not sync to disk. "
        f"The bars name kopf as it comes. Beside kopf with {counts.concurrency} workers, Quartermaster takes "
        f"{show(cpu_ms / bounded.cpu_ms)} of its CPU and {show(growth_mib / bounded.growth_mib)} of its memory."
    )
    return Part(bars, (_table(counts, results, note),), _plots(counts, results, cpu_ms, growth_mib))


def _table(counts: Counts, results: Results, note: str) -> Table:
    turns = [raw_row("wrk 1", results.raw[0])]
    for number, (ours, raw) in enumerate(zip(results.ours, results.raw[1:], strict=True), start=1):
        turns += [row(f"Quartermaster {number}", ours), raw_row(f"wrk {number + 1}", raw)]
    return Table(
        f"{counts.objects:,} StorageNodes on kube-apiserver, {counts.concurrency} writes at once",
        ("who", "rate while writing", "rate from process start", "CPU per object", "memory growth", "its peak"),
        (
            *turns,
            row(f"Quartermaster over aiohttp, {counts.aiohttp_objects:,} nodes", results.over_aiohttp),
            row(f"kopf, {counts.concurrency} workers", results.bounded),
            row("kopf, as it comes", results.default),
        ),
        note,
    )


def _plots(counts: Counts, results: Results, cpu_ms: float, growth_mib: float) -> tuple[Plot, ...]:
    bounded, default = results.bounded, results.default
    names = ("Quartermaster", f"kopf, {counts.concurrency} workers", "kopf, as it comes")
    raw_rate, our_rate = (median(one.rate for one in runs) for runs in (results.raw, results.ours))
    return (
        Plot("engine-rate", "Statuses written per second, kube-apiserver", "per second", ("wrk", *names),
             {"rate": (raw_rate, our_rate, bounded.rate, default.rate)}),
        Plot("engine-cpu", "Client CPU per object", "ms", names,
             {"CPU": (cpu_ms, bounded.cpu_ms, default.cpu_ms)}, limit=default.cpu_ms / 4),
        Plot("engine-memory", f"Memory growth with {counts.objects:,} objects", "MiB", names,
             {"growth": (growth_mib, bounded.growth_mib, default.growth_mib)}, limit=default.growth_mib / 5),
    )  # fmt: skip


def rates(reports: Sequence[JobReport] | Sequence[RawReport]) -> str:
    return ", ".join(show(report.rate) for report in reports) + "/s"


def row(name: str, report: JobReport) -> tuple[str, ...]:
    return (
        name,
        f"{show(report.rate)}/s",
        f"{show(report.rate_from_start)}/s",
        f"{show(report.cpu_ms)} ms",
        f"{show(report.growth_mib)} MiB",
        f"{show(report.peak_growth_mib)} MiB",
    )


def raw_row(name: str, report: RawReport) -> tuple[str, ...]:
    return (name, f"{show(report.rate)}/s", "", "", "", "")
