"""From what the contenders report to the bars that are judged."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import pytest

from bench import cli
from bench.engine import apiserver, latency, stores
from bench.engine.apiserver import Results
from bench.engine.counts import FULL
from bench.jobs.usage import JobReport, Reading
from bench.machine import program_version
from bench.raw import RawReport
from bench.running import BenchFailedError
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


def results(raw: tuple[int, ...], ours: tuple[JobReport, ...], bounded: JobReport, default: JobReport) -> Results:
    runs = tuple(RawReport(rate, 1.0) for rate in raw)
    return Results(raw=runs, ours=ours, over_aiohttp=bounded, bounded=bounded, default=default)


def test_each_run_is_judged_by_the_raw_runs_beside_it_and_the_rest_by_kopf_as_it_comes() -> None:
    ours = (
        report(seconds=1000 / 675, cpu_s=0.47, growth_mib=2),
        report(seconds=1000 / 765, cpu_s=0.49, growth_mib=4, idle_cpu_s=0.02),
    )
    bounded = report(seconds=5.0, cpu_s=2.4, growth_mib=10)
    default = report(seconds=4.0, cpu_s=4.8, growth_mib=30)

    part = apiserver.summarise(FULL, results((700, 800, 900), ours, bounded, default))

    rate, agreement, cpu, memory, idle = part.bars
    assert not agreement.held  # 700 beside 900
    assert [bar.figure for bar in (rate, cpu, memory, idle)] == pytest.approx([90.0, 0.1, 0.1, 0.1])
    assert all(bar.held for bar in (rate, cpu, memory, idle))
    assert rate.peer == "from 90.0 to 90.0 %; 675, 765/s; wrk 700, 800, 900/s"
    turns = ["wrk 1", "Quartermaster 1", "wrk 2", "Quartermaster 2", "wrk 3"]
    assert [row[0] for row in part.tables[0].rows[:5]] == turns


def test_the_rate_is_the_median_of_the_runs_and_its_spread_is_told() -> None:
    fast, slow = report(seconds=1.0, cpu_s=1.0, growth_mib=1), report(seconds=2.0, cpu_s=1.0, growth_mib=1)

    bars = apiserver.summarise(FULL, results((1000, 1000, 1000, 1000), (fast, slow, fast), fast, fast)).bars

    assert (bars[0].figure, bars[0].peer.partition(";")[0]) == (100.0, "from 50.0 to 100 %")


def test_a_run_in_which_the_raw_limit_moved_is_not_believed() -> None:
    job = report(seconds=1.0, cpu_s=1.0, growth_mib=1)

    bars = apiserver.summarise(FULL, results((300, 400, 400), (job, job), job, job)).bars

    assert next(bar.name for bar in bars if not bar.held) == "the raw runs agree, slowest beside fastest"


def test_a_program_is_asked_for_its_version(tmp_path: Path) -> None:
    assert program_version(sys.executable) == platform.python_version()
    silent = tmp_path / "silent"
    silent.write_text("#!/bin/sh\n")
    silent.chmod(0o755)
    with pytest.raises(BenchFailedError, match="silent does not say its version"):
        program_version(silent)


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
