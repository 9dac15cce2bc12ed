"""Who has a device open, as the kernel's files tell it: by whatever name, and a part of it too."""

import os
import stat
from pathlib import Path

import pytest

from quartermaster.connectors.driver import Roots
from quartermaster.connectors.usage import openers_of

pytestmark = pytest.mark.slow  # makes nodes of devices, for which it needs root

DISK, PARTITION, OTHER = (250, 16), (250, 17), (250, 32)


@pytest.fixture
def roots(tmp_path: Path) -> Roots:
    """A disk with a partition, and another one. No driver stands behind their numbers."""
    for name, number in (("vdb", DISK), ("vdb1", PARTITION), ("vdc", OTHER)):
        directory = tmp_path / "sys/class/block" / name
        directory.mkdir(parents=True)
        (directory / "dev").write_text("{}:{}\n".format(*number))
    (tmp_path / "sys/class/block/vdb/vdb1").mkdir()
    (tmp_path / "sys/class/block/vdb/vdb1/partition").write_text("1\n")
    for name in ("dev", "proc"):
        (tmp_path / name).mkdir()
    return Roots(sysfs=tmp_path / "sys", dev=tmp_path / "dev", proc=tmp_path / "proc")


def node(path: Path, number: tuple[int, int]) -> Path:
    os.mknod(path, stat.S_IFBLK | 0o600, os.makedev(*number))
    return path


def opened(roots: Roots, path: Path, *, type: str, pid: int = 42) -> None:
    """A process of a namespace of its own has the path open, on a file system of the type."""
    directory = roots.proc / str(pid)
    for name in ("fd", "fdinfo", "ns"):
        (directory / name).mkdir(parents=True)
    (directory / "comm").write_text("qemu\n")
    (directory / "ns/mnt").symlink_to(f"mnt:[{pid}]")
    (directory / "mountinfo").write_text(f"30 1 0:40 / / rw - {type} {type} rw\n")
    (directory / "fd/3").symlink_to(path)
    (directory / "fdinfo/3").write_text("pos:\t0\nflags:\t0100002\nmnt_id:\t30\n")


def test_whoever_has_the_disk_open_uses_it(roots: Roots) -> None:
    opened(roots, node(roots.dev / "vdb", DISK), type="devtmpfs")
    assert openers_of(str(roots.dev / "vdb"), roots) == ["opened by process 42 (qemu)"]
    assert openers_of(str(roots.dev / "vdc"), roots) == []


def test_whoever_has_a_partition_open_uses_the_disk(roots: Roots) -> None:
    opened(roots, node(roots.dev / "vdb1", PARTITION), type="devtmpfs")
    assert openers_of(str(roots.dev / "vdb"), roots) == ["opened by process 42 (qemu)"]


@pytest.mark.parametrize("type", ["overlay", "tmpfs"])
def test_a_node_of_any_name_in_a_container_leads_to_the_disk(roots: Roots, tmp_path: Path, type: str) -> None:
    opened(roots, node(tmp_path / "data", DISK), type=type)
    assert openers_of(str(roots.dev / "vdb"), roots) == ["opened by process 42 (qemu)"]
    assert openers_of(str(roots.dev / "vdc"), roots) == []


@pytest.mark.parametrize("type", ["nfs4", "fuse.glusterfs", "ceph", "9p"])
def test_a_file_of_a_server_is_not_looked_at(
    roots: Roots, tmp_path: Path, type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(roots, tmp_path / "on-a-dead-server", type=type)
    looked: list[object] = []
    real = os.stat

    def seen(path: object, **rest: object) -> os.stat_result:
        looked.append(path)
        return real(path, **rest)  # type: ignore[call-overload,no-any-return]

    monkeypatch.setattr("quartermaster.connectors.usage.os.stat", seen)
    assert openers_of(str(roots.dev / "vdb"), roots) == []
    assert roots.proc / "42/fd/3" not in looked
