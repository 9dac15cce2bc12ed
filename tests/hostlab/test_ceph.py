"""RBD and CephFS between the kernel's clients and a Ceph cluster inside the guest."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from quartermaster.connectors import Connector, open_connector
from tests.connectors.ceph import FILES, USER, Ceph, ceph_cluster
from tests.hostlab.programs import STATE, load, read, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

DEVICES = Path("/sys/bus/rbd/devices")


@pytest.fixture
def ceph() -> Iterator[Ceph]:
    load("rbd", "ceph")
    with ceph_cluster(STATE / "ceph", files=True) as cluster:
        yield cluster
    shutil.rmtree(STATE / "ceph")


@pytest.fixture
async def connector(tmp_path: Path) -> AsyncIterator[Connector]:
    clients = {"RBD": "kernel", "CEPHFS": "kernel"}
    async with open_connector(directory=tmp_path / "state", clients=clients, timeout_s=120) as found:
        yield found


def volume(ceph: Ceph, name: str, identity: str) -> dict[str, Any]:
    data = {
        "name": name,
        "hosts": [ceph.address],
        "ports": [str(ceph.port)],
        "authUsername": USER,
        "clusterName": "ceph",
        "keyring": f"[client.{USER}]\n\tkey = {ceph.key}\n",
        "volumeId": identity,
    }
    return {"driverVolumeType": "rbd", "data": data}


def mapped() -> list[str]:
    return sorted(f"{read(path / 'pool')}/{read(path / 'name')}" for path in DEVICES.iterdir())


async def test_the_image_that_is_named_goes_and_no_other_of_its_name(connector: Connector, ceph: Ceph) -> None:
    ceph("osd", "pool", "create", "others", "4")
    ceph.tool("rbd", "pool", "init", "others")
    ceph.tool("rbd", "create", "--size", "32", "--image-feature", "layering", "volumes/disk")
    ceph.tool("rbd", "create", "--size", "32", "--image-feature", "layering", "others/disk")
    one, other = volume(ceph, "volumes/disk", "volume-1"), volume(ceph, "others/disk", "volume-2")
    first = await connector.connect(one)
    await connector.connect(other)
    assert mapped() == ["others/disk", "volumes/disk"]
    run("mkfs.ext4", "-q", first.path)
    run("mount", first.path, "/media")
    Path("/media/letter").write_text("kept")
    run("umount", "/media")
    await connector.disconnect(other)
    assert mapped() == ["volumes/disk"]
    await connector.disconnect(one)
    assert mapped() == []
    again = await connector.connect(one)
    run("mount", again.path, "/media")
    assert Path("/media/letter").read_text() == "kept"
    run("umount", "/media")
    await connector.disconnect(one)
    assert mapped() == []


@pytest.mark.deep
async def test_a_file_system_is_mounted_once_for_its_volumes(connector: Connector, ceph: Ceph) -> None:
    data = {"monitors": [ceph.monitor], "user": USER, "secret": ceph.key, "fileSystem": FILES}
    first, second = ({"driverVolumeType": "cephfs", "data": data | {"volumeId": name}} for name in ("one", "two"))
    path = (await connector.connect(first)).path
    assert (await connector.connect(second)).path == path
    assert len(mounts()) == 1
    (Path(path) / "letter").write_text("kept")
    await connector.disconnect(first)
    assert (Path(path) / "letter").read_text() == "kept"
    await connector.disconnect(second)
    assert mounts() == []


def mounts() -> list[str]:
    return [line for line in Path("/proc/mounts").read_text().splitlines() if line.split()[2] == "ceph"]
