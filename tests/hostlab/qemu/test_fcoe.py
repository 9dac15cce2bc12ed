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
PARAMETERS = Path("/sys/module/libfcoe/parameters")
WIRE = {"host0": "02:00:00:00:00:01", "disks0": "02:00:00:00:00:02"}  # our end, and the storage system's
OURS, THEIRS = (f"20:00:{address}" for address in WIRE.values())  # what the kernel makes of such an address


@pytest.fixture
def disk() -> Iterator[Disk]:
    """At LUN 0 for our port. It is there before the ports see each other: a target is found out at that moment only."""
    load("fcoe", "tcm_fc", "sd_mod", "target_core_file")
    made = Disk("fabric")
    directory = CONFIG / "fc" / THEIRS / "tpgt_1"
    directory.mkdir(parents=True)
    lun = directory / "lun/lun_0"
    lun.mkdir()
    (lun / made.name).symlink_to(made.directory)
    grant = directory / "acls" / OURS / "lun_0"
    grant.mkdir(parents=True)
    (grant / "shown").symlink_to(lun)
    plug_in()
    yield made
    for end in WIRE:
        write(PARAMETERS / "destroy", end)
    (grant / "shown").unlink()
    grant.rmdir()
    grant.parent.rmdir()
    (lun / made.name).unlink()
    lun.rmdir()
    directory.rmdir()
    directory.parent.rmdir()
    made.remove()


def plug_in() -> None:
    ends = [["name", name, "address", address, "mtu", "2500"] for name, address in WIRE.items()]
    run("ip", "link", "add", *ends[0], "type", "veth", "peer", *ends[1])
    for end in WIRE:
        write(PARAMETERS / "create_vn2vn", end)
    # Last, for this kernel crashes when a port hears another before it is whole.
    for end in WIRE:
        run("ip", "link", "set", end, "up")
    wait_for(lambda: [read(host / "port_state") for host in HOSTS.iterdir()] == ["Online", "Online"])


@pytest.fixture
async def connector(tmp_path: Path) -> AsyncIterator[Connector]:
    async with open_connector(directory=tmp_path / "state", timeout_s=240) as found:
        yield found


async def test_what_was_written_is_there_after_another_attach(connector: Connector, disk: Disk) -> None:
    data: dict[str, Any] = {"targetWwn": [THEIRS], "targetLun": 0, "volumeId": "volume-1", "wwid": disk.wwid}
    info = {"driverVolumeType": "fibre_channel", "data": data}
    attachment = await write_and_leave(connector, info)
    assert attachment.identity == disk.wwid
    assert not Path(attachment.device).exists()
    await read_again(connector, info)
