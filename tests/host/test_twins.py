"""The modelled host keeps the rules of the real one: one story on both, and on the modelled one with every fault."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from quartermaster.host import (
    Daemon,
    FileSystem,
    Format,
    Host,
    HostDevices,
    HostFormatting,
    MountHealth,
    MountState,
    Propagation,
    open_host,
)
from quartermaster.host.daemons import DetachedDaemons
from quartermaster.host.devices import Device, Reason, Signature, StandIn, State, Surroundings, add_disk, judge
from quartermaster.host.fake import FakeMachine, FakeMounts, Faults, fake_host, one_fault_each
from quartermaster.support.errors import DeviceRefusedError, HostError, MountBusyError, MountConflictError
from tests.host.namespaces import Namespace, loop_device

UUID = "0b7a7a1e-7c53-4a5c-9f1f-0d2f5c3b8a11"
WANTED = Format(FileSystem.EXT4, UUID, "qm-brick-1")
OWN = Surroundings(own=(UUID,), minimum_size=1)
DAEMON = Daemon("brick", ("sleep", "300"))


async def nothing(device: Device, found: tuple[Signature, ...]) -> None:
    """A record that needs no store."""


async def prepare(host: Host, disk: str, target: str) -> None:
    """What a backend's agent does with a disk; said twice it is as once."""
    async with host.locks.hold(disk, timeout_s=5):
        device = await host.devices.inspect(disk)
        assert device is not None
        await host.formatting.format(disk, WANTED, identity=device.hardware_identity)
        await host.mounts.mount(disk, target, type="ext4")
        await host.daemons.ensure(DAEMON)


async def story(host: Host, disk: str, target: str) -> list[object]:
    """What is seen along the way must be equal on both twins."""
    seen: list[object] = []

    async def look() -> None:
        device = await host.devices.inspect(disk)
        assert device is not None
        verdict = judge(device, OWN)
        seen.append((verdict.state, len(device.mounts), [found.label for found in device.signatures]))

    await look()
    for _ in range(2):
        await prepare(host, disk, target)
        await look()
    for label, action in (
        ("mount", host.mounts.mount("tmpfs", target, type="tmpfs")),
        ("remount", host.mounts.mount(disk, target, type="ext4", options=("ro",))),
        ("wipe mounted", host.formatting.wipe(disk, consent="S1", record=nothing)),
        ("format other", host.formatting.format(disk, WANTED, identity="S2")),
    ):
        with pytest.raises(HostError) as caught:
            await action
        seen.append((label, type(caught.value).__name__, getattr(caught.value, "code", "")))
    seen.append((await host.mounts.health(target)).state)
    seen.append((await host.daemons.status("brick")).state)
    seen.append(await host.daemons.stop("brick"))
    seen += [await host.mounts.unmount(target), await host.mounts.unmount(target)]
    seen.append((await host.mounts.health(target)).state)
    with pytest.raises(DeviceRefusedError) as refused:
        await host.formatting.wipe(disk, consent="S2", record=nothing)
    seen.append(refused.value.code)
    seen += [await host.formatting.wipe(disk, consent="S1", record=nothing) for _ in range(2)]
    await look()
    return seen


EXPECTED = [
    (State.AVAILABLE, 0, []),
    (State.IN_USE, 1, ["qm-brick-1"]),
    (State.IN_USE, 1, ["qm-brick-1"]),
    ("mount", "MountConflictError", ""),
    ("remount", "MountConflictError", ""),
    ("wipe mounted", "DeviceRefusedError", Reason.MOUNTED),
    ("format other", "DeviceRefusedError", "OtherDevice"),
    MountState.HEALTHY,
    "running",
    True,
    True,
    False,
    MountState.ABSENT,
    "NoConsent",
    True,
    False,
    (State.AVAILABLE, 0, []),
]


async def test_the_story_on_the_modelled_host() -> None:
    machine = FakeMachine()
    disk = machine.add_disk("vdb", serial="S1")
    assert await story(fake_host(machine), disk, "/bricks/1") == EXPECTED


@pytest.fixture
def real(tmp_path: Path, namespace: Namespace) -> Iterator[tuple[Host, str]]:
    with loop_device(tmp_path, size=64 << 20) as loop:
        root = tmp_path / "disks"
        disk = str(add_disk(root, "vdb", loop, StandIn(serial="S1")))
        yield real_host(tmp_path, root, namespace), disk


def real_host(directory: Path, root: Path, namespace: Namespace) -> Host:
    """As on this host, but mounting inside the namespace."""
    here = open_host(directory / "state", device_root=root)
    devices = HostDevices(here.commands, namespace.mounts, device_root=root)
    return Host(
        commands=here.commands,
        mounts=namespace.mounts,
        devices=devices,
        events=here.events,
        formatting=HostFormatting(here.commands, devices),
        daemons=DetachedDaemons(here.commands, directory / "state/daemons"),
        locks=here.locks,
    )


@pytest.mark.netns
async def test_the_story_on_a_real_host(real: tuple[Host, str], tmp_path: Path) -> None:
    host, disk = real
    assert await story(host, disk, str(tmp_path / "brick")) == EXPECTED


async def test_a_fault_at_any_call_is_mended_by_saying_it_again() -> None:
    faultless = Faults()
    machine = FakeMachine()
    await prepare(fake_host(machine, faultless), machine.add_disk("vdb", serial="S1"), "/bricks/1")
    assert len(faultless.trace) == 6
    for faults in one_fault_each(len(faultless.trace)):
        machine = FakeMachine()
        disk = machine.add_disk("vdb", serial="S1")
        with pytest.raises(HostError, match="injected fault"):
            await prepare(fake_host(machine, faults), disk, "/bricks/1")
        await prepare(fake_host(machine), disk, "/bricks/1")
        assert [mount.target for mount in machine.mounts] == ["/", "/bricks/1"]
        assert [found.label for found in machine.disks[disk].signatures] == ["qm-brick-1"]
        assert list(machine.processes) == ["brick"]


async def test_a_modelled_host_starts_again_without_mounts_and_processes_but_with_its_disks() -> None:
    machine = FakeMachine()
    disk = machine.add_disk("vdb", serial="S1")
    host = fake_host(machine)
    await prepare(host, disk, "/bricks/1")
    machine.reboot()
    assert (await host.daemons.status("brick")).state == "dead"
    assert (await host.mounts.health("/bricks/1")).state is MountState.ABSENT
    await prepare(host, disk, "/bricks/1")
    assert [mount.target for mount in machine.mounts] == ["/", "/bricks/1"]


async def test_a_disk_that_comes_back_at_another_path_is_the_same_disk() -> None:
    machine = FakeMachine()
    pulled = machine.pull_disk(machine.add_disk("vdb", serial="S1"))
    host = fake_host(machine)
    assert await host.devices.discover() == ()
    machine.put_disk(pulled, "/dev/vdc")
    (found,) = await host.devices.discover()
    assert (found.path, found.identity) == ("/dev/vdc", "S1")
    with pytest.raises(DeviceRefusedError, match="there is no such device"):
        await host.formatting.format("/dev/vdb", WANTED, identity="S1")
    with pytest.raises(HostError, match="there is no ext4 on it"):
        await host.mounts.mount("/dev/vdc", "/m", type="ext4")


async def test_modelled_mounts_may_be_busy_sick_bound_and_remounted() -> None:
    machine = FakeMachine()
    mounts = FakeMounts(machine)
    await mounts.mount("h1:/vol", "/v", type="nfs")
    mounts.busy.add("/v")
    machine.health["/v"] = MountHealth(MountState.CORRUPTED, "ESTALE")
    assert (await mounts.health("/v")).reason == "ESTALE"
    with pytest.raises(MountBusyError):
        await mounts.unmount("/v")
    await mounts.remount("/v", options=("ro",))
    assert await mounts.mount("h1:/vol", "/v", type="nfs", options=("ro",)) is False
    assert await mounts.bind("/v/data", "/b", read_only=True) is True
    assert await mounts.bind("/v/data", "/b", read_only=True) is False
    assert await mounts.bind("/v/data", "/b", read_only=True, propagation=Propagation.SHARED) is True
    with pytest.raises(MountConflictError):
        await mounts.bind("/v/other", "/b")
    assert await mounts.unmount("/v", lazy=True) is True
    with pytest.raises(HostError, match="nothing is mounted there"):
        await mounts.remount("/v", options=("rw",))


async def test_calls_of_a_modelled_host_may_take_time_and_be_cancelled() -> None:
    machine = FakeMachine()
    disk = machine.add_disk("vdb", serial="S1")
    task = asyncio.ensure_future(prepare(fake_host(machine, Faults(latency_s=0.01)), disk, "/bricks/1"))
    await asyncio.sleep(0.025)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    await prepare(fake_host(machine), disk, "/bricks/1")
    assert machine.seen(disk) is not None
