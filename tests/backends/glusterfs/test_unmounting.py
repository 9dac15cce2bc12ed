"""What of the mounts on a host is a volume of GlusterFS: nothing else is unmounted."""

from __future__ import annotations

from pathlib import Path

import pytest

from quartermaster.backends.glusterfs.volumes import GlusterVolumes
from quartermaster.host.fake import FakeMachine, fake_host
from quartermaster.host.mountinfo import Mount
from quartermaster.resources import PersistentVolume, from_document

VOLUME = from_document(
    PersistentVolume,
    {
        "metadata": {"name": "pvc-1"},
        "spec": {
            "csi": {
                "driver": "glusterfs.quartermaster.coreos.com",
                "volumeHandle": "pvc-1",
                "volumeAttributes": {"type": "glusterfs", "volume": "pvc-1", "servers": "10.0.0.1,10.0.0.2"},
            }
        },
    },
)


@pytest.mark.parametrize(
    ("source", "type_", "root", "ours"),
    [
        ("10.0.0.1:/pvc-1", "fuse.glusterfs", "/", True),
        ("10.0.0.9:/pvc-1", "fuse.glusterfs", "/", True),  # by whichever server
        ("10.0.0.1:/pvc-1", "fuse.glusterfs", "/photos", False),  # a directory of it that somebody has bound
        ("10.0.0.1:/pvc-1/photos", "fuse.glusterfs", "/", False),
        ("10.0.0.1:/pvc-2", "fuse.glusterfs", "/", False),
        ("10.0.0.1:/other-pvc-1", "fuse.glusterfs", "/", False),
        ("10.0.0.1:/pvc-1", "nfs4", "/", False),
        ("foreign", "tmpfs", "/", False),
    ],
)
async def test_only_the_volume_itself_is_unmounted(source: str, type_: str, root: str, ours: bool) -> None:
    machine = FakeMachine()
    present = Mount(90, 1, "0:90", root, "/mnt/data", ("rw",), (), type_, source, ("rw",))
    machine.mounts.append(present)
    driver, host, target = GlusterVolumes(), fake_host(machine), Path("/mnt/data")
    assert driver.is_mounted(host, VOLUME, target) is ours
    assert await driver.unmount(host, VOLUME, target) is ours
    assert (present in machine.mounts) is not ours
