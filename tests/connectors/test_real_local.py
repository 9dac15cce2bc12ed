"""On this machine's own kernel: a file becomes a device, is written, goes, comes again and is read."""

import os
import subprocess
from pathlib import Path

import pytest

from quartermaster.connectors import NotAttachedError
from quartermaster.connectors.blocking import open_connector
from quartermaster.testing.lab.disks import loops_under

pytestmark = pytest.mark.slow  # needs root and programs that packages bring

SIZE = 4 << 20


def test_a_device_that_is_here_already_is_given_out_and_stays(tmp_path: Path) -> None:
    image = tmp_path / "disk.img"
    image.write_bytes(b"\0" * SIZE)
    device = subprocess.check_output(["losetup", "--find", "--show", image], text=True).strip()
    info = {"driverVolumeType": "LOCAL", "data": {"devicePath": device, "volumeId": f"device {tmp_path.name}"}}
    try:
        with open_connector(directory=tmp_path / "state") as connector:
            attachment = connector.connect(info)
            assert attachment.device == device
            with open(attachment.path, "r+b") as opened:
                opened.write(b"kept" * 1024)
                opened.flush()
                os.fsync(opened.fileno())
            assert connector.disconnect(info) == attachment.path
            assert not os.path.lexists(attachment.path)
            again = connector.connect(info)
            with open(again.path, "rb") as opened:
                assert opened.read(4096) == b"kept" * 1024
            connector.disconnect(info)
            assert loops_under(tmp_path) != {}
    finally:
        subprocess.run(["losetup", "--detach", device], check=True)


def test_what_was_written_is_read_back_after_detaching_and_attaching_again(tmp_path: Path) -> None:
    image = tmp_path / "disk.img"
    image.write_bytes(b"\0" * SIZE)
    info = {"driverVolumeType": "LOCAL", "data": {"devicePath": str(image), "volumeId": f"test {tmp_path.name}"}}
    with open_connector(directory=tmp_path / "state") as connector:
        attachment = connector.connect(info)
        assert attachment.path.startswith("/dev/disk/by-id/quartermaster-test")
        assert os.path.realpath(attachment.path) == attachment.device
        with open(attachment.path, "r+b") as device:
            device.write(b"kept" * 1024)
            device.flush()
            os.fsync(device.fileno())
        os.truncate(image, 2 * SIZE)
        assert connector.extend(info) == 2 * SIZE
        assert connector.disconnect(info) == attachment.path
        assert not os.path.lexists(attachment.path)
        with pytest.raises(NotAttachedError):
            connector.device_path(attachment.volume_id)
        again = connector.connect(info)
        try:
            with open(again.path, "rb") as device:
                assert device.read(4096) == b"kept" * 1024
        finally:
            connector.disconnect(info)
    assert loops_under(image.parent) == {}
