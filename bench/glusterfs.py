"""A GlusterFS cluster on three virtual hosts beside a script of bare commands that does the same, in turns.

`glusterfs_floor.sh` is the floor. Both begin with hosts that are up, with a blank disk each; on ours the hosts have
joined. Besides: how long a writer waits when a host's cable is pulled, and until the status says so.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import msgspec

from bench.machine import package_versions
from bench.report import Bar, Section, Table, show, text_table
from bench.running import BenchFailedError, require
from quartermaster.backends.etcd.memory import MEMORY_NAME
from quartermaster.backends.glusterfs.volumes import PING_TIMEOUT_S
from quartermaster.operators.settings import HostSettings, write_settings
from quartermaster.orchestration.timings import Timings
from quartermaster.testing.lab import Lab, VirtualHost

FLOOR = Path(__file__).with_name("glusterfs_floor.sh")
QM = str(Path(sys.executable).parent / "qm")
PAIRS, QUICK_PAIRS = 5, 1
RATIO = 1.25
SIZE = 200 << 20
COMMAND_S = 180.0
SHOWN_S = 120.0
UNHEALTHY_S = 4.0
GAP_S = 2.0  # over the ping timeout
CUT_AFTER_S = 2.0  # of writing: gluster has just pinged, and does so again only after its timeout
CUTS = 3
# One refresh, over the grace time. The leader asks for heartbeats every second (Heartbeats.look_every_s), so the grace
# time begins up to a second after the last one; then one plan and one write, with nothing to wait for (debounce 0); and
# our own look, a `qm get` every 0.2 s.
HEARD_S, PLANNED_S, LOOKED_S = 1.0, 0.5, 0.5
REFRESH_S = HEARD_S + PLANNED_S + LOOKED_S
HURRIED = Timings(heartbeat_s=1.0, unhealthy_after_s=UNHEALTHY_S, debounce_s=0.0)
USUAL = Timings(heartbeat_s=1.0, unhealthy_after_s=UNHEALTHY_S)
NODE = """apiVersion: coreos.com/v1
kind: StorageNode
metadata: {{name: {host}}}
spec: {{type: glusterfs, nodeSelector: {{kubernetes.io/hostname: {host}}}, devices: [/dev/vdb]}}
---
"""
CLAIM = """apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: {name}}}
spec:
  accessModes: [ReadWriteMany]
  storageClassName: default-glusterfs-default
  resources: {{requests: {{storage: 200Mi}}}}
"""
# Appends a line about every 20 ms and prints, in the end, the longest time between two that were written.
WRITER = """
import os, sys, time
ends, longest, last = time.monotonic() + float(sys.argv[2]), 0.0, time.monotonic()
with open(sys.argv[1], "a") as file:
    while time.monotonic() < ends:
        file.write("line\\n"); file.flush(); os.fsync(file.fileno())
        now = time.monotonic(); longest, last = max(longest, now - last), now
        time.sleep(0.02)
print(longest)
"""
ABOUT = f"""From `qm apply` of three nodes and a claim, on three prepared virtual hosts, to the claim mounted; beside a
script of bare commands for the same pool and volume. {PAIRS} pairs in turns, each on hosts of its own: the median of
their ratios. A host is cut off {CUTS} times: the median, and all of them."""


class Times(msgspec.Struct, frozen=True):
    cluster_s: float
    volume_s: float


class Cut(msgspec.Struct, frozen=True):
    gap_s: float  # the longest time between two writes while a host is cut off
    shown_s: float  # until the status says so


async def run(directory: Path, *, quick: bool) -> Section:
    floor: list[Times] = []
    ours: list[Times] = []
    for number in range(QUICK_PAIRS if quick else PAIRS):
        floor.append(await bare(directory / f"bare{number}"))
        ours.append(await with_qm(directory / f"qm{number}", HURRIED))
    if quick:
        section = summarise(floor, ours)
    else:
        usual = await with_qm(directory / "usual", USUAL)
        section = summarise(floor, ours, usual, await cut_again_and_again(directory / "cut"))
    for table in section.tables:
        print(text_table(table), flush=True)
    return section


async def bare(directory: Path) -> Times:
    lab = await Lab.create(directory, hosts=3, disks=1, disk_size="1Gi", name="floor")
    async with lab:
        cluster_s = await floor_script(lab, "cluster", "first")
        return Times(cluster_s, await floor_script(lab, "volume", "second"))


async def floor_script(lab: Lab, what: str, name: str) -> float:
    hosts = [word for host in lab.hosts for word in (str(host.pid), host.address)]
    began = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        str(FLOOR),
        what,
        name,
        str(SIZE),
        *hosts,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        output, _ = await asyncio.wait_for(process.communicate(), COMMAND_S)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        raise BenchFailedError(f"the floor ended with code {process.returncode}: {output.decode()}")
    return time.perf_counter() - began


async def with_qm(directory: Path, timings: Timings) -> Times:
    lab = await Lab.create(directory, hosts=3, disks=1, disk_size="1Gi", name="bench")
    async with lab:
        return await served(lab, timings)


async def served(lab: Lab, timings: Timings) -> Times:
    first = lab.hosts[0]
    await prepared(lab, timings)
    nodes = "".join(NODE.format(host=host.name) for host in lab.hosts)
    began = time.perf_counter()
    await qm(first, "apply", "-f", "-", stdin=nodes + CLAIM.format(name="first"))
    await qm(first, "status", "--wait")
    await qm(first, "volume", "mount", "first", "/mnt/first")
    cluster_s = time.perf_counter() - began
    began = time.perf_counter()
    await qm(first, "apply", "-f", "-", stdin=CLAIM.format(name="second"))
    await qm(first, "volume", "mount", "second", "/mnt/second")
    return Times(cluster_s, time.perf_counter() - began)


async def prepared(lab: Lab, timings: Timings) -> None:
    first, *others = lab.hosts
    for host in lab.hosts:
        write_settings(host.state, HostSettings(name=host.name, timings=timings))
    await qm(first, "up", "--address", first.address)
    for host in others:
        token = (await qm(first, "token", "create")).split()[-1]
        await qm(host, "join", token, "--address", host.address)
    async with asyncio.timeout(COMMAND_S):  # only then a host has joined in full
        while await store_members(first) < len(lab.hosts):
            await asyncio.sleep(0.2)


async def cut_again_and_again(directory: Path) -> list[Cut]:
    """Always the same host: who was cut off once leads neither the store nor the cluster when it is back, so from then
    on no election is measured.
    """
    lab = await Lab.create(directory, hosts=3, disks=1, disk_size="1Gi", name="cut")
    async with lab:
        await served(lab, HURRIED)
        return [await cut_off(lab) for _ in range(CUTS)]


async def cut_off(lab: Lab) -> Cut:
    """And back again, with nothing missing."""
    first, _, third = lab.hosts
    await until_degraded(first, wanted=False)
    async with asyncio.timeout(COMMAND_S), asyncio.TaskGroup() as group:
        writer = group.create_task(first.run([sys.executable, "-c", WRITER, "/mnt/first/lines", "30"], 90.0))
        await asyncio.sleep(CUT_AFTER_S)
        await third.cut()
        shown_s = await until_degraded(first)
    await third.heal()
    return Cut(float(writer.result().text), shown_s)


async def until_degraded(host: VirtualHost, *, wanted: bool = True) -> float:
    """How long it took."""
    began = time.perf_counter()
    try:
        async with asyncio.timeout(SHOWN_S):
            while await is_degraded(host) is not wanted:
                await asyncio.sleep(0.2)
    except TimeoutError:
        said = await qm(host, "get", "storagestatus", "glusterfs-default", "-o", "jsonpath={.status.conditions}")
        stays = "is not" if wanted else "stays"
        raise BenchFailedError(f"the status {stays} Degraded after {SHOWN_S:g} s: {said}") from None
    return time.perf_counter() - began


async def store_members(host: VirtualHost) -> int:
    known = json.loads(await qm(host, "get", "configmap", MEMORY_NAME, "-o", "jsonpath={.data.members}"))
    return sum(seat["phase"] == "serving" for seat in known["seats"])


async def is_degraded(host: VirtualHost) -> bool:
    status = json.loads(await qm(host, "get", "storagestatus", "glusterfs-default", "-o", "json"))["status"]
    return any(one["type"] == "Degraded" and one["status"] == "True" for one in status.get("conditions", ()))


async def qm(host: VirtualHost, *arguments: str, stdin: str = "") -> str:
    result = await host.run([QM, *arguments], COMMAND_S, {"NO_COLOR": "1"}, stdin=stdin.encode())
    return result.text


def summarise(
    floor: Sequence[Times], ours: Sequence[Times], usual: Times | None = None, cuts: Sequence[Cut] = ()
) -> Section:
    """What was not measured is not shown. Each run is compared with the one beside it: a machine has slow minutes."""
    require(len(floor) == len(ours), "every run has one beside it")
    bars = [
        beside("nodes and claim to mounted", [one.cluster_s for one in floor], [one.cluster_s for one in ours]),
        beside("claim to mounted", [one.volume_s for one in floor], [one.volume_s for one in ours]),
    ]
    rows = [row("bare commands", floor), row("qm", ours)]
    if usual is not None:
        rows.append(row("qm, changes merged for 5 s as by default", [usual]))
    if cuts:
        longest, until = "longest wait of a writer when a host is cut off", "until the status says so"
        bars.append(of_all(longest, [one.gap_s for one in cuts], PING_TIMEOUT_S + GAP_S))
        bars.append(of_all(until, [one.shown_s for one in cuts], UNHEALTHY_S + REFRESH_S))
    table = Table("Until mounted", ("by", "three nodes and a volume", "one more volume"), tuple(rows))
    return Section("glusterfs", ABOUT, tuple(bars), (table,), versions=package_versions("msgspec", "grpcio"))


def beside(what: str, floor: Sequence[float], ours: Sequence[float]) -> Bar:
    ratios = [one / bare for bare, one in zip(floor, ours, strict=True)]
    spread = f"{show(min(ratios))} to {show(max(ratios))}"
    return Bar(f"{what}, beside bare commands", median(ratios), "at most", RATIO, "times", spread=spread)


def of_all(what: str, seconds: Sequence[float], limit_s: float) -> Bar:
    return Bar(what, median(seconds), "at most", limit_s, "s", spread=", ".join(map(show, seconds)))


def row(by: str, times: Sequence[Times]) -> tuple[str, str, str]:
    return by, spread_of([one.cluster_s for one in times]), spread_of([one.volume_s for one in times])


def spread_of(seconds: Sequence[float]) -> str:
    middle = f"{show(median(seconds))} s"
    return middle if len(seconds) == 1 else f"{middle} ({show(min(seconds))} to {show(max(seconds))})"
