"""One attach, with a device that appears sooner or later: beside a bare script of the same commands, and os-brick."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

import msgspec

from bench.connectors.counts import Counts, Part
from bench.connectors.host import FakeHost, fake_host
from bench.connectors.kernel import Target
from bench.connectors.library import BRICK, OURS, Library, start_library
from bench.connectors.script import attach_of, prepare_records, script_text, start_script
from bench.connectors.volumes import add_iscsi, connect, disconnect, iscsi_data
from bench.report import Bar, Plot, Table, show
from bench.running import require

OVER_MS = 20.0


class Times(msgspec.Struct, frozen=True):
    """Of one delay, in milliseconds; in turns."""

    ours: tuple[float, ...]
    bare: tuple[float, ...]
    brick: tuple[float, ...] = ()


async def run(directory: Path, counts: Counts) -> Part:
    times = {}
    for delay_ms in counts.delays_ms:
        ours, bare = await measure(directory, counts, delay_ms)
        brick = await measure_peer(directory, counts, delay_ms) if counts.peer else ()
        times[delay_ms] = Times(ours, bare, brick)
    return summarise(times)


async def measure(directory: Path, counts: Counts, delay_ms: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    ours: list[float] = []
    bare: list[float] = []
    async with fake_host(directory, f"attach-{delay_ms}") as host, start_library(directory, host, OURS) as running:
        target = add_iscsi(host.kernel, 1, late_s=delay_ms / 1000)
        for number in range(counts.rounds + 1):
            took_ms = await attach_once(running, host, target)
            script_ms = await script_once(host, target, number)
            if number:  # the first loads the driver
                ours.append(took_ms)
                bare.append(script_ms)
    return tuple(ours), tuple(bare)


async def attach_once(running: Library, host: FakeHost, target: Target) -> float:
    """The commands of the connect stay on record."""
    data = iscsi_data(target)
    host.ran.clear()
    (connected,) = await running.well(connect("iscsi", data))
    commands = host.commands()
    await running.well(disconnect("iscsi", data))
    require(not host.kernel.disks(), f"{running.name} leaves {host.kernel.disks()} behind")
    host.ran[:] = commands
    return connected.took_ms


async def script_once(host: FakeHost, target: Target, number: int) -> float:
    prepare_records(host, [target])
    text = script_text(host.root / "never", [attach_of(host.commands(), target)])
    script = await start_script(host, text, f"bare-{number}")
    try:
        took_ms = await script.time_ms()
    finally:
        await script.end()
    require(host.kernel.disks() == [target.disk(1)], "the bare script attaches nothing")
    host.kernel.log_out(target)
    return took_ms


async def measure_peer(directory: Path, counts: Counts, delay_ms: int) -> tuple[float, ...]:
    async with (
        fake_host(directory, f"attach-{delay_ms}-brick") as host,
        start_library(directory, host, BRICK) as running,
    ):
        target = add_iscsi(host.kernel, 1, late_s=delay_ms / 1000)
        return tuple([await attach_once(running, host, target) for _ in range(counts.peer_rounds)])


def summarise(times: Mapping[int, Times]) -> Part:
    bars = []
    rows = []
    for delay_ms, each in times.items():
        ours, bare = median(each.ours), median(each.bare)
        brick = f"{show(median(each.brick))} ms" if each.brick else ""
        peer = f"{show(ours)} ms; script {show(bare)} ms" + (f"; os-brick {brick}" if brick else "")
        name = f"attach, device after {delay_ms} ms, over the bare script"
        bars.append(Bar(name, ours - bare, "at most", OVER_MS, "ms", peer))
        rows.append((f"{delay_ms} ms", f"{show(bare)} ms", f"{show(ours)} ms", f"{show(max(each.ours))} ms", brick))
    header = ("device appears after", "bare script", OURS, "its slowest", BRICK)
    table = Table("One attach over iSCSI, medians", header, tuple(rows))
    series: dict[str, Sequence[float]] = {
        "bare script": [median(each.bare) for each in times.values()],
        OURS: [median(each.ours) for each in times.values()],
    }
    if all(each.brick for each in times.values()):
        series[BRICK] = [median(each.brick) for each in times.values()]
    labels = tuple(f"device after {delay_ms} ms" for delay_ms in times)
    drawn = {name: tuple(values) for name, values in series.items()}
    return Part(tuple(bars), (table,), (Plot("connectors-attach", "One attach, median", "ms", labels, drawn),))
