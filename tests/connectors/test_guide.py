"""What the guide shows: a payload of every driver, of which that driver knows every key."""

import json
from pathlib import Path

import msgspec
import pytest

from quartermaster.connectors import ConnectionInfo, DriverType, Platform
from quartermaster.connectors.driver import Settings
from quartermaster.connectors.payload import decode, squash
from quartermaster.connectors.registry import find_driver

GUIDE = Path(__file__).parents[2] / "docs/guide/connectors.md"
LINES = [line for line in GUIDE.read_text().splitlines() if line.startswith('{"driverVolumeType"')]
PAYLOADS = [ConnectionInfo.from_map(json.loads(line)) for line in LINES]


def test_there_is_a_payload_of_every_driver() -> None:
    assert {info.driver_type for info in PAYLOADS} == {*DriverType}


@pytest.mark.parametrize("info", PAYLOADS, ids=lambda info: info.driver_type)
def test_its_driver_reads_all_of_it(info: ConnectionInfo) -> None:
    driver = find_driver(info.driver_type, platform=Platform.X86)
    known = {squash(field.name) for field in msgspec.structs.fields(driver.route.data)}
    assert [key for key in info.data if squash(key) not in known] == []
    data = decode(driver.route.data, info.data, driver=info.driver_type, aliases=driver.route.aliases)
    assert driver.identify(data, Settings()) is not None
