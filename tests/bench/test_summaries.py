"""From what the contenders report to the bars that are judged."""

from __future__ import annotations

import pytest

from bench import cli
from bench.engine import apiserver, latency, stores
from bench.engine.counts import FULL
from bench.jobs.usage import JobReport, Reading
from bench.raw import RawReport
from bench.workload import node, status_document, with_status
from quartermaster.resources.codec import to_document

MIB = 2**20


def report(*, seconds: float, cpu_s: float, growth_mib: int, objects: int = 1000, idle_cpu_s: float = 0.0) -> JobReport:
    """A job that began at 0, was ready at 1, and wrote from 2 on."""
    return JobReport(
        reconciled=objects,
        written=objects,
        began_s=0.0,
        before=Reading(1.0, 0.5, 40 * MIB),
        first_s=2.0,
        last_s=2.0 + seconds,
        after=Reading(2.0 + seconds, 0.5 + cpu_s, (40 + growth_mib) * MIB),
        peak_rss_bytes=(50 + growth_mib) * MIB,
        loop="uvloop",
        idle_s=20.0,
        idle_cpu_s=idle_cpu_s,
    )


def test_a_job_report_counts_from_the_moment_the_process_was_ready() -> None:
    job = report(seconds=2.0, cpu_s=0.5, growth_mib=12, idle_cpu_s=0.02)

    assert (job.rate, job.rate_from_start) == (500.0, 250.0)
    assert (job.cpu_ms, job.growth_mib, job.peak_growth_mib) == (0.5, 12.0, 22.0)
    assert job.idle_share == pytest.approx(0.1)


def test_our_rate_is_judged_by_the_mean_of_the_raw_runs_and_the_rest_by_kopf_as_it_comes() -> None:
    raw = (RawReport(700, 1.0), RawReport(800, 1.0))
    ours = report(seconds=1000 / 675, cpu_s=0.48, growth_mib=3, idle_cpu_s=0.02)
    bounded = report(seconds=5.0, cpu_s=2.4, growth_mib=10)
    default = report(seconds=4.0, cpu_s=4.8, growth_mib=30)

    rate, agreement, cpu, memory, idle = apiserver.summarise(FULL, raw, ours, bounded, default).bars

    assert agreement.held
    assert [bar.figure for bar in (rate, cpu, memory, idle)] == pytest.approx([90.0, 0.1, 0.1, 0.1])
    assert all(bar.held for bar in (rate, cpu, memory, idle))


def test_a_run_in_which_the_raw_limit_moved_is_not_believed() -> None:
    job = report(seconds=1.0, cpu_s=1.0, growth_mib=1)

    bars = apiserver.summarise(FULL, (RawReport(300, 1.0), RawReport(400, 1.0)), job, job, job).bars

    assert next(bar.name for bar in bars if not bar.held) == "the raw runs agree, slower beside faster"


def test_the_cost_per_object_is_compared_between_the_cheapest_and_the_dearest_size() -> None:
    small = stores.Run("memory", 1000, report(seconds=1.0, cpu_s=0.2, growth_mib=1))
    large = stores.Run("memory", 2000, report(seconds=1.0, cpu_s=0.56, growth_mib=1, objects=2000))

    (bar,) = stores.summarise([small, large], [small, large]).bars

    assert bar.figure == pytest.approx(40.0)
    assert not bar.held


def test_only_sqlite_has_a_bar_on_latency_and_it_is_on_p99() -> None:
    slow = (1.0,) * 97 + (30.0,) * 3
    measured = [latency.Latency(name, slow, (1.0,)) for name in ("memory", "sqlite")]

    (bar,) = latency.summarise(measured).bars

    assert (bar.figure, bar.held) == (30.0, False)


def test_qm_help_is_judged_over_bare_python_and_qm_get_as_a_whole() -> None:
    times = {"python -c pass": [20.0, 21.0, 99.0], "qm --help": [121.0] * 3, "qm get storagenodes": [240.0] * 3}

    helped, got = cli.summarise(times).bars

    assert (helped.figure, got.figure) == (100.0, 240.0)
    assert helped.held
    assert got.held


def test_every_contender_writes_the_same_status() -> None:
    obj = with_status(node("default", 7))

    assert status_document("node-00007", obj.metadata.generation) == to_document(obj)["status"]
