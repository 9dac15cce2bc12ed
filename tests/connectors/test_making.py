"""What may be made where nobody recognises anything, on a host of files: a note stands for nothing but a beginning."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from quartermaster.connectors.luks import luks_name
from quartermaster.support.errors import CommandError, DeviceRefusedError, ToolMissingError
from tests.connectors import tools_files
from tests.connectors.harness.case import CANARY
from tests.connectors.harness.running import connector_in, killed_in
from tests.connectors.harness.tools import COMMON
from tests.connectors.harness.world import KILL, KILL_AFTER, World

pytestmark = pytest.mark.slow  # every command is a process

NAME = luks_name("volume-1")
MOST_STEPS = 40


@pytest.fixture
def world(tmp_path: Path) -> World:
    return host_in(tmp_path)


def host_in(directory: Path) -> World:
    made = World(directory / "world").make()
    made.install(**{**COMMON, **tools_files.TOOLS})
    made.add_device("vdb", serial="first")
    made.path("dev/mapper").mkdir()
    made.path("sys/class/misc/device-mapper").mkdir(parents=True)
    return made


def local(world: World) -> dict[str, Any]:
    return {"driverVolumeType": "LOCAL", "data": {"devicePath": device(world), "volumeId": "volume-1"}}


def device(world: World) -> str:
    return str(world.path("dev/vdb"))


def made(world: World) -> list[str]:
    return [argv[-1] for argv in world.commands() if argv[0].startswith("mkfs.") or argv[1:2] == ["luksFormat"]]


async def test_unknown_data_in_a_container_that_is_there_are_not_formatted(world: World, tmp_path: Path) -> None:
    connector = connector_in(world)
    await connector.connect(local(world))
    tools_files.put(world, device(world), type="crypto_LUKS", usage="crypto", uuid="4-2", key=CANARY)
    with pytest.raises(DeviceRefusedError, match="it is not blank") as caught:
        await connector.mount("volume-1", str(tmp_path / "mounted"), key=CANARY)
    assert caught.value.code == "UnknownData"
    assert made(world) == []
    await connector.mount("volume-1", str(tmp_path / "mounted"), key=CANARY, overwrite_unknown=True)
    assert made(world) == [f"{{world}}/dev/mapper/{NAME}"]


@pytest.mark.parametrize("how", [KILL, KILL_AFTER])
async def test_a_death_anywhere_in_the_making_of_an_encrypted_volume_needs_nobodys_consent(
    how: str, tmp_path: Path
) -> None:
    for number in range(MOST_STEPS):
        (tmp_path / str(number)).mkdir()
        world = host_in(tmp_path / str(number))
        await connector_in(world).connect(local(world))
        mount = partial(connector_in(world).mount, "volume-1", str(tmp_path / str(number) / "mounted"), key=CANARY)
        world.plan(number, how)
        killed = killed_in(world, mount)
        world.unplan()
        assert (await mount()).file_system == "ext4", f"step {number}"
        if not killed:
            assert number >= 8
            return
    raise AssertionError("it never came to its end")


async def test_a_container_whose_file_system_could_not_be_made_is_finished_later(world: World, tmp_path: Path) -> None:
    connector = connector_in(world)
    await connector.connect(local(world))
    with pytest.raises(ToolMissingError, match=r"mkfs\.xfs is not installed"):
        await connector.mount("volume-1", str(tmp_path / "mounted"), key=CANARY, file_system="xfs")
    await connector.mount("volume-1", str(tmp_path / "mounted"), key=CANARY)
    assert made(world) == ["{world}/dev/vdb", f"{{world}}/dev/mapper/{NAME}"]


async def test_another_container_in_the_place_of_ours_is_not_formatted(world: World, tmp_path: Path) -> None:
    connector = connector_in(world)
    await connector.connect(local(world))
    with pytest.raises(ToolMissingError):
        await connector.mount("volume-1", str(tmp_path / "mounted"), key=CANARY, file_system="xfs")
    tools_files.cryptsetup(world, ["close", NAME], "")
    tools_files.put(world, device(world), type="crypto_LUKS", usage="crypto", uuid="4-2", key=CANARY)
    world.forget()
    with pytest.raises(DeviceRefusedError, match="it is not blank"):
        await connector.mount("volume-1", str(tmp_path / "mounted"), key=CANARY)
    assert made(world) == []


async def test_a_program_that_is_missing_gives_nobody_the_right_to_what_comes_later(
    world: World, tmp_path: Path
) -> None:
    connector = connector_in(world)
    await connector.connect(local(world))
    with pytest.raises(ToolMissingError):
        await connector.mount("volume-1", str(tmp_path / "mounted"), file_system="xfs")
    tools_files.add_noise(world, device(world))
    with pytest.raises(DeviceRefusedError, match="it is not blank"):
        await connector.mount("volume-1", str(tmp_path / "mounted"))
    assert made(world) == []


async def test_neither_does_one_that_has_written_nothing(world: World, tmp_path: Path) -> None:
    connector = connector_in(world)
    await connector.connect(local(world))
    world.install(mkfs__ext4=f"{tools_files.__name__}:fails_at_once")
    with pytest.raises(CommandError, match="too small"):
        await connector.mount("volume-1", str(tmp_path / "mounted"))
    tools_files.add_noise(world, device(world))
    with pytest.raises(DeviceRefusedError, match="it is not blank"):
        await connector.mount("volume-1", str(tmp_path / "mounted"))


async def test_nor_one_that_had_the_consent_and_failed(world: World, tmp_path: Path) -> None:
    connector = connector_in(world)
    await connector.connect(local(world))
    tools_files.add_noise(world, device(world))
    world.install(mkfs__ext4=f"{tools_files.__name__}:fails_at_once")
    with pytest.raises(CommandError, match="too small"):
        await connector.mount("volume-1", str(tmp_path / "mounted"), overwrite_unknown=True)
    with pytest.raises(DeviceRefusedError, match="it is not blank"):
        await connector.mount("volume-1", str(tmp_path / "mounted"))


async def test_what_was_begun_is_made_anew_and_afterwards_the_note_is_gone(world: World, tmp_path: Path) -> None:
    connector = connector_in(world)
    await connector.connect(local(world))
    world.install(mkfs__ext4=f"{tools_files.__name__}:fails_after_a_block")
    with pytest.raises(CommandError, match="Input/output error"):
        await connector.mount("volume-1", str(tmp_path / "mounted"))
    world.install(**tools_files.TOOLS)
    await connector.mount("volume-1", str(tmp_path / "mounted"))
    await connector.unmount("volume-1", str(tmp_path / "mounted"))
    tools_files.wipefs(world, ["--all", device(world)], "")
    with pytest.raises(DeviceRefusedError, match="it is not blank"):
        await connector.mount("volume-1", str(tmp_path / "mounted"))


async def test_a_beginning_on_one_device_is_none_on_another(world: World, tmp_path: Path) -> None:
    connector = connector_in(world)
    link = world.path("dev/disk/by-path/disk")
    link.symlink_to(world.path("dev/vdb"))
    given = {"driverVolumeType": "LOCAL", "data": {"devicePath": str(link), "volumeId": "volume-1"}}
    await connector.connect(given)
    world.install(mkfs__ext4=f"{tools_files.__name__}:fails_after_a_block")
    with pytest.raises(CommandError, match="Input/output error"):
        await connector.mount("volume-1", str(tmp_path / "mounted"))
    world.drop_device("vdb")
    tools_files.add_noise(world, str(world.add_device("vdc", serial="first", dev="250:9")))
    link.unlink()
    link.symlink_to(world.path("dev/vdc"))
    await connector.connect(given)
    with pytest.raises(DeviceRefusedError, match="it is not blank"):
        await connector.mount("volume-1", str(tmp_path / "mounted"))


async def test_what_somebody_else_has_made_there_since_ends_the_beginning(world: World, tmp_path: Path) -> None:
    connector = connector_in(world)
    await connector.connect(local(world))
    world.install(mkfs__ext4=f"{tools_files.__name__}:fails_after_a_block")
    with pytest.raises(CommandError, match="Input/output error"):
        await connector.mount("volume-1", str(tmp_path / "mounted"))
    tools_files.put(world, device(world), type="swap", usage="other", uuid="1-2")
    with pytest.raises(DeviceRefusedError, match="it holds swap"):
        await connector.mount("volume-1", str(tmp_path / "mounted"))
    tools_files.wipefs(world, ["--all", device(world)], "")
    with pytest.raises(DeviceRefusedError, match="it is not blank"):
        await connector.mount("volume-1", str(tmp_path / "mounted"))
