"""A real Ceph cluster: an image by qemu-storage-daemon and a loop device, a file system by ceph-fuse."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quartermaster.connectors import AuthenticationError, ConnectorError, NotAttachedError
from quartermaster.connectors.blocking import BlockingConnector, open_connector
from tests.connectors.ceph import FILES, USER, Ceph, ceph_cluster
from tests.connectors.test_real_userspace import daemons_of, left_of, write_detach_and_read_again

pytestmark = pytest.mark.slow  # starts a cluster
CLIENTS = {"RBD": "userspace", "CEPHFS": "fuse"}


@pytest.fixture(scope="module")
def ceph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ceph]:
    with ceph_cluster(tmp_path_factory.mktemp("ceph") / "cluster", files=True) as cluster:
        yield cluster


@pytest.fixture
def connector(tmp_path: Path) -> Iterator[BlockingConnector]:
    with open_connector(directory=tmp_path / "state", clients=CLIENTS, timeout_s=90) as found:
        yield found
    assert left_of(tmp_path) == []


def rbd(ceph: Ceph, name: str, **data: Any) -> dict[str, Any]:
    """As Cinder writes it."""
    own = {
        "name": name,
        "hosts": [ceph.address],
        "ports": [str(ceph.port)],
        "auth_enabled": True,
        "auth_username": USER,
        "cluster_name": "ceph",
        "keyring": f"[client.{USER}]\n\tkey = {ceph.key}\n",
        "volume_id": name.replace("/", "-"),
    }
    return {"driver_volume_type": "rbd", "data": {**own, **data}}


def test_what_was_written_to_an_image_is_there_when_it_is_attached_again(
    ceph: Ceph, connector: BlockingConnector, tmp_path: Path
) -> None:
    directory = tmp_path / "mounted"
    directory.mkdir()
    write_detach_and_read_again(connector, rbd(ceph, ceph.make_image("written", mib=64)), directory)


def test_the_key_is_in_no_argument_and_no_record(ceph: Ceph, connector: BlockingConnector, tmp_path: Path) -> None:
    info = rbd(ceph, ceph.make_image("secret", mib=8))
    connector.connect(info)
    (pid,) = daemons_of(tmp_path)
    kept = [file.read_text() for file in (tmp_path / "state").rglob("*") if file.suffix in (".json", ".log")]
    said = [Path(f"/proc/{pid}/{name}").read_text() for name in ("cmdline", "environ")]
    assert kept
    assert not [text for text in (*kept, *said) if ceph.key in text]
    connector.disconnect(info)


def test_a_snapshot_is_read_only_and_has_what_the_image_had(ceph: Ceph, connector: BlockingConnector) -> None:
    name = ceph.make_image("seen", mib=8)
    image, snapshot = rbd(ceph, name), rbd(ceph, f"{name}@monday", volume_id="monday")
    write(connector.connect(image).path, b"before")
    connector.disconnect(image)
    ceph.tool("rbd", "snap", "create", f"{name}@monday")
    write(connector.connect(image).path, b"behind")
    path = connector.connect(snapshot).path
    with open(path, "rb") as device:
        assert device.read(6) == b"before"
    assert subprocess.check_output(["blockdev", "--getro", path]).strip() == b"1"
    connector.disconnect(snapshot)
    connector.disconnect(image)


def test_a_wrong_key_and_an_image_that_is_not_there_are_told_apart(ceph: Ceph, connector: BlockingConnector) -> None:
    name = ceph.make_image("guarded", mib=8)
    wrong = rbd(ceph, name, keyring="AQAcqfpqjA8LKRAA7+G291Vy3W5sfGDuaudi2w==")
    with pytest.raises(AuthenticationError, match="cannot open the image volumes/guarded"):
        connector.connect(wrong)
    with pytest.raises(ConnectorError, match="No such file or directory"):
        connector.connect(rbd(ceph, "volumes/nothing"))


def test_a_new_size_is_seen_when_the_image_is_connected_again(ceph: Ceph, connector: BlockingConnector) -> None:
    name = ceph.make_image("growing", mib=8)
    info = rbd(ceph, name)
    connector.connect(info)
    ceph.tool("rbd", "resize", "--size", "16", name)
    with pytest.raises(ConnectorError, match="its client has read the size"):
        connector.extend(info)
    connector.disconnect(info)
    path = connector.connect(info).path
    assert int(subprocess.check_output(["blockdev", "--getsize64", path])) == 16 << 20
    connector.disconnect(info)


def test_what_was_written_to_a_ceph_file_system_is_there_when_it_is_mounted_again(
    ceph: Ceph, connector: BlockingConnector
) -> None:
    data = {"monitors": [ceph.monitor], "user": USER, "secret": ceph.key, "fileSystem": FILES, "volumeId": "files-1"}
    info = {"driverVolumeType": "CEPHFS", "data": data}
    attachment = connector.connect(info)
    assert connector.connect(info) == attachment
    Path(attachment.path, "kept").write_text("what was written")
    assert connector.disconnect(info) == attachment.path
    assert not os.path.ismount(attachment.path)
    with pytest.raises(NotAttachedError):
        connector.device_path("files-1")
    assert Path(connector.connect(info).path, "kept").read_text() == "what was written"
    connector.disconnect(info)


def write(path: str, text: bytes) -> None:
    with open(path, "r+b") as device:
        device.write(text)
        device.flush()
        os.fsync(device.fileno())
