"""SMB between the kernel's client and Samba."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from quartermaster.connectors import Connector, open_connector
from quartermaster.support.errors import QuartermasterError
from tests.hostlab.programs import STATE, alive, load, run, wait_for

pytestmark = pytest.mark.slow

PASSWORD = "a-secret-for-smb"
CONFIGURATION = f"""[global]
server role = standalone server
interfaces = lo
bind interfaces only = yes
disable netbios = yes
smb ports = 445
load printers = no
[share]
path = {STATE}/share
read only = no
"""


@pytest.fixture(autouse=True)
def _server() -> None:
    load("cifs")
    if alive("smbd"):
        return
    for directory in ("/run/samba", "/var/lib/samba/private", "/var/cache/samba", "/var/log/samba", STATE / "share"):
        Path(directory).mkdir(parents=True, exist_ok=True)
    Path("/etc/samba/smb.conf").write_text(CONFIGURATION)
    words = f"{PASSWORD}\n{PASSWORD}\n"
    subprocess.run(["smbpasswd", "-a", "-s", "root"], input=words, text=True, check=True, timeout=60)
    run("smbd", "--daemon")
    wait_for(answers)


def answers() -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", 445)) == 0


@pytest.fixture
async def connector(tmp_path: Path) -> AsyncIterator[Connector]:
    async with open_connector(directory=tmp_path / "state", timeout_s=60) as found:
        yield found
        assert shares() == []
        assert [path for path in (tmp_path / "state/secrets").glob("*") if path.is_file()] == []


def shares() -> list[str]:
    lines = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    return [line[0] for line in lines if line[2] == "cifs"]


def volume(name: str, **more: Any) -> dict[str, Any]:
    data = {"export": "//127.0.0.1/share", "name": name, "volumeId": f"volume-{name}", "username": "root"}
    return {"driverVolumeType": "smbfs", "data": data | {"password": PASSWORD} | more}


async def test_volumes_of_one_share_share_its_mount_until_the_last_goes(connector: Connector) -> None:
    for name in ("one", "two"):
        (STATE / "share" / name).write_text("")
    path = (await connector.connect(volume("one"))).path
    await connector.connect(volume("two"))
    assert shares() == ["//127.0.0.1/share"]
    Path(path).write_text("kept")
    await connector.disconnect(volume("one"))
    assert shares() == ["//127.0.0.1/share"]
    await connector.disconnect(volume("two"))
    assert (STATE / "share/one").read_text() == "kept"


@pytest.mark.deep
async def test_a_wrong_password_leaves_nothing(connector: Connector) -> None:
    with pytest.raises(QuartermasterError) as refusal:
        await connector.connect(volume("one", password="another-secret"))
    assert "another-secret" not in str(refusal.value)
