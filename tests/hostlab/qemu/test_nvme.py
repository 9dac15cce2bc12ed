"""NVMe over TCP between the kernel's initiator and the kernel's target."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from quartermaster.connectors import Connector, UnreachableError, open_connector
from tests.hostlab.keeping import read_again, write_and_leave
from tests.hostlab.programs import load, read

pytestmark = [pytest.mark.slow, pytest.mark.deep, pytest.mark.timeout(900)]

CONFIG = Path("/sys/kernel/config/nvmet")
NQN = "nqn.2026-01.example:disks"
ADDRESS, PORT = "127.0.0.1", 4420
UUIDS = {1: "11111111-2222-4333-8444-555555555501", 2: "11111111-2222-4333-8444-555555555502"}
SIZE = 32 << 20


@pytest.fixture
def subsystem(tmp_path: Path) -> Iterator[str]:
    """With two namespaces: files in memory, for the target finds no size of one in a root of several layers."""
    load("nvmet-tcp", "nvme-tcp")
    directory, port = CONFIG / "subsystems" / NQN, CONFIG / "ports/1"
    directory.mkdir()
    (directory / "attr_allow_any_host").write_text("1")
    for number, uuid in UUIDS.items():
        file = tmp_path / f"namespace-{number}.img"
        file.touch()
        os.truncate(file, SIZE)
        own = directory / f"namespaces/{number}"
        own.mkdir()
        # Buffered, for such a file cannot be read past the cache.
        for name, value in {"device_path": file, "device_uuid": uuid, "buffered_io": 1, "enable": 1}.items():
            (own / name).write_text(str(value))
    port.mkdir()
    for name, value in {"traddr": ADDRESS, "trtype": "tcp", "trsvcid": PORT, "adrfam": "ipv4"}.items():
        (port / f"addr_{name}").write_text(str(value))
    (port / "subsystems" / NQN).symlink_to(directory)
    yield NQN
    (port / "subsystems" / NQN).unlink()
    port.rmdir()
    for number in UUIDS:
        (directory / f"namespaces/{number}").rmdir()
    directory.rmdir()


@pytest.fixture
async def connector(tmp_path: Path) -> AsyncIterator[Connector]:
    async with open_connector(directory=tmp_path / "state", timeout_s=240) as found:
        yield found
        assert controllers() == []


def volume(number: int, **more: Any) -> dict[str, Any]:
    own = {"targetNqn": NQN, "targetPortal": ADDRESS, "targetPort": PORT, "transportType": "tcp"}
    return {"driverVolumeType": "nvmeof", "data": own | {"volUuid": UUIDS[number], "volumeId": f"v-{number}"} | more}


def controllers() -> list[str]:
    return [path.name for path in Path("/sys/class/nvme").glob("nvme*") if read(path / "transport") == "tcp"]


async def test_what_was_written_is_there_after_another_attach(connector: Connector, subsystem: str) -> None:
    attachment = await write_and_leave(connector, volume(1))
    assert attachment.identity == f"uuid.{UUIDS[1]}"
    assert controllers() == []
    await read_again(connector, volume(1))


async def test_the_controller_stays_until_its_last_volume_goes(connector: Connector, subsystem: str) -> None:
    one, two = await connector.connect(volume(1)), await connector.connect(volume(2))
    assert one.device != two.device
    assert len(controllers()) == 1
    await connector.disconnect(volume(1))
    assert len(controllers()) == 1
    assert await connector.device_path("v-2") == two.path
    await connector.disconnect(volume(2))


async def test_a_portal_that_is_closed_is_named(connector: Connector, subsystem: str) -> None:
    with pytest.raises(UnreachableError, match=ADDRESS):
        await connector.connect(volume(1, targetPort=4499))
