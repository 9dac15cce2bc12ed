"""The twelve faults, each as a small scenario that both libraries go through on the same fakes.

A scenario says what it saw; whether that is right is not a matter of time, but for the one fault that is about waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from bench.connectors import beside, importing, together
from bench.connectors.host import FakeHost, fake_host
from bench.connectors.kernel import Lun
from bench.connectors.library import NO_ANSWER, OURS, Library, Outcome, start_library
from bench.connectors.peer import peer_python
from bench.connectors.volumes import (
    PCI,
    PORT,
    add_iscsi,
    connect,
    disconnect,
    fc_data,
    iscsi_data,
    nfs_data,
    rbd_data,
    wwid,
)
from bench.report import show
from bench.running import require

USER, SECRET = "alice", "canary-5ecret"
LAG_MS = 500.0
HELD_BACK_S = 25.0
HANGS_S = 15.0
FLUSHES_S = 180.0
PACKAGES, MEMORY_MIB = 5, 10.0


class Seen(msgspec.Struct, frozen=True):
    right: bool
    what: str


Scenario = Callable[[Path, str], Awaitable[Seen]]


class Fault(msgspec.Struct, frozen=True):
    number: int
    name: str
    scenario: Scenario
    timed: bool = False  # whether it is right depends on how busy the machine is


@asynccontextmanager
async def stage(directory: Path, scenario: str, name: str) -> AsyncIterator[tuple[FakeHost, Library]]:
    async with (
        fake_host(directory, f"{scenario}-{name}".lower()) as host,
        start_library(directory, host, name) as running,
    ):
        yield host, running


def said(outcome: Outcome) -> str:
    if outcome is NO_ANSWER:
        return "no answer"
    return f"error: {outcome.error.splitlines()[0][:120]}" if outcome.error else outcome.value


async def pools(directory: Path, name: str) -> Seen:
    async with stage(directory, "pools", name) as (host, running):
        for pool in ("pool-a", "pool-b"):
            await running.well(connect("rbd", rbd_data(f"{pool}/volume")))
        await running.one(disconnect("rbd", rbd_data("pool-b/volume")))
        left = [each["pool"] for each in host.kernel.images.all()]
    return Seen(left == ["pool-a"], f"after pool-b/volume was disconnected, mapped: {' '.join(left) or 'nothing'}")


async def flush(directory: Path, name: str) -> Seen:
    async with stage(directory, "flush", name) as (host, running):
        target = host.kernel.add_port(PORT, {1: Lun(wwid(1))}, bus=PCI)
        await running.well(connect("fibre_channel", fc_data()))
        host.kernel.unflushable.add(target.disk(1))
        await running.one(disconnect("fibre_channel", fc_data(), force=True), timeout_s=FLUSHES_S)
        left = host.kernel.disks()
    return Seen(not left, "the disk is gone" if not left else "the disk is left behind")


async def platforms(directory: Path, name: str) -> Seen:
    outcomes = []
    buses = {
        "s390x": ("css0/0.0.0003/0.0.1703", "ccw-{bus}-zfcp-0x{name}:0x{lun:04x}000000000000"),
        "ppc64le": ("vio/30000004", "fc-0x{name}-lun-{lun}"),
    }
    for machine, (bus, link) in buses.items():
        async with stage(directory, machine, name) as (host, running):
            host.kernel.add_port(PORT, {1: Lun(wwid(1))}, bus=bus, link=link)
            if machine == "s390x":
                adapter = host.root / "sys/bus/ccw/drivers/zfcp/0.0.1703"
                adapter.mkdir(parents=True)
                (adapter / "port_rescan").touch()
            outcomes.append((machine, await running.one(connect("fibre_channel", fc_data(), machine=machine))))
    return Seen(
        not any(outcome.error for _, outcome in outcomes),
        "; ".join(f"{machine}: {said(outcome)}" for machine, outcome in outcomes),
    )


async def ten(directory: Path, name: str) -> Seen:
    found = await together.measure(directory, name, "rbd")
    right = (found.attaches, found.answers, found.different) == (1, 10, 1)
    return Seen(right, f"ten connects of one image: rbd map ran {found.attaches} times")


async def string_lun(directory: Path, name: str) -> Seen:
    async with stage(directory, "string-lun", name) as (host, running):
        data = iscsi_data(add_iscsi(host.kernel, 1), "1")
        await running.well(connect("iscsi", data))
        outcome = await running.one(disconnect("iscsi", data))
        left = host.kernel.disks()
    answer = "success" if not outcome.error else said(outcome)
    return Seen(not left, f"disconnect says {answer}; the disk is {'here' if left else 'gone'}")


async def chap(directory: Path, name: str) -> Seen:
    async with stage(directory, "chap", name) as (host, running):
        target = add_iscsi(host.kernel, 1, chap=(USER, SECRET))
        data = iscsi_data(target, auth_username=USER, auth_password=SECRET)
        outcome = await running.one(connect("iscsi", data))
    return Seen(not outcome.error, f"a target that wants CHAP, no auth_method: {said(outcome)}")


async def one_lock(directory: Path, name: str) -> Seen:
    async with stage(directory, "lock", name) as (host, running):
        target = beside.declare(host)
        sick = connect("iscsi", iscsi_data(target, beside.SICK), timeout_s=4.0)
        good = connect("iscsi", iscsi_data(target, beside.HEALTHY), after_s=beside.LATER_S)
        bad, healthy = await running.make(sick, good, timeout_s=HELD_BACK_S)
    if healthy is NO_ANSWER:
        return Seen(False, f"a healthy attach waited more than {HELD_BACK_S:.0f} s for a LUN that never appears")
    return Seen(
        not healthy.error and healthy.ended_s < bad.ended_s,
        f"a healthy attach ended {show(bad.ended_s - healthy.ended_s)} s before one whose LUN never appears gave up",
    )


async def sleeping(directory: Path, name: str) -> Seen:
    async with stage(directory, "sleeping", name) as (host, running):
        target = add_iscsi(host.kernel, 1, late_s=0.05)
        (outcome,) = await running.well(connect("iscsi", iscsi_data(target)))
        lag_ms = 1000 * (outcome.ended_s - host.kernel.appeared[target.disk(1)])
    return Seen(lag_ms < LAG_MS, f"connected {show(lag_ms)} ms after the device was there")


async def leaks(directory: Path, name: str) -> Seen:
    """Three ways in which data of a storage system go where they must not."""
    parts = [
        await in_arguments(directory, name),
        await without_deadline(directory, name),
        await in_a_shell(directory, name),
    ]
    return Seen(all(part.right for part in parts), "; ".join(part.what for part in parts))


async def in_arguments(directory: Path, name: str) -> Seen:
    async with stage(directory, "argv", name) as (host, running):
        target = add_iscsi(host.kernel, 1, chap=(USER, SECRET))
        data = iscsi_data(target, auth_method="CHAP", auth_username=USER, auth_password=SECRET)
        await running.well(connect("iscsi", data))
        shown = any(SECRET in word for each in host.ran for word in each.argv)
    return Seen(not shown, f"the CHAP password {'is' if shown else 'is not'} in an argument list")


async def without_deadline(directory: Path, name: str) -> Seen:
    asked: list[asyncio.BaseTransport] = []

    class Silent(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            asked.append(transport)

    server = await asyncio.get_running_loop().create_server(Silent, "127.0.0.1", 0)
    async with server, stage(directory, "rest", name) as (_, running):
        data = {
            "scaleIO_volname": "volume",
            "hostIP": "192.0.2.7",
            "serverIP": "127.0.0.1",
            "serverPort": str(server.sockets[0].getsockname()[1]),
            "serverUsername": USER,
            "serverPassword": SECRET,
            "serverToken": SECRET,
            "iopsLimit": None,
            "bandwidthLimit": None,
            "verify_certificate": False,
        }
        outcome = await running.one(connect("scaleio", data, timeout_s=1.0), timeout_s=HANGS_S)
    require(bool(asked), f"{name} does not ask the REST server: {said(outcome)}")
    if outcome is NO_ANSWER:
        return Seen(False, f"a REST server that hangs holds it for more than {HANGS_S:.0f} s")
    return Seen(bool(outcome.error), "a REST server that hangs is an error in time")


async def in_a_shell(directory: Path, name: str) -> Seen:
    async with stage(directory, "shell", name) as (host, running):
        host.kernel.add_port(PORT, {1: Lun(wwid(1))}, bus=PCI)
        sign = host.root / "executed"
        await running.one(connect("fibre_channel", fc_data(f'x"; /usr/bin/touch {sign}; "'), timeout_s=5.0))
        ran = sign.exists()
    return Seen(not ran, f"a command in a WWPN is {'executed by a shell' if ran else 'not executed'}")


async def mounts(directory: Path, name: str) -> Seen:
    async with stage(directory, "mounts", name) as (host, running):
        data = nfs_data()
        await running.well(connect("nfs", data))
        await running.one(disconnect("nfs", data))
        left = len(host.kernel.mounts)
    async with stage(directory, "race", name) as (host, running):
        outcomes = await running.make(*(connect("nfs", data | {"volume_id": f"nfs-{number}"}) for number in (1, 2)))
        lost = [outcome for outcome in outcomes if outcome.error]
    race = "one of two connects at once fails" if lost else "two connects at once succeed"
    return Seen(not left and not lost, f"after a disconnect {left or 'no'} mount is left; {race}")


async def leftover(directory: Path, name: str) -> Seen:
    async with stage(directory, "leftover", name) as (host, running):
        target = add_iscsi(host.kernel, 1)
        await running.well(connect("iscsi", iscsi_data(target, volume_id="volume-1")))
        target.luns[1] = Lun(
            wwid(2)
        )  # the storage system gives the LUN to another volume, and the kernel keeps the disk
        outcome = await running.one(connect("iscsi", iscsi_data(target, volume_id="volume-2")))
        kept = host.root / "sys/class/block" / target.disk(1) / "device/wwid"
        stale = kept.exists() and kept.read_text() == f"naa.{wwid(1)}"
    if outcome.error:
        return Seen(True, f"a LUN that was reused is refused: {outcome.error.partition(':')[0]}")
    return Seen(not stale, f"a LUN that was reused: {said(outcome)} {'of the volume before' if stale else ''}".rstrip())


async def heavy(directory: Path, name: str) -> Seen:
    python = importing.PYTHON if name == OURS else str(peer_python())
    bare = await importing.measure(directory, importing.PYTHON, importing.BODIES[importing.BARE])
    await importing.measure(directory, python, importing.BODIES[name])
    cost = await importing.measure(directory, python, importing.BODIES[name])
    over = cost.mib - bare.mib
    right = cost.packages <= PACKAGES and over <= MEMORY_MIB
    return Seen(right, f"{show(cost.ms)} ms, {show(over)} MiB over asyncio, {cost.packages} packages of others loaded")


FAULTS = (
    Fault(1, "RBD disconnect takes the image of that name from another pool", pools),
    Fault(2, "Fibre Channel by force, with a flush that fails, leaves the disk", flush),
    Fault(3, "Fibre Channel on s390x and ppc64 raises", platforms),
    Fault(4, "ten connects of one RBD image map it ten times", ten),
    Fault(5, "iSCSI disconnect with a string LUN removes nothing, and says success", string_lun),
    Fault(6, "a user name without an auth method skips CHAP", chap),
    Fault(7, "one lock for the whole host", one_lock),
    Fault(8, "waits by sleeping for a second", sleeping, timed=True),
    Fault(9, "a password in argv; REST without a timeout; a shell string from WWPNs", leaks),
    Fault(10, "remote file systems stay mounted; a lost mount race raises", mounts),
    Fault(11, "a leftover device of another volume is handed out", leftover),
    Fault(12, "a heavy import", heavy),
)
