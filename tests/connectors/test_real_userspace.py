"""Volumes of real servers without any help of the kernel but FUSE and loop devices."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quartermaster.connectors import (
    AuthenticationError,
    ConnectorError,
    NotAttachedError,
    UnreachableError,
    VolumeBusyError,
)
from quartermaster.connectors.blocking import BlockingConnector, open_connector
from quartermaster.testing.lab.disks import loops_under
from tests.connectors.servers import (
    PASSWORD,
    USER,
    IscsiTarget,
    daemons_of,
    free_port,
    iscsi_target,
    nbd_server,
    wait_for,
)

pytestmark = pytest.mark.slow  # needs root and programs that packages bring

SIZE = 64 << 20
CLIENTS = {"ISCSI": "userspace", "NBD": "userspace"}


@pytest.fixture
def connector(tmp_path: Path) -> Iterator[BlockingConnector]:
    with open_connector(directory=tmp_path / "state", clients=CLIENTS, timeout_s=20) as found:
        yield found
    assert left_of(tmp_path) == []


@pytest.fixture
def mount_point(tmp_path: Path) -> Iterator[Path]:
    directory = tmp_path / "mounted"
    directory.mkdir()
    yield directory
    if os.path.ismount(directory):
        run("umount", "--lazy", directory)


def left_of(directory: Path) -> list[str]:
    """Whatever of the attachments is still on this host, or in their directory of state."""
    mounts = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if f" {directory}/state" in line]
    files = [str(file) for file in (directory / "state").rglob("*") if file.is_file() and file.parent.name != "locks"]
    return [*mounts, *loops_under(directory), *files, *map(str, daemons_of(directory))]


def run(*argv: str | Path) -> str:
    return subprocess.run([*map(str, argv)], check=True, capture_output=True, text=True, timeout=30).stdout


def nbd(port: int, **data: Any) -> dict[str, Any]:
    own = {"host": "127.0.0.1", "port": port, "export": "disk", "volumeId": f"nbd-{port}"}
    return {"driverVolumeType": "NBD", "data": {**own, **data}}


def iscsi(target: IscsiTarget, **data: Any) -> dict[str, Any]:
    own = {"targetPortal": target.portal, "targetIqn": target.iqn, "targetLun": str(target.lun)}
    return {"driverVolumeType": "ISCSI", "data": {**own, "volumeId": f"iscsi-{os.getpid()}", **data}}


def write_detach_and_read_again(connector: BlockingConnector, info: dict[str, Any], directory: Path) -> None:
    attachment = connector.connect(info)
    assert connector.connect(info) == attachment
    run("mkfs.ext4", "-q", attachment.path)
    run("e2fsck", "-fn", attachment.path)
    run("mount", attachment.path, directory)
    (directory / "kept").write_text("what was written")
    with pytest.raises(VolumeBusyError, match="mounted on"):
        connector.disconnect(info)
    assert connector.device_path(attachment.volume_id) == attachment.path
    run("umount", directory)
    assert connector.disconnect(info) == attachment.path
    assert connector.disconnect(info) == ""
    again = connector.connect(info)
    run("mount", "-o", "ro", again.path, directory)
    assert (directory / "kept").read_text() == "what was written"
    run("umount", directory)
    connector.disconnect(info)


def test_what_was_written_to_an_nbd_export_is_there_when_it_is_attached_again(
    connector: BlockingConnector, image: Path, mount_point: Path
) -> None:
    with nbd_server(image) as port:
        write_detach_and_read_again(connector, nbd(port), mount_point)


def test_what_was_written_to_an_iscsi_lun_is_there_when_it_is_attached_again(
    connector: BlockingConnector, image: Path, mount_point: Path
) -> None:
    with iscsi_target(image) as target:
        write_detach_and_read_again(connector, iscsi(target), mount_point)


def test_a_target_with_chap_wants_the_right_secret(connector: BlockingConnector, image: Path, tmp_path: Path) -> None:
    with iscsi_target(image, chap=True) as target:
        wrong = iscsi(target, authUsername=USER, authPassword="not-the-secret")
        with pytest.raises(AuthenticationError) as error:
            connector.connect(wrong)
        assert "not-the-secret" not in str(error.value)
        assert left_of(tmp_path) == []
        right = iscsi(target, authUsername=USER, authPassword=PASSWORD)
        connector.connect(right)
        (pid,) = daemons_of(tmp_path)
        assert PASSWORD not in Path(f"/proc/{pid}/cmdline").read_text()
        assert PASSWORD not in Path(f"/proc/{pid}/environ").read_text()
        texts = [file.read_text() for file in (tmp_path / "state").rglob("*") if file.suffix in (".json", ".log")]
        assert texts
        assert not [text for text in texts if PASSWORD in text]
        connector.disconnect(right)


def test_the_portals_are_tried_in_their_order(connector: BlockingConnector, image: Path) -> None:
    with iscsi_target(image) as target:
        silent = f"127.0.0.1:{free_port()}"
        info = iscsi(target, targetPortals=[silent, target.portal], targetIqns=[target.iqn] * 2, targetLuns=[1, 1])
        assert connector.connect(info).device.startswith("/dev/loop")
        connector.disconnect(info)


def test_a_server_that_is_not_there_is_an_error_that_says_so(connector: BlockingConnector) -> None:
    nobody = IscsiTarget(f"127.0.0.1:{free_port()}")
    for info in (nbd(free_port()), nbd(1, host="", socket="/nowhere/nbd"), iscsi(nobody)):
        with pytest.raises(UnreachableError, match="cannot open"):
            connector.connect(info)


def test_an_export_or_lun_that_is_not_there_is_an_error_that_says_so(connector: BlockingConnector, image: Path) -> None:
    with nbd_server(image) as port, pytest.raises(ConnectorError, match="not present"):
        connector.connect(nbd(port, export="another"))
    with iscsi_target(image) as target, pytest.raises(ConnectorError, match="cannot open LUN 7"):
        connector.connect(iscsi(target, targetLun=7))


def test_a_volume_to_read_cannot_be_written(connector: BlockingConnector, image: Path) -> None:
    with nbd_server(image) as port:
        info = nbd(port, accessMode="ro")
        attachment = connector.connect(info)
        assert run("blockdev", "--getro", attachment.path).strip() == "1"
        connector.disconnect(info)


def test_the_device_outlives_the_process_that_asked_for_it(
    connector: BlockingConnector, image: Path, tmp_path: Path
) -> None:
    program = (
        "import sys, json; from pathlib import Path; from quartermaster.connectors.blocking import open_connector\n"
        "connector = open_connector(directory=Path(sys.argv[1]), clients={'NBD': 'userspace'})\n"
        "print(connector.connect(json.loads(sys.argv[2])).path)"
    )
    with nbd_server(image) as port:
        text = f'{{"driverVolumeType":"NBD","data":{{"host":"127.0.0.1","port":{port},"export":"disk"}}}}'
        path = run(sys.executable, "-c", program, tmp_path / "state", text).strip()
        Path(path).write_bytes(b"written later" + b"\0" * 499)
        assert connector.disconnect({"driverVolumeType": "NBD", "data": nbd(port, volumeId=None)["data"]}) == path
    assert image.read_bytes()[:13] == b"written later"


def test_after_the_daemon_was_killed_the_volume_is_connected_anew(
    connector: BlockingConnector, image: Path, tmp_path: Path
) -> None:
    with nbd_server(image) as port:
        info = nbd(port)
        attachment = connector.connect(info)
        (pid,) = daemons_of(tmp_path)
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not daemons_of(tmp_path))
        with pytest.raises(NotAttachedError):
            connector.device_path(attachment.volume_id)
        again = connector.connect(info)
        with open(again.path, "rb") as device:
            assert device.read(512) == b"\0" * 512
        assert daemons_of(tmp_path) != [pid]
        connector.disconnect(info)


@pytest.mark.slow
def test_a_server_that_hangs_holds_up_the_attach_only_until_its_deadline(
    connector: BlockingConnector, image: Path, tmp_path: Path
) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        started = time.monotonic()
        port = silent.getsockname()[1]
        with pytest.raises(
            UnreachableError, match=rf"cannot open nbd://127\.0\.0\.1:{port}/disk: .* did not answer in time"
        ):
            connector.connect(nbd(port), timeout_s=0.5)
    assert time.monotonic() - started < 5
    assert left_of(tmp_path) == []
