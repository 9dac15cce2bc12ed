"""Which driver serves a type, and what it costs to find out."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from quartermaster.connectors import OsType, Platform, UnsupportedDriverError
from quartermaster.connectors.driver import Route
from quartermaster.connectors.registry import clients_of, find_driver, known_types
from tests.connectors.harness.running import connector_in
from tests.connectors.harness.world import World


@pytest.mark.parametrize("name", known_types())
def test_every_driver_can_be_loaded_and_says_what_it_serves(name: str) -> None:
    for client in clients_of(name):
        platform = Platform.X86
        route = find_driver(name, platform=platform, client=client).route
        assert (route.driver_type, route.client) == (name, client)
        assert not [field for field in msgspec.structs.fields(route.place) if "Secret" in str(field.type)]


def test_windows_has_no_driver_and_is_told_so() -> None:
    with pytest.raises(UnsupportedDriverError, match="cannot use NFS: not supported on WIN"):
        find_driver("NFS", platform=Platform.X86, os_type=OsType.WINDOWS)


PACKAGE = """
from quartermaster.connectors.driver import Found, Route
from quartermaster.connectors.drivers.gpfs import GpfsConnectionData, GpfsDriver, GpfsPlace
from quartermaster.connectors.model import Platform


class Driver(GpfsDriver):
    route = Route("EXAMPLE", GpfsConnectionData, GpfsPlace, platforms=(Platform.S390,))


DRIVER = Driver()
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "example_driver.py").write_text(PACKAGE)
    information = tmp_path / "example_driver-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: example-driver\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[quartermaster.connectors]\nEXAMPLE = example_driver:DRIVER\n")
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.usefixtures("package")
async def test_a_driver_may_live_in_another_package(tmp_path: Path) -> None:
    world = World(tmp_path / "world").make()
    info = {"driverVolumeType": "example", "data": {"devicePath": str(tmp_path)}}
    connector = connector_in(world, machine="s390x")
    attachment = await connector.connect(info)
    assert (attachment.driver_volume_type, attachment.path) == ("EXAMPLE", str(tmp_path))
    await connector.disconnect(info)


@pytest.mark.usefixtures("package")
def test_a_platform_without_a_driver_is_named_with_those_that_have_one() -> None:
    with pytest.raises(UnsupportedDriverError, match="no driver for the platform X86; it runs on S390"):
        find_driver("EXAMPLE", platform=Platform.X86)


def test_a_route_is_for_all_platforms_unless_it_says_otherwise() -> None:
    assert Route("T", msgspec.Struct, msgspec.Struct).platforms == (Platform.ALL,)


def test_a_connector_is_made_without_any_driver_log_or_entry_point() -> None:
    script = (
        "import asyncio, sys; before = set(sys.modules)\n"
        "from quartermaster.connectors import open_connector\n"
        "open_connector()\n"
        "new = set(sys.modules) - before\n"
        "print(*sorted(name for name in new if name.startswith(('structlog', 'yaml', 'click', 'importlib.metadata',"
        " 'ctypes', 'shutil', 'quartermaster.connectors.drivers', 'quartermaster.host.daemons',"
        " 'quartermaster.resources', 'quartermaster.stores'))))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
