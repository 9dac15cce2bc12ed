"""What is never done to a volume, on this machine's own kernel: no data lost, no other's thing touched."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quartermaster.connectors import (
    AttachmentConflictError,
    ConnectorError,
    NotAttachedError,
    VolumeBusyError,
)
from quartermaster.connectors.blocking import BlockingConnector, open_connector
from quartermaster.support.errors import DeviceRefusedError, HostError, InvalidError, MountConflictError
from quartermaster.testing.lab.disks import loops_under
from tests.connectors.conftest import unmount_everywhere
from tests.connectors.servers import wait_for

pytestmark = pytest.mark.slow  # needs root and programs that packages bring
VOLUME = f"refusals {os.getpid()}"  # its link is this host's
SIZE = 32 << 20
MIB = 1 << 20


@pytest.fixture
def connector(tmp_path: Path) -> Iterator[BlockingConnector]:
    with open_connector(directory=tmp_path / "state", timeout_s=100) as found:
        yield found
        unmount_everywhere(tmp_path)
        for device in loops_under(tmp_path):
            subprocess.run(["losetup", "--detach", device], check=False, timeout=60)


def info(path: Path, volume: str = VOLUME, **data: str) -> dict[str, Any]:
    return {"driverVolumeType": "LOCAL", "data": {"devicePath": str(path), "volumeId": volume, **data}}


@pytest.mark.parametrize("place", [0, SIZE - MIB], ids=["its beginning", "its end"])
def test_data_that_nobody_recognises_are_kept_unless_they_are_given_up(
    connector: BlockingConnector, image: Path, tmp_path: Path, place: int
) -> None:
    with image.open("r+b") as opened:
        opened.seek(place)
        opened.write(os.urandom(MIB))
    before = image.read_bytes()
    connector.connect(info(image))
    for key in ("", "a key"):
        with pytest.raises(DeviceRefusedError, match="it is not blank, though nobody recognises what is on it"):
            connector.mount(VOLUME, tmp_path / "mounted", key=key)
    assert image.read_bytes() == before
    assert connector.mount(VOLUME, tmp_path / "mounted", overwrite_unknown=True).file_system == "ext4"


def test_what_was_connected_to_be_read_is_mounted_to_be_read(
    connector: BlockingConnector, image: Path, tmp_path: Path
) -> None:
    reading = info(image, accessMode="ro")
    connector.connect(reading)
    with pytest.raises(DeviceRefusedError, match="there is nothing on it, and it may only be read"):
        connector.mount(VOLUME, tmp_path / "mounted")
    connector.disconnect(reading)
    subprocess.run(["mkfs.ext4", "-q", image], check=True, timeout=60)
    connector.connect(reading)
    connector.mount(VOLUME, tmp_path / "mounted")
    with pytest.raises(OSError, match="Read-only"):
        (tmp_path / "mounted/new").touch()


def test_a_device_that_was_connected_to_be_read_is_not_written_by_whoever_opens_it(
    connector: BlockingConnector, image: Path
) -> None:
    device = subprocess.check_output(["losetup", "--find", "--show", image], text=True, timeout=60).strip()
    reading, writing = info(Path(device), accessMode="ro"), info(Path(device), f"{VOLUME} to write")
    path = connector.connect(reading).path
    with pytest.raises(OSError, match=r"not permitted|Permission denied"), open(path, "r+b") as opened:
        opened.write(b"\1" * 4096)
    # Somebody else may write to it all the same, and takes nothing away with it.
    assert connector.connect(writing).device == device
    connector.disconnect(writing)
    assert connector.device_path(VOLUME) == path
    connector.disconnect(reading)
    assert list(loops_under(image.parent)) == [device]


def test_a_directory_that_was_connected_to_be_read_is_bound_to_be_read(
    connector: BlockingConnector, tmp_path: Path
) -> None:
    (tmp_path / "source").mkdir()
    connector.connect(info(tmp_path / "source", accessMode="ro"))
    connector.mount(VOLUME, tmp_path / "mounted")
    with pytest.raises(OSError, match="Read-only"):
        (tmp_path / "mounted/new").touch()


def test_a_file_that_is_attached_to_be_written_is_not_handed_out_to_be_read(
    connector: BlockingConnector, image: Path
) -> None:
    connector.connect(info(image))
    with pytest.raises(AttachmentConflictError, match="already, to be written"):
        connector.connect(info(image, f"{VOLUME} again", accessMode="ro"))
    assert len(connector.list(foreign=False).attachments) == 1
    connector.disconnect(info(image))


@pytest.mark.parametrize("wrong", [{"key": b"k"}, {"file_system": "xfs"}, {"options": "noatime"}], ids=str)
def test_a_directory_takes_neither_a_key_nor_a_file_system_nor_options(
    connector: BlockingConnector, tmp_path: Path, wrong: dict[str, str]
) -> None:
    (tmp_path / "source").mkdir()
    connector.connect(info(tmp_path / "source"))
    with pytest.raises(InvalidError, match="it is no device"):
        connector.mount(VOLUME, tmp_path / "mounted", **wrong)
    assert not (tmp_path / "mounted").exists()


def test_a_directory_stays_where_it_was_before_the_mount(
    connector: BlockingConnector, image: Path, tmp_path: Path
) -> None:
    connector.connect(info(image))
    for target, stays in ((tmp_path / "own", True), (tmp_path / "made/for/it", False)):
        if stays:
            target.mkdir()
        connector.mount(VOLUME, target)
        assert connector.unmount(VOLUME, target) is True
        assert target.exists() is stays
    (tmp_path / "empty").mkdir()
    assert connector.unmount(VOLUME, tmp_path / "empty") is False
    assert (tmp_path / "empty").exists()


def test_a_mount_that_fails_takes_its_directories_away_again(
    connector: BlockingConnector, image: Path, tmp_path: Path
) -> None:
    connector.connect(info(image))
    with pytest.raises(HostError, match="cannot mount"):
        connector.mount(VOLUME, tmp_path / "made/for/it", options=["nosuch"])
    assert not (tmp_path / "made").exists()


def test_another_directory_says_nothing_about_the_volume(
    connector: BlockingConnector, image: Path, tmp_path: Path
) -> None:
    connector.connect(info(image))
    with pytest.raises(ConnectorError, match="nothing is mounted on"):
        connector.statistics(VOLUME, tmp_path)
    with pytest.raises(MountConflictError, match="cannot look at the volume"):
        connector.statistics(VOLUME, "/proc")


def test_a_device_that_a_process_has_open_is_in_use(connector: BlockingConnector, image: Path) -> None:
    attachment = connector.connect(info(image))
    with open(attachment.path, "rb"), pytest.raises(VolumeBusyError, match=f"opened by process {os.getpid()}"):
        connector.disconnect(info(image))
    assert connector.device_path(VOLUME) == attachment.path
    assert connector.disconnect(info(image)) == attachment.path
    assert loops_under(image.parent) == {}


def test_a_file_system_that_was_unmounted_lazily_is_in_use_until_its_last_file_is_closed(
    connector: BlockingConnector, image: Path, tmp_path: Path
) -> None:
    connector.connect(info(image))
    connector.mount(VOLUME, tmp_path / "mounted")
    with (tmp_path / "mounted/open").open("w"):
        connector.unmount(VOLUME, tmp_path / "mounted", force=True)
        unmount_everywhere(tmp_path)
        with pytest.raises(VolumeBusyError, match="unmounted lazily"):
            connector.disconnect(info(image))
    connector.disconnect(info(image))


def test_a_device_that_goes_with_its_last_user_is_not_handed_out(
    connector: BlockingConnector, image: Path, tmp_path: Path
) -> None:
    connector.connect(info(image))
    connector.mount(VOLUME, tmp_path / "mounted")
    with (tmp_path / "mounted/open").open("w"):
        connector.disconnect(info(image), force=True)
        with pytest.raises(VolumeBusyError, match="taken away by force and is still in use"):
            connector.connect(info(image))
    unmount_everywhere(tmp_path)
    wait_for(lambda: not loops_under(tmp_path), seconds=60)
    connector.connect(info(image))
    connector.disconnect(info(image))
    assert loops_under(tmp_path) == {}


def test_a_directory_that_we_have_mounted_is_in_use(connector: BlockingConnector, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "mounted"
    source.mkdir()
    connector.connect(info(source))
    connector.mount(VOLUME, target)
    with pytest.raises(VolumeBusyError, match=f"is in use: mounted on {target}"):
        connector.disconnect(info(source))
    assert connector.device_path(VOLUME) == str(source)
    assert connector.unmount(VOLUME, target) is True
    assert connector.disconnect(info(source)) == str(source)


def test_a_directory_that_was_unmounted_by_hand_or_bound_by_somebody_else_is_not_in_use(
    connector: BlockingConnector, tmp_path: Path
) -> None:
    source, target, theirs = tmp_path / "source", tmp_path / "mounted", tmp_path / "theirs"
    source.mkdir()
    theirs.mkdir()
    connector.connect(info(source))
    connector.mount(VOLUME, target)
    subprocess.run(["umount", target], check=True, timeout=60)
    subprocess.run(["mount", "--bind", source, theirs], check=True, timeout=60)
    assert connector.disconnect(info(source)) == str(source)
    (source / "seen").touch()
    assert (theirs / "seen").exists()


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_what_we_have_mounted_of_a_volume_goes_with_it_by_force(
    connector: BlockingConnector, image: Path, tmp_path: Path, kind: str
) -> None:
    source, made, own = tmp_path / "source", tmp_path / "made", tmp_path / "own"
    source.mkdir()
    own.mkdir()
    volume = info(image if kind == "file" else source)
    path = connector.connect(volume).path
    for target in (made, own):
        connector.mount(VOLUME, target)
    (own / "seen").touch()
    assert connector.disconnect(volume, force=True) == path
    assert (made.exists(), list(own.iterdir())) == (False, [])
    unmount_everywhere(tmp_path)
    wait_for(lambda: not loops_under(tmp_path), seconds=60)
    assert connector.disconnect(volume) == ""
    connector.connect(volume)
    assert connector.disconnect(volume) == path


@pytest.mark.parametrize("mounted", [True, False], ids=["mounted", "a file is open"])
def test_a_disconnect_that_is_refused_leaves_no_new_record(
    connector: BlockingConnector, image: Path, tmp_path: Path, mounted: bool
) -> None:
    """Of a volume that was taken away by force while somebody had it in use."""
    device, theirs = connector.connect(info(image)).device, tmp_path / "theirs"
    connector.mount(VOLUME, tmp_path / "mounted")
    theirs.mkdir()
    subprocess.run(["mount", device, theirs], check=True, timeout=60)
    with (theirs / "open").open("w"):
        connector.disconnect(info(image), force=True)
        if not mounted:
            unmount_everywhere(tmp_path)
        for _ in range(2):
            with pytest.raises(VolumeBusyError, match=f"{device} is in use: .*"):
                connector.disconnect(info(image))
            assert connector.list(foreign=False).attachments == ()
            assert connector.recover() == ()
        with pytest.raises(VolumeBusyError, match="taken away by force and is still in use"):
            connector.connect(info(image))
        assert connector.list(foreign=False).attachments == ()
    unmount_everywhere(tmp_path)
    wait_for(lambda: not loops_under(tmp_path), seconds=60)
    assert connector.disconnect(info(image)) == ""


@pytest.mark.parametrize("by_file", [True, False], ids=["its file", "the device"])
def test_a_device_that_somebody_else_has_mounted_is_not_handed_out(
    connector: BlockingConnector, image: Path, tmp_path: Path, by_file: bool
) -> None:
    (tmp_path / "theirs").mkdir()
    subprocess.run(["mkfs.ext4", "-q", image], check=True, timeout=60)
    argv = ["losetup", "--find", "--show", image]
    device = subprocess.check_output(argv, text=True, timeout=60).strip()
    subprocess.run(["mount", device, tmp_path / "theirs"], check=True, timeout=60)
    theirs = info(image if by_file else Path(device))
    with pytest.raises(VolumeBusyError, match=f"{device} is in use: mounted on {tmp_path}/theirs"):
        connector.connect(theirs)
    assert connector.list(foreign=False).attachments == ()
    assert os.path.ismount(tmp_path / "theirs")
    subprocess.run(["umount", tmp_path / "theirs"], check=True, timeout=60)
    assert connector.connect(theirs).device == device
    # Whoever was given it may have mounted it: connecting it again is as once, and by another id it is shared.
    connector.mount(VOLUME, tmp_path / "ours")
    assert connector.connect(theirs).device == device
    shared = {**theirs, "data": {**theirs["data"], "volumeId": f"{VOLUME} too"}}
    assert connector.connect(shared).device == device
    connector.unmount(VOLUME, tmp_path / "ours")
    for each in (theirs, shared):
        connector.disconnect(each)


def test_a_device_that_somebody_else_has_mounted_may_be_read(
    connector: BlockingConnector, image: Path, tmp_path: Path
) -> None:
    (tmp_path / "theirs").mkdir()
    subprocess.run(["mkfs.ext4", "-q", image], check=True, timeout=60)
    device = subprocess.check_output(["losetup", "--find", "--show", image], text=True, timeout=60).strip()
    subprocess.run(["mount", device, tmp_path / "theirs"], check=True, timeout=60)
    reading = info(Path(device), accessMode="ro")
    with open(connector.connect(reading).path, "rb") as opened:
        assert len(opened.read(4096)) == 4096
    connector.disconnect(reading)


def test_the_device_of_a_file_that_was_deleted_is_taken_away(connector: BlockingConnector, image: Path) -> None:
    connector.connect(info(image))
    image.unlink()
    connector.disconnect(info(image))
    assert str(image) not in subprocess.check_output(["losetup", "--list"], text=True, timeout=60)


def test_a_loop_device_without_a_file_is_no_volume(connector: BlockingConnector, image: Path) -> None:
    argv = ["losetup", "--find", "--show", image]
    device = Path(subprocess.check_output(argv, text=True, timeout=60).strip())
    connector.connect(info(device))
    subprocess.run(["losetup", "--detach", device], check=True, timeout=60)
    with pytest.raises(NotAttachedError):
        connector.device_path(VOLUME)
    with pytest.raises(ConnectorError, match="it is a loop device without a file"):
        connector.connect(info(device))


def test_a_file_without_a_byte_is_no_volume(connector: BlockingConnector, tmp_path: Path) -> None:
    (tmp_path / "empty.img").touch()
    with pytest.raises(ConnectorError, match="it has 0 bytes"):
        connector.connect(info(tmp_path / "empty.img"))
    assert loops_under(tmp_path) == {}
