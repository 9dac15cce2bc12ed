"""What processes that died, and drivers of other packages, leave behind: told by name, recovered, or swept up."""

import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from quartermaster.connectors import (
    ConnectorError,
    UnsupportedDriverError,
    registry,
)
from quartermaster.connectors.driver import Found, Route
from quartermaster.connectors.drivers.gpfs import GpfsConnectionData, GpfsDriver, GpfsPlace
from quartermaster.support import clock
from tests.connectors.harness.running import connector_in
from tests.connectors.harness.tools import COMMON
from tests.connectors.harness.world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path / "world").make()
    made.install(**COMMON)
    made.path("disk.img").write_bytes(b"\0" * 4096)
    return made


def local(world: World, **data: Any) -> dict[str, Any]:
    return {"driverVolumeType": "LOCAL", "data": {"devicePath": str(world.path("disk.img")), "volumeId": "v", **data}}


@pytest.mark.parametrize("directory", ["attachments", "daemons/records"])
async def test_what_a_killed_process_has_left_of_a_record_is_removed_once_nobody_can_be_writing_it(
    world: World, directory: str
) -> None:
    old, new = (world.path(f"state/{directory}/.connector-a.json.{end}") for end in ("0123456789", "abcdefghij"))
    for file in (old, new):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("{")
    os.utime(old, (clock.wall_time() - 3600,) * 2)
    assert await connector_in(world).recover() == ()
    assert (old.exists(), new.exists()) == (False, True)


class Failing(GpfsDriver):
    route = Route("EXAMPLE", GpfsConnectionData, GpfsPlace)

    async def attach(self, context: Any, data: Any, place: Any) -> Found:
        raise ValueError("oops in a driver")


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Drivers of another package, as entry points would name them."""
    module = ModuleType("example_drivers")
    Failing.__module__ = module.__name__
    module.__dict__.update(DRIVER=Failing(), CLASS=Failing, HALF=ModuleType("half"))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ("example_drivers:MISSING", "AttributeError: .*MISSING"),
        ("no_such_package:DRIVER", "ModuleNotFoundError: No module named 'no_such_package'"),
        ("example_drivers:CLASS", "it is a class, and not a driver made from it"),
        ("example_drivers:HALF", "it has no route, identify, attach, find, detach"),
    ],
)
@pytest.mark.usefixtures("package")
async def test_a_driver_that_cannot_be_used_is_named(
    world: World, monkeypatch: pytest.MonkeyPatch, place: str, text: str
) -> None:
    monkeypatch.setattr(registry, "_entry_points", lambda: {"EXAMPLE": place})
    with pytest.raises(UnsupportedDriverError, match=f"cannot use the driver {place} of another package: {text}"):
        await connector_in(world).connect({"driverVolumeType": "EXAMPLE", "data": {"devicePath": "/x"}})


@pytest.mark.usefixtures("package")
async def test_what_a_driver_of_another_package_does_not_handle_is_named_as_its_own(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_entry_points", lambda: {"EXAMPLE": "example_drivers:DRIVER"})
    with pytest.raises(ConnectorError, match="the driver EXAMPLE of example_drivers failed: ValueError: oops"):
        await connector_in(world).connect({"driverVolumeType": "EXAMPLE", "data": {"devicePath": "/x"}})
    assert list(world.path("state/attachments").iterdir()) == []


async def test_a_volume_whose_driver_was_uninstalled_says_what_to_do(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await connector_in(world).connect(local(world))
    file = world.path("state/attachments/v.json")
    file.write_text(file.read_text().replace("LOCAL", "GONE").replace('"connected"', '"connecting"'))
    (done,) = await connector_in(world).recover()
    assert "install the package again" in done.problem


async def test_one_volume_that_cannot_be_recovered_does_not_hold_up_the_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    connector = connector_in(world)
    await connector.connect(local(world))
    file = world.path("state/attachments/v.json")
    text = file.read_text().replace('"connected"', '"connecting"')
    file.write_text(text)
    file.with_name("a.json").write_text(
        text.replace('"volumeId":"v"', '"volumeId":"a"').replace("disk.img", "di\\u0000")
    )
    first, second = await connector.recover()
    assert (first.volume_id, bool(first.problem)) == ("a", True)
    assert (second.volume_id, second.problem) == ("v", "")


async def test_a_volume_that_a_process_is_at_work_on_is_none_to_recover(world: World) -> None:
    connector = connector_in(world)
    await connector.connect(local(world))
    file = world.path("state/attachments/v.json")
    file.write_text(file.read_text().replace('"connected"', '"connecting"'))
    async with connector._machine.locks.hold("volume v", timeout_s=1):
        assert await connector.recover() == ()
    assert [one.volume_id for one in await connector.recover()] == ["v"]


async def test_what_a_dead_process_has_left_of_a_record_is_swept_up(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = world.path("state/attachments/.v.json.abc")
    old.write_text("{")
    await connector_in(world).recover()
    assert old.exists()
    later = clock.wall_time() + 3600
    monkeypatch.setattr(clock, "wall_time", lambda: later)
    await connector_in(world).recover()
    assert not old.exists()


async def test_a_record_that_cannot_be_read_is_listed_with_its_volume(world: World) -> None:
    await connector_in(world).connect(local(world, volumeId="a volume/7"))
    (file,) = world.path("state/attachments").iterdir()
    file.write_bytes(b"{")
    (listed,) = (await connector_in(world).list(foreign=False)).attachments
    assert (listed.volume_id, listed.state) == ("a volume/7", "damaged")
    (left,) = await connector_in(world).recover()
    assert (left.volume_id, left.was) == ("a volume/7", "damaged")
