"""ATA over Ethernet between the kernel's initiator and vblade, over a wire inside the guest."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from quartermaster.connectors import Connector, NotAppearingError, open_connector
from tests.hostlab.keeping import read_again, write_and_leave
from tests.hostlab.programs import STATE, load, run, start, wait_for

pytestmark = pytest.mark.slow

SIZE = 16 << 20
SHELF = 16
ETHERD = Path("/dev/etherd")


@pytest.fixture(autouse=True)
def _wire() -> None:
    if not Path("/sys/class/net/disks0").exists():
        run("ip", "link", "add", "disks0", "type", "veth", "peer", "name", "host0")
        for end in ("disks0", "host0"):
            run("ip", "link", "set", end, "up")
    load("aoe")
    wait_for(lambda: (ETHERD / "discover").exists())


@pytest.fixture
async def connector(tmp_path: Path) -> AsyncIterator[Connector]:
    async with open_connector(directory=tmp_path / "state", timeout_s=60) as found:
        yield found


def volume(slot: int) -> dict[str, Any]:
    data = {"targetShelf": SHELF, "targetLun": slot, "volumeId": f"volume-{slot}"}
    return {"driverVolumeType": "aoe", "data": data}


async def test_what_was_written_is_there_after_another_attach(connector: Connector) -> None:
    file = STATE / "aoe.img"
    file.touch()
    os.truncate(file, SIZE)
    pid = start("vblade", str(SHELF), "1", "disks0", file)
    attachment = await write_and_leave(connector, volume(1))
    assert attachment.device == f"/dev/etherd/e{SHELF}.1"
    assert not (ETHERD / f"e{SHELF}.1").exists()
    await read_again(connector, volume(1))
    os.kill(pid, signal.SIGKILL)


@pytest.mark.deep
async def test_a_target_that_nobody_serves_is_named(connector: Connector) -> None:
    with pytest.raises(NotAppearingError, match=f"e{SHELF}.9"):
        await connector.connect(volume(9), timeout_s=8)
