"""The attach again, with a real kernel at both ends: in the host lab, where starting a program takes twenty times as
long as on the machine. What is compared is how much longer the library takes than a script that runs the same."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from bench.connectors.counts import Counts, Part
from bench.connectors.lab_attach import BARE, OURS
from bench.report import Bar, Table, show
from bench.running import require
from tests.hostlab.guest import Guest, user_mode_linux

NODE = "bench/connectors/lab_attach.py::test_attach"
OVER_MS = 20.0
TIMEOUT_S = 600.0


async def run(_directory: Path, counts: Counts) -> Part:
    if not counts.lab:
        return Part((), ())
    guest = Guest(user_mode_linux(max(os.sched_getaffinity(0))))
    try:
        answer = guest.run(NODE, timeout_s=TIMEOUT_S)
    finally:
        guest.end()
    told = [report["user_properties"] for report in answer["reports"] if report["when"] == "call"]
    passed = [report["outcome"] for report in answer["reports"]] == ["passed"] * 3
    require(passed and bool(told), f"the attach in the host lab fails:\n{answer['log'][-3000:]}")
    return summarise(dict(told[0]))


def summarise(times: dict[str, Sequence[float]]) -> Part:
    ours, bare = median(times[OURS]), median(times[BARE])
    bar = Bar(
        "attach over a real kernel's iSCSI, over the bare script",
        ours - bare,
        "at most",
        OVER_MS,
        "ms",
        f"{show(ours)} ms; script {show(bare)} ms",
    )
    rows = tuple(
        (name, f"{show(median(values))} ms", f"{show(max(values))} ms")
        for name, values in (("bare script", times[BARE]), ("Quartermaster", times[OURS]))
    )
    return Part((bar,), (Table("One attach over iSCSI in User-Mode Linux", ("what", "median", "slowest"), rows),))
