"""iSCSI over RDMA, with the RDMA made of a plain network device: the kernel's initiator and the kernel's target."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from quartermaster.connectors import Connector, open_connector
from tests.hostlab.keeping import read_again, write_and_leave
from tests.hostlab.lio import Disk, Target, node_records, sessions, start_iscsi
from tests.hostlab.programs import load, read, run, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.deep, pytest.mark.timeout(900)]

ADDRESS = "192.0.2.1"
PORTAL = f"{ADDRESS}:3260"
RDMA = Path("/sys/class/infiniband/rxe0")


@pytest.fixture(autouse=True)
def _rdma() -> None:
    start_iscsi()
    load("rdma_rxe", "ib_iser", "ib_isert")
    if not RDMA.exists():
        run("ip", "link", "add", "wire0", "type", "veth", "peer", "name", "wire1")
        for wire in ("wire0", "wire1"):
            run("ip", "link", "set", wire, "up")
        run("ip", "address", "add", f"{ADDRESS}/24", "dev", "wire0")
        run("rdma", "link", "add", "rxe0", "type", "rxe", "netdev", "wire0")
    wait_for(lambda: "ACTIVE" in read(RDMA / "ports/1/state"))


@pytest.fixture
def target() -> Iterator[Target]:
    disk = Disk("remote")
    made = Target("rdma", portals=(PORTAL,), iser=True)
    made.serve(0, disk)
    yield made
    made.remove()
    disk.remove()


@pytest.fixture
async def connector(tmp_path: Path) -> AsyncIterator[Connector]:
    async with open_connector(directory=tmp_path / "state", timeout_s=240) as found:
        yield found
        assert (sessions(), node_records()) == ({}, [])


async def test_what_was_written_is_there_after_another_attach(connector: Connector, target: Target) -> None:
    info: dict[str, Any] = {**target.info(0, "volume-1"), "driverVolumeType": "iser"}
    await connector.connect(info)
    assert sessions() == {target.iqn: [0]}
    (session,) = Path("/sys/class/iscsi_session").iterdir()
    assert read(session / "ifacename") == "iser"
    await write_and_leave(connector, info)
    assert sessions() == {}
    await read_again(connector, info)
