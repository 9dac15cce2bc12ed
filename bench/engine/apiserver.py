"""On a real API server: the raw limit, our controller, the raw limit again, and kopf, one after another.

All share the machine with the server, so never at once. Each has a namespace of its own with fresh objects. The bars
name kopf as it comes, which starts a worker for every object; what it does with its workers bounded to the same
concurrency is shown beside it.
"""

from __future__ import annotations

from pathlib import Path

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
        await self._prepare(namespace)
        report = await run_raw(
            self._directory, self._server.access, self._store, namespace, connections=self._counts.concurrency
        )
        await self._check(namespace)
        return report

    async def ours(self, namespace: str) -> JobReport:
        report = await self._job(
            namespace,
            "bench.jobs.controller",
            "--store=kubernetes:token",
            f"--workers={self._counts.concurrency}",
            f"--idle-s={self._counts.idle_s}",
        )
        require(report.reconciled == self._counts.objects, f"{report.reconciled} calls for {self._counts.objects}")
        return report

    async def kopf(self, namespace: str, workers: int) -> JobReport:
        return await self._job(namespace, "bench.jobs.peer", f"--workers={workers}")

    async def _job(self, namespace: str, module: str, *arguments: str) -> JobReport:
        await self._prepare(namespace)
        report = await run_job(
            self._directory,
            module,
            f"--namespace={namespace}",
            f"--objects={self._counts.objects}",
            *arguments,
            answer=JobReport,
            timeout_s=JOB_TIMEOUT_S,
            environment=self._environment,
        )
        objects = self._counts.objects
        require(report.reconciled >= objects, f"{module} reconciled {report.reconciled} of {objects}")
        require(report.written == objects, f"{module} wrote {report.written} of {objects}")
        await self._check(namespace)
        return report

    async def _prepare(self, namespace: str) -> None:
        say(f"kube-apiserver: {namespace}, {self._counts.objects:,} objects")
        await self._server.kubectl("create", "namespace", namespace)
        await create_nodes(self._store, namespace, self._counts.objects)

    async def _check(self, namespace: str) -> None:
        written = await count_written(self._store, namespace)
        require(written == self._counts.objects, f"{namespace}: {written} of {self._counts.objects} have their status")


async def run(directory: Path, server: KubernetesServer, counts: Counts) -> Part:
    store = await KubernetesStore.open("token", kubeconfig=server.kubeconfig)
    try:
        contest = Contest(directory, server, store, counts)
        raw_before = await contest.raw("raw-before")
        ours = await contest.ours("ours")
        raw_after = await contest.raw("raw-after")
        bounded = await contest.kopf("kopf-bounded", counts.concurrency)
        default = await contest.kopf("kopf-default", 0)
    finally:
        await store.close()
    return summarise(counts, (raw_before, raw_after), ours, bounded, default)


def summarise(
    counts: Counts, raw: tuple[RawReport, RawReport], ours: JobReport, bounded: JobReport, default: JobReport
) -> Part:
    raw_rate = (raw[0].rate + raw[1].rate) / 2
    peer_cpu_ms, peer_growth = default.cpu_ms, default.growth_mib
    agreement = 100 * min(one.rate for one in raw) / max(one.rate for one in raw)
    bars = (
        Bar("rate beside the raw limit", 100 * ours.rate / raw_rate, "at least", 80, "%",
            f"{show(ours.rate)}/s; wrk {show(raw[0].rate)}/s before, {show(raw[1].rate)}/s after"),
        # Somebody else was busy meanwhile: then the rate above says nothing, whatever it is.
        Bar("the raw runs agree, slower beside faster", agreement, "at least", 80, "%"),
        Bar("client CPU beside kopf's", ours.cpu_ms / peer_cpu_ms, "at most", 0.25, "of it",
            f"{show(ours.cpu_ms)} ms per object; kopf {show(peer_cpu_ms)} ms, bounded {show(bounded.cpu_ms)} ms"),
        Bar("memory growth beside kopf's", ours.growth_mib / peer_growth, "at most", 0.2, "of it",
            f"{show(ours.growth_mib)} MiB; kopf {show(peer_growth)} MiB, bounded {show(bounded.growth_mib)} MiB"),
        Bar(f"idle with {counts.objects:,} objects cached", ours.idle_share, "at most", 0.5, "% of a core",
            f"over {ours.idle_s:.0f} s"),
    )  # fmt: skip
    contenders = {
        "Quartermaster": ours,
        f"kopf, {counts.concurrency} workers": bounded,
        "kopf, as it comes": default,
    }
    rows = [raw_row("wrk before", raw[0]), *(row(name, report) for name, report in contenders.items())]
    table = Table(
        f"{counts.objects:,} StorageNodes on kube-apiserver, {counts.concurrency} writes at once",
        ("who", "rate while writing", "rate from process start", "CPU per object", "memory growth", "its peak"),
        (*rows, raw_row("wrk after", raw[1])),
        f"Event loop of Quartermaster and kopf: {ours.loop}. The server's etcd does not sync to disk. "
        f"The bars name kopf as it comes. Beside kopf with {counts.concurrency} workers, Quartermaster takes "
        f"{show(ours.cpu_ms / bounded.cpu_ms)} of its CPU and {show(ours.growth_mib / bounded.growth_mib)} "
        "of its memory.",
    )
    names = ("wrk", *contenders)
    plots = (
        Plot("engine-rate", "Statuses written per second, kube-apiserver", "per second", names,
             {"rate": (raw_rate, *(report.rate for report in contenders.values()))}),
        Plot("engine-cpu", "Client CPU per object", "ms", tuple(contenders),
             {"CPU": tuple(report.cpu_ms for report in contenders.values())}, limit=peer_cpu_ms / 4),
        Plot("engine-memory", f"Memory growth with {counts.objects:,} objects", "MiB", tuple(contenders),
             {"growth": tuple(report.growth_mib for report in contenders.values())}, limit=peer_growth / 5),
    )  # fmt: skip
    return Part(bars, (table,), plots)


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
