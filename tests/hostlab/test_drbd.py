"""DRBD 8.4 of the kernel's own tree. Both ends are in one kernel: it knows resources by name, and peers by address."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from quartermaster.connectors import Connector, open_connector
from tests.hostlab.programs import STATE, load, run, wait_for

pytestmark = pytest.mark.slow

SECRET = "a-secret-for-drbd"
ADDRESSES = ("127.0.0.1:7789", "127.0.0.1:7790")
RESOURCE = """resource {name} {{
    net {{ cram-hmac-alg sha1; shared-secret "{secret}"; }}
    on hostlab {{ device /dev/drbd{own} minor {own}; disk {disk}; address {here}; meta-disk internal; }}
    on another {{ device /dev/drbd{own} minor {own}; disk {disk}; address {there}; meta-disk internal; }}
}}
"""


def resource(name: str, number: int, disk: str, secret: str) -> str:
    here, there = ADDRESSES[number], ADDRESSES[1 - number]
    return RESOURCE.format(name=name, own=number, disk=disk, here=here, there=there, secret=secret)


@pytest.fixture
def disks() -> Iterator[list[str]]:
    """Of both ends, which have the same data: nothing."""
    load("drbd", "loop")
    loops = []
    for number, name in enumerate(("data", "mirror")):
        file = STATE / f"{name}.img"
        file.touch()
        os.truncate(file, 32 << 20)
        loops.append(run("losetup", "--find", "--show", file).strip())
        path = STATE / f"{name}.res"
        path.write_text(resource(name, number, loops[-1], SECRET))
        run("drbdadm", "--force", "-c", path, "create-md", name)
        run("drbdadm", "-c", path, "up", name)
    wait_for(lambda: state("data", "cstate") == "Connected")
    run("drbdadm", "-c", STATE / "data.res", "--", "--clear-bitmap", "new-current-uuid", "data")
    wait_for(lambda: state("mirror", "dstate") == "UpToDate/UpToDate")
    run("drbdadm", "-c", STATE / "data.res", "down", "data")
    yield loops
    run("drbdadm", "-c", STATE / "mirror.res", "down", "mirror")
    for loop in loops:
        run("losetup", "--detach", loop)


def state(name: str, what: str) -> str:
    return run("drbdadm", "-c", STATE / f"{name}.res", what, name, check=False).strip()


@pytest.fixture
async def connector(tmp_path: Path) -> AsyncIterator[Connector]:
    async with open_connector(directory=tmp_path / "state", timeout_s=60) as found:
        yield found


def volume(disks: list[str]) -> dict[str, Any]:
    config = resource("data", 0, disks[0], "%(shared-secret)s")
    data = {"config": config, "name": "data", "device": "/dev/drbd0", "providerAuth": SECRET, "volumeId": "volume-1"}
    return {"driverVolumeType": "drbd", "data": data}


async def test_what_is_written_is_on_both_ends(connector: Connector, disks: list[str]) -> None:
    info = volume(disks)
    attachment = await connector.connect(info)
    assert attachment.device == "/dev/drbd0"
    wait_for(lambda: state("mirror", "cstate") == "Connected")
    run("mkfs.ext4", "-q", attachment.path)
    run("mount", attachment.path, "/media")
    Path("/media/letter").write_text("kept")
    run("umount", "/media")
    assert state("mirror", "role") == "Secondary/Primary"
    await connector.disconnect(info)
    wait_for(lambda: state("mirror", "role").endswith("Unknown"))
    run("drbdadm", "-c", STATE / "mirror.res", "primary", "mirror")
    run("mount", "-o", "ro", "/dev/drbd1", "/media")
    assert Path("/media/letter").read_text() == "kept"
    run("umount", "/media")


def test_the_tool_of_drbd_itself_passes_the_secret_on_as_an_argument(disks: list[str]) -> None:
    """The one place where a secret can be seen in a list of processes, which the guide tells of."""
    shown = run("drbdadm", "--dry-run", "-c", STATE / "data.res", "up", "data")
    assert [line for line in shown.splitlines() if line.startswith("drbdsetup") and SECRET in line]
