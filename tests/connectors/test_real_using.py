"""File systems on attached volumes, on this machine's own kernel: made, mounted, refused, mended, grown."""

import os
import shutil
import struct
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from quartermaster.connectors.blocking import BlockingConnector, open_connector
from quartermaster.connectors.filesystems import identity_on
from quartermaster.host.formatting import BEGUN_LABEL
from quartermaster.support.errors import CommandError, DeviceRefusedError, InvalidError, ToolMissingError
from quartermaster.testing.lab.disks import loops_under
from tests.connectors.conftest import unmount_everywhere

pytestmark = pytest.mark.slow  # needs root and programs that packages bring
VOLUME = f"volume {os.getpid()}"  # its link is this host's
# One partition of Linux, from sector 2048 on.
PARTITION_TABLE = bytes(446) + struct.pack("<B3xB3xII", 0, 0x83, 2048, 2048) + bytes(48) + b"\x55\xaa"
SIZE = 320 << 20  # the least that XFS takes
NOTHING = 2  # of blkid


@pytest.fixture
def info(image: Path) -> dict[str, object]:
    return {"driverVolumeType": "LOCAL", "data": {"devicePath": str(image), "volumeId": VOLUME}}


@pytest.fixture
def connector(tmp_path: Path, info: dict[str, object]) -> Iterator[BlockingConnector]:
    with open_connector(directory=tmp_path / "state", timeout_s=100) as found:
        found.connect(info)
        yield found
        unmount_everywhere(tmp_path)
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


@pytest.mark.parametrize(
    ("kind", "size", "reason"),
    [
        ("xfs", 64 << 20, r"mkfs\.xfs exited with 1: Filesystem must be larger than 300MB\."),
        ("btrfs", 16 << 20, r"mkfs\.btrfs exited with 1: .*minimum size for each btrfs device is \d+"),
        ("ext4", 64 << 10, r"mkfs\.ext4 exited with 1: .*[Ff]ilesystem too small"),
    ],
)
def test_a_file_system_that_cannot_be_made_says_why_in_one_line_and_what_to_do(
    tmp_path: Path, kind: str, size: int, reason: str
) -> None:
    image = tmp_path / "small.img"
    image.touch()
    os.truncate(image, size)
    small = {"driverVolumeType": "LOCAL", "data": {"devicePath": str(image), "volumeId": f"{VOLUME} small"}}
    with open_connector(directory=tmp_path / "state", timeout_s=100) as connector:
        connector.connect(small)
        try:
            with pytest.raises(CommandError, match=reason) as caught:
                connector.mount(f"{VOLUME} small", tmp_path / "mounted", file_system=kind)
        finally:
            connector.disconnect(small)
    assert "\n" not in str(caught.value)
    assert "Usage" not in str(caught.value)
    assert caught.value.hint.startswith(f"the volume has {size >> 20} MiB and {kind} needs about")


@pytest.fixture
def failing(tmp_path: Path, info: dict[str, object]) -> Iterator[Callable[[str], BlockingConnector]]:
    """The same host, as one finds it where mkfs.ext4 is this script."""
    programs = tmp_path / "programs"
    programs.mkdir()
    with ExitStack() as stack:

        def opened(script: str) -> BlockingConnector:
            (programs / "mkfs.ext4").write_text(f"#!/bin/sh\nfor device; do :; done\n{script}\n")
            (programs / "mkfs.ext4").chmod(0o755)
            path = f"{programs}:{os.environ['PATH']}"
            return stack.enter_context(open_connector(directory=tmp_path / "state", search_path=path, timeout_s=100))

        yield opened


def test_a_making_that_was_killed_before_anybody_recognises_it_is_begun_anew(
    connector: BlockingConnector, failing: Callable[[str], BlockingConnector], target: str
) -> None:
    # The group descriptors, which lie behind the place of the superblock.
    killed = failing('head -c 4096 /dev/urandom | dd of="$device" bs=4096 seek=1 conv=notrunc,fsync; kill -9 $$')
    with pytest.raises(CommandError, match="ended by signal 9"):
        killed.mount(VOLUME, target)
    device = connector.device_path(VOLUME)
    assert subprocess.run(["blkid", "--probe", device], check=False).returncode == NOTHING
    assert connector.mount(VOLUME, target).file_system == "ext4"
    connector.unmount(VOLUME, target)
    subprocess.run(["wipefs", "--all", "--quiet", device], check=True)
    with pytest.raises(DeviceRefusedError, match="it is not blank"):
        connector.mount(VOLUME, target)


def test_a_making_that_wrote_nothing_leaves_no_right_to_format(
    connector: BlockingConnector, failing: Callable[[str], BlockingConnector], target: str
) -> None:
    with pytest.raises(CommandError, match="exited with 1"):
        failing("exit 1").mount(VOLUME, target)
    with open(connector.device_path(VOLUME), "r+b") as opened:
        opened.write(b"a raw database")
    with pytest.raises(DeviceRefusedError, match="it is not blank"):
        connector.mount(VOLUME, target)
    with open(connector.device_path(VOLUME), "rb") as opened:
        assert opened.read(14) == b"a raw database"


def test_a_program_that_is_not_installed_leaves_no_right_to_format(
    connector: BlockingConnector, tmp_path: Path, target: str
) -> None:
    programs = tmp_path / "without"
    programs.mkdir()
    for name in ("blkid", "wipefs", "dd", "cmp", "stat"):
        (programs / name).symlink_to(str(shutil.which(name)))
    without = open_connector(directory=tmp_path / "state", search_path=str(programs), timeout_s=100)
    with without, pytest.raises(ToolMissingError, match=r"mkfs\.xfs is not installed"):
        without.mount(VOLUME, target, file_system="xfs")
    with open(connector.device_path(VOLUME), "r+b") as opened:
        opened.write(b"a raw database")
    with pytest.raises(DeviceRefusedError, match="it is not blank"):
        connector.mount(VOLUME, target)
