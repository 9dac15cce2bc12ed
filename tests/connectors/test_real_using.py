"""File systems on attached volumes, on this machine's own kernel: made, mounted, refused, mended, grown."""

import os
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from quartermaster.connectors.blocking import BlockingConnector, open_connector
from quartermaster.connectors.filesystems import identity_on
from quartermaster.host.formatting import BEGUN_LABEL
from quartermaster.support.errors import DeviceRefusedError, InvalidError
from quartermaster.testing.lab.disks import loops_under

pytestmark = pytest.mark.slow  # needs root and programs that packages bring
VOLUME = f"volume {os.getpid()}"  # its link is this host's
# One partition of Linux, from sector 2048 on.
PARTITION_TABLE = bytes(446) + struct.pack("<B3xB3xII", 0, 0x83, 2048, 2048) + bytes(48) + b"\x55\xaa"
SIZE = 320 << 20  # the least that XFS takes


@pytest.fixture
def info(image: Path) -> dict[str, object]:
    return {"driverVolumeType": "LOCAL", "data": {"devicePath": str(image), "volumeId": VOLUME}}


@pytest.fixture
def connector(tmp_path: Path, info: dict[str, object]) -> Iterator[BlockingConnector]:
    with open_connector(directory=tmp_path / "state", timeout_s=100) as found:
        found.connect(info)
        yield found
        subprocess.run(["umount", "--lazy", "--quiet", tmp_path / "mounted"], check=False, capture_output=True)
        found.disconnect(info)
    assert loops_under(tmp_path) == {}


@pytest.fixture
def target(tmp_path: Path) -> str:
    return str(tmp_path / "mounted")


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs"])
def test_a_blank_volume_gets_a_file_system_and_keeps_its_files(
    connector: BlockingConnector, target: str, kind: str
) -> None:
    mounted = connector.mount(VOLUME, target, file_system=kind)
    assert mounted.file_system == kind
    assert connector.mount(VOLUME, target, file_system=kind) == mounted
    Path(target, "kept").write_text("what was written")
    before = connector.statistics(VOLUME, target=target)
    assert before.size - before.used >= before.available > 0
    assert connector.unmount(VOLUME, target) is True
    assert connector.unmount(VOLUME, target) is False
    assert connector.mount(VOLUME, target).file_system == kind
    assert Path(target, "kept").read_text() == "what was written"


# Of ext4 only a process with CAP_SYS_RESOURCE may do this, which a container may not have.
@pytest.mark.parametrize("kind", ["xfs", "btrfs"])
def test_the_file_system_grows_with_its_volume_while_it_is_mounted(
    connector: BlockingConnector, info: dict[str, object], image: Path, target: str, kind: str
) -> None:
    connector.mount(VOLUME, target, file_system=kind)
    before = connector.statistics(VOLUME, target=target)
    os.truncate(image, 2 * SIZE)
    assert connector.extend(info, mounted=target) == 2 * SIZE
    assert connector.statistics(VOLUME, target=target).size > before.size + SIZE // 2
    assert connector.statistics(VOLUME).size == 2 * SIZE


def test_what_is_on_a_device_is_never_formatted(connector: BlockingConnector, target: str) -> None:
    device = connector.device_path(VOLUME)
    subprocess.run(["mkfs.xfs", "-q", device], check=True)
    with pytest.raises(DeviceRefusedError, match="it holds xfs and not ext4"):
        connector.mount(VOLUME, target, file_system="ext4")
    subprocess.run(["wipefs", "--all", "--quiet", device], check=True)
    with open(device, "r+b") as opened:
        opened.write(PARTITION_TABLE)
    with pytest.raises(DeviceRefusedError, match="it has a partition table"):
        connector.mount(VOLUME, target)
    assert not os.path.exists(target)


def test_nothing_is_made_on_a_volume_that_may_only_be_read(connector: BlockingConnector, target: str) -> None:
    with pytest.raises(DeviceRefusedError, match="there is nothing on it"):
        connector.mount(VOLUME, target, read_only=True)
    with pytest.raises(InvalidError, match='cannot make the file system "fat"'):
        connector.mount(VOLUME, target, file_system="fat")
    connector.mount(VOLUME, target)
    connector.unmount(VOLUME, target)
    connector.mount(VOLUME, target, read_only=True)
    with pytest.raises(OSError, match="Read-only"):
        Path(target, "new").touch()


def test_a_file_system_whose_making_was_interrupted_is_made_anew(connector: BlockingConnector, target: str) -> None:
    own, label = identity_on(VOLUME)
    device = connector.device_path(VOLUME)
    subprocess.run(["mkfs.xfs", "-q", "-L", BEGUN_LABEL, "-m", f"uuid={own}", device], check=True)
    assert connector.mount(VOLUME, target, file_system="ext4").file_system == "ext4"
    assert subprocess.check_output(["e2label", device], text=True).strip() == label


def test_a_mount_that_has_failed_is_made_anew(connector: BlockingConnector, target: str) -> None:
    connector.mount(VOLUME, target, file_system="xfs")
    Path(target, "kept").write_text("what was written")
    os.sync()
    subprocess.run(["xfs_io", "-x", "-c", "shutdown -f", target], check=True)
    with pytest.raises(OSError, match="Input/output error"):
        Path(target, "kept").read_text()
    connector.mount(VOLUME, target)
    assert Path(target, "kept").read_text() == "what was written"
