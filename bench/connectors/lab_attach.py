"""Measured inside the host lab: an attach over iSCSI with a real kernel at both ends, and a script of its commands.

It is run as a test of the guest, whose report carries the figures out.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from quartermaster.connectors import open_connector
from quartermaster.connectors.drivers.iscsi_records import Target as Way
from quartermaster.connectors.drivers.iscsi_records import record_text
from tests.hostlab.lio import PORTAL, RECORDS, Disk, Target, sessions, start_iscsi

OURS, BARE = "ours", "bare"
ROUNDS = 21
# It looks every five milliseconds: more often, it keeps the one processor from the kernel, and is slower.
SCRIPT = """
LC_ALL=C
exec 9<>{never}
began=$EPOCHREALTIME
iscsiadm -m node -T {iqn} -p {portal} -I default --login > /dev/null
for session in /sys/class/iscsi_session/*; do cd -P $session/device/..; host=${{PWD##*/host}}; done
tee /sys/class/scsi_host/host$host/scan <<< "0 0 0" > /dev/null
there() {{ for disk in /sys/class/scsi_device/$host:0:0:0/device/block/*; do [[ -e /dev/${{disk##*/}} ]]; done; }}
until there; do read -r -t 0.005 -u 9; done
sg_vpd --page=0x83 --raw /dev/${{disk##*/}} > /dev/null
echo $began $EPOCHREALTIME
"""


def test_attach(record_property: Callable[[str, object], None], tmp_path: Path) -> None:
    """In turns; the first of each loads what it needs."""
    start_iscsi()
    disk, target = Disk("measured"), Target("measured")
    os.mkfifo(tmp_path / "never")
    target.serve(0, disk)
    times: dict[str, list[float]] = {OURS: [], BARE: []}
    for _ in range(ROUNDS + 1):
        times[OURS].append(asyncio.run(attach(target.info(0, "measured"), tmp_path / "state")))
        times[BARE].append(run_script(target, tmp_path / "never"))
    for name, values in times.items():
        record_property(name, values[1:])
    assert sessions() == {}
    target.remove()
    disk.remove()


async def attach(info: dict[str, Any], directory: Path) -> float:
    """In milliseconds."""
    connector = open_connector(directory=directory)
    began = time.perf_counter()
    await connector.connect(info)
    took_s = time.perf_counter() - began
    await connector.disconnect(info)
    return 1000 * took_s


def run_script(target: Target, never: Path) -> float:
    """By its own clock, from its first command to the end of its last."""
    address, _, port = PORTAL.partition(":")
    record = RECORDS / target.iqn / f"{address},{port}"
    record.parent.mkdir(parents=True, exist_ok=True)
    record.write_text(record_text(Way(address, int(port), target.iqn), ""))
    script = SCRIPT.format(iqn=target.iqn, portal=PORTAL, never=never)
    done = subprocess.run(["bash", "-c", script], check=True, timeout=120, stdout=subprocess.PIPE)
    began, ended = map(float, done.stdout.split())
    assert sessions() == {target.iqn: [0]}
    subprocess.run(["iscsiadm", "-m", "session", "--logout"], check=True, timeout=60, stdout=subprocess.DEVNULL)
    record.unlink()
    record.parent.rmdir()
    return 1000 * (ended - began)
