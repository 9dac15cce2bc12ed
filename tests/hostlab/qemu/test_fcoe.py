"""Fibre Channel over a plain wire: both ends in one kernel, one of them a target."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from quartermaster.connectors import Connector, open_connector
from tests.hostlab.keeping import read_again, write_and_leave
from tests.hostlab.lio import CONFIG, Disk, write
from tests.hostlab.programs import load, read, run, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.deep, pytest.mark.timeout(900)]

HOSTS = Path("/sys/class/fc_host")
ENDS = ("host0", "disks0")


@pytest.fixture
def ports() -> tuple[str, str]:
    """The names of our port and of the storage system's, which see each other."""
    load("fcoe", "tcm_fc", "sd_mod", "target_core_file")
    if not Path("/sys/class/net/host0").exists():
        run("ip", "link", "add", ENDS[0], "mtu", "2500", "type", "veth", "peer", "name", ENDS[1], "mtu", "2500")
        for end in ENDS:
            run("ip", "link", "set", end, "up")
            write(Path("/sys/module/libfcoe/parameters/create_vn2vn"), end)
    wait_for(lambda: all(port_of(end) for end in ENDS))
    return port_of(ENDS[0]), port_of(ENDS[1])


def port_of(interface: str) -> str:
    """Of the adapter on a network device, once it is online."""
    for host in HOSTS.iterdir():
        if interface in read(host / "symbolic_name") and read(host / "port_state") == "Online":
            return read(host / "port_name").removeprefix("0x")
    return ""


def colons(wwn: str) -> str:
    return ":".join(wwn[place : place + 2] for place in range(0, 16, 2))


@pytest.fixture
def disk(ports: tuple[str, str]) -> Iterator[Disk]:
    """Served at LUN 0 to our port."""
    ours, theirs = ports
    made = Disk("fabric")
    directory = CONFIG / "fc" / colons(theirs) / "tpgt_1"
    directory.mkdir(parents=True)
    lun = directory / "lun/lun_0"
    lun.mkdir()
    (lun / made.name).symlink_to(made.directory)
    grant = directory / "acls" / colons(ours) / "lun_0"
    grant.mkdir(parents=True)
    (grant / "shown").symlink_to(lun)
    yield made
    (grant / "shown").unlink()
    grant.rmdir()
    grant.parent.rmdir()
    (lun / made.name).unlink()
    lun.rmdir()
    directory.rmdir()
    directory.parent.rmdir()
    made.remove()


@pytest.fixture
async def connector(tmp_path: Path) -> AsyncIterator[Connector]:
    async with open_connector(directory=tmp_path / "state", timeout_s=240) as found:
        yield found


async def test_what_was_written_is_there_after_another_attach(
    connector: Connector, ports: tuple[str, str], disk: Disk
) -> None:
    data: dict[str, Any] = {"targetWwn": [ports[1]], "targetLun": 0, "volumeId": "volume-1", "wwid": disk.wwid}
    info = {"driverVolumeType": "fibre_channel", "data": data}
    attachment = await write_and_leave(connector, info)
    assert attachment.identity == disk.wwid
    assert not Path(attachment.device).exists()
    await read_again(connector, info)
