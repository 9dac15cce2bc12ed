"""One host with nothing: from `qm up --single` to a bound claim, in whole commands, as a person waits for it."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from statistics import median

from bench.cli import timed
from bench.orchestration.counts import Counts, Part
from bench.report import Bar, Table, show
from bench.running import as_installed, require

QM = str(Path(sys.executable).parent / "qm")
BOUND_S = 3.0
PATIENCE_S = 30.0
CLAIM = """apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec:
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 1Gi}}
"""


async def run(directory: Path, counts: Counts) -> Part:
    first = await measure(directory / "first")  # it compiles, and counts only where there is no other
    kept = [await measure(directory / str(number)) for number in range(counts.runs)] or [first]
    up_s, bound_s = median(up for up, _ in kept), median(bound for _, bound in kept)
    bar = Bar("qm up --single to a bound claim", bound_s, "at most", BOUND_S, "s", f"qm up itself {show(up_s)} s")
    rows = tuple(
        (what, str(len(kept)), f"{show(median(values))} s", f"{show(max(values))} s")
        for what, values in (
            ("qm up --single", [up for up, _ in kept]),
            ("and qm apply of a claim, until it is Bound", [bound for _, bound in kept]),
        )
    )
    return Part((bar,), (Table("One host, nothing installed", ("from nothing to", "runs", "median", "most"), rows),))


async def measure(directory: Path) -> tuple[float, float]:
    """Seconds until `qm up` returned, and until the claim was bound."""
    (directory / "home").mkdir(parents=True)
    claim = directory / "claim.yaml"
    claim.write_text(CLAIM)
    environment = {
        **{name: value for name, value in as_installed(directory.parent.parent).items() if not name.startswith("QM_")},
        "HOME": str(directory / "home"),
        "QM_STATE_DIR": str(directory / "state"),
        "NO_COLOR": "1",
    }
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "KUBECONFIG"):
        environment.pop(name, None)
    began = time.perf_counter()
    try:
        await timed([QM, "up", "--single"], environment)
        up_s = time.perf_counter() - began
        await timed([QM, "apply", "-f", str(claim)], environment)
        while (await timed([QM, "get", "pvc", "data", "-o", "jsonpath={.status.phase}"], environment))[1] != "Bound":
            require(time.perf_counter() - began < PATIENCE_S, f"the claim is not bound after {PATIENCE_S:.0f} s")
            await asyncio.sleep(0.02)
        return up_s, time.perf_counter() - began
    finally:
        await timed([QM, "down"], environment)
