"""A file that was replaced by another of its name while it was a volume: whose loop device is whose."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from quartermaster.connectors import VolumeBusyError
from quartermaster.connectors.blocking import open_connector
from tests.connectors.harness.running import connector_in, killed_in
from tests.connectors.harness.tools import COMMON, losetup
from tests.connectors.harness.world import KILL_AFTER, World

pytestmark = pytest.mark.slow  # every command is a process, and one test needs root

SIZE = 4 << 20


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path / "world").make()
    made.install(**COMMON)
    made.path("disk.img").write_bytes(b"\0" * 4096)
    return made


def local(world: World, volume_id: str = "local-1") -> dict[str, Any]:
    return {"driverVolumeType": "LOCAL", "data": {"devicePath": str(world.path("disk.img")), "volumeId": volume_id}}


def replace_file(world: World, *names: str) -> None:
    """As the kernel shows it after a rename over the file."""
    for name in names:
        world.path(f"sys/class/block/{name}/loop/backing_file").write_text(f"{world.path('disk.img')} (deleted)\n")


def devices(world: World) -> list[str]:
    return sorted(path.name for path in world.path("sys/class/block").iterdir())


async def test_both_devices_of_the_volume_go_the_present_one_first(world: World) -> None:
    connector = connector_in(world)
    before = world.snapshot()
    await connector.connect(local(world))
    replace_file(world, "loop0")
    assert (await connector.connect(local(world))).device.endswith("/loop1")
    await connector.disconnect(local(world))
    detached = [argv[-1].rpartition("/")[2] for argv in world.commands() if argv[1] == "--detach"]
    assert detached == ["loop1", "loop0"]
    assert world.snapshot() == before


async def test_a_device_that_somebody_else_has_on_the_file_that_was_there_stays(world: World) -> None:
    losetup(world, ["--find", str(world.path("disk.img"))], "")
    replace_file(world, "loop0")
    connector = connector_in(world)
    assert (await connector.connect(local(world))).device.endswith("/loop1")
    replace_file(world, "loop0", "loop1")
    await connector.disconnect(local(world))
    assert devices(world) == ["loop0"]


async def test_nothing_goes_while_the_device_of_the_file_that_was_there_is_mounted(world: World) -> None:
    connector = connector_in(world)
    await connector.connect(local(world))
    number = world.path("sys/class/block/loop0/dev").read_text()
    replace_file(world, "loop0")
    await connector.connect(local(world))
    with world.path("proc/self/mountinfo").open("a") as table:
        table.write(f"77 1 {number} / /mnt/data rw - ext4 /dev/loop0 rw\n")
    with pytest.raises(VolumeBusyError, match="mounted on /mnt/data"):
        await connector.disconnect(local(world))
    assert devices(world) == ["loop0", "loop1"]


async def test_the_last_of_two_volumes_on_a_file_takes_its_device_also_when_it_was_deleted(world: World) -> None:
    connector = connector_in(world)
    await connector.connect(local(world))
    await connector.connect(local(world, "local-2"))
    replace_file(world, "loop0")
    await connector.disconnect(local(world))
    assert devices(world) == ["loop0"]
    await connector.disconnect(local(world, "local-2"))
    assert devices(world) == []


async def test_what_a_process_that_died_has_made_is_found_without_a_note(world: World) -> None:
    before = world.snapshot()
    # The record, then the program.
    world.plan(1, KILL_AFTER)
    assert killed_in(world, lambda: connector_in(world).connect(local(world)))
    world.unplan()
    assert devices(world) == ["loop0"]
    await connector_in(world).recover()
    assert world.snapshot() == before


def test_on_this_machines_own_kernel_no_device_of_a_replaced_file_is_left(tmp_path: Path) -> None:
    image, new = tmp_path / "disk.img", tmp_path / "new.img"
    image.write_bytes(b"\0" * SIZE)
    given = {"driverVolumeType": "LOCAL", "data": {"devicePath": str(image), "volumeId": f"file {tmp_path.name}"}}
    with open_connector(directory=tmp_path / "state") as connector:
        first = connector.connect(given)
        new.write_bytes(b"\0" * SIZE)
        new.rename(image)
        assert connector.connect(given).device != first.device
        with open(first.device, "rb"), pytest.raises(VolumeBusyError, match="opened by process"):
            connector.disconnect(given)
        connector.disconnect(given)
    assert str(image) not in subprocess.check_output(["losetup", "--list"], text=True, timeout=60)
