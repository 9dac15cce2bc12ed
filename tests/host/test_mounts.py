"""Mounts: a pure parser, and real file systems in a namespace of their own."""

import subprocess
from pathlib import Path

import pytest

from quartermaster.host.commands import Command, Result
from quartermaster.host.mountinfo import Mount, covering, mounted_at, mounts_at, parse_mountinfo
from quartermaster.host.mounts import HostMounts, MountState, Propagation, canonical, refuse_difference
from quartermaster.support.errors import (
    CommandDeadlineError,
    CommandError,
    HostError,
    MountBusyError,
    MountConflictError,
)
from tests.host.namespaces import Namespace, fuse_server, loop_device

TABLE = r"""22 1 8:2 / / rw,relatime shared:1 - ext4 /dev/sda2 rw,errors=remount-ro
30 22 0:25 / /run rw,nosuid - tmpfs tmpfs rw,size=10%
41 22 8:17 / /mnt/a\040b rw,noatime shared:7 master:3 - xfs /dev/sdb1 rw,attr2
42 22 0:50 / /mnt/net ro,relatime - nfs4 srv:/exp\134ort ro,vers=4.2
43 41 0:51 /@home /mnt/a\040b/\303\244 rw - btrfs /dev/sdc rw
44 22 0:52 / /mnt/net rw - fuse.glusterfs h1:/vol rw
45 22 0:53 / /mnt/bare rw -  none rw
"""


def test_a_line_is_read_with_its_escapes_and_optional_fields() -> None:
    table = parse_mountinfo(TABLE)
    assert table[2] == Mount(
        41,
        22,
        "8:17",
        "/",
        "/mnt/a b",
        ("rw", "noatime"),
        ("shared:7", "master:3"),
        "xfs",
        "/dev/sdb1",
        ("rw", "attr2"),
    )
    assert table[4].target == "/mnt/a b/ä"
    assert table[3].source == "srv:/exp\\ort"
    assert table[3].read_only
    assert (table[6].type, table[6].source) == ("", "none")


def test_what_is_mounted_on_a_target_is_told_from_the_bottom_up_also_after_a_move() -> None:
    lines = ["30 22 0:30 / /t rw - tmpfs moved rw", "31 22 0:31 / /t rw - tmpfs first rw"]
    assert [mount.source for mount in mounts_at(parse_mountinfo("\n".join(lines)), "/t")] == ["moved", "first"]
    lines[0] = lines[0].replace("30 22", "30 31")
    assert [mount.source for mount in mounts_at(parse_mountinfo("\n".join(lines)), "/t")] == ["first", "moved"]
    own = parse_mountinfo("1 1 0:2 / / rw - rootfs none rw")
    assert mounts_at(own, "/") == own


@pytest.mark.parametrize("gone", [True, False])
async def test_a_lazy_unmount_is_done_when_the_mount_is_gone(tmp_path: Path, gone: bool) -> None:
    """The kernel takes it away at once; umount may wait for minutes, until the kernel has given a dead server up."""
    mountinfo = tmp_path / "mountinfo"
    mountinfo.write_text(TABLE)

    class Hanging:
        async def run(self, command: Command) -> Result:
            if gone:
                mountinfo.write_text(TABLE.splitlines()[0] + "\n")
            raise CommandDeadlineError(f"cannot {command.verb}: it takes too long")

    mounts = HostMounts(Hanging(), mountinfo=mountinfo)
    if gone:
        assert await mounts.unmount("/mnt/net", lazy=True)
    else:
        with pytest.raises(CommandDeadlineError):
            await mounts.unmount("/mnt/net", lazy=True)


def test_the_last_mount_on_a_target_is_the_one_that_is_seen() -> None:
    table = parse_mountinfo(TABLE)
    top = mounted_at(table, "/mnt/net")
    assert top is not None
    assert top.source == "h1:/vol"
    assert mounted_at(table, "/mnt") is None


@pytest.mark.parametrize(
    ("path", "target"), [("/mnt/a b/x/y", "/mnt/a b"), ("/etc/passwd", "/"), ("/mnt/net", "/mnt/net"), ("/", "/")]
)
def test_a_path_lies_in_the_nearest_mount_above_it(path: str, target: str) -> None:
    found = covering(parse_mountinfo(TABLE), path)
    assert found is not None
    assert found.target == target


@pytest.mark.parametrize(
    ("source", "type", "options", "number", "complaint"),
    [
        ("/dev/sdb1", "xfs", ("noatime",), "", ""),
        ("/dev/disk/by-id/x", "xfs", (), "8:17", ""),
        ("/dev/sdb1", "xfs", ("ro",), "", "it is mounted there already, but read-write"),
        ("/dev/sdb1", "xfs", ("nodev",), "", "but without nodev"),
        ("/dev/sdz", "xfs", (), "8:99", "/dev/sdb1 \\(xfs\\) is mounted there"),
        ("/dev/sdb1", "ext4", (), "", "/dev/sdb1 \\(xfs\\) is mounted there"),
    ],
)
def test_what_is_mounted_is_compared_with_what_is_wanted(
    source: str, type: str, options: tuple[str, ...], number: str, complaint: str
) -> None:
    present = parse_mountinfo(TABLE)[2]
    if not complaint:
        refuse_difference(present, source, type, options, number=number)
        return
    with pytest.raises(MountConflictError, match=complaint):
        refuse_difference(present, source, type, options, number=number)


def test_a_fuse_mount_is_known_by_the_name_that_mount_has_for_it() -> None:
    refuse_difference(parse_mountinfo(TABLE)[5], "h1:/vol", "glusterfs", (), number="")
    with pytest.raises(MountConflictError):
        refuse_difference(parse_mountinfo(TABLE)[5], "h1:/vol", "quobyte", (), number="")


def test_a_target_is_resolved_but_what_is_mounted_is_not_looked_at(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert canonical((), f"{tmp_path}/link/x/") == f"{tmp_path}/real/x"
    assert canonical((), f"{tmp_path}/link") == f"{tmp_path}/real"


@pytest.mark.netns
async def test_mounting_twice_is_as_once_and_unmounting_too(namespace: Namespace, tmp_path: Path) -> None:
    mounts, target = namespace.mounts, str(tmp_path / "m")
    with loop_device(tmp_path, size=32 << 20) as device:
        subprocess.run(["mkfs.ext4", "-q", device], check=True)
        assert await mounts.mount(device, target, type="ext4", options=("noatime",)) is True
        assert await mounts.mount(device, target, type="ext4", options=("noatime",)) is False
        with pytest.raises(MountConflictError, match="read-write"):
            await mounts.mount(device, target, type="ext4", options=("ro",))
        await mounts.remount(target, options=("ro",))
        assert await mounts.mount(device, target, type="ext4", options=("ro",)) is False
        with pytest.raises(MountConflictError, match=f"{device} \\(ext4\\) is mounted there"):
            await mounts.mount("tmpfs", target, type="tmpfs")
        assert (await mounts.health(target)).state is MountState.HEALTHY
        assert await mounts.unmount(target, remove=True) is True
        assert await mounts.unmount(target, remove=True) is False
        assert not Path(target).exists()
        assert (await mounts.health(target)).state is MountState.ABSENT
        with pytest.raises(HostError, match="nothing is mounted there"):
            await mounts.remount(target, options=("ro",))


@pytest.mark.netns
async def test_btrfs_is_recognised_although_its_number_is_not_that_of_its_disk(
    namespace: Namespace, tmp_path: Path
) -> None:
    with loop_device(tmp_path, size=128 << 20) as device:
        subprocess.run(["mkfs.btrfs", "-q", device], check=True)
        (tmp_path / "vdb").symlink_to(device)
        target = str(tmp_path / "m")
        assert await namespace.mounts.mount(str(tmp_path / "vdb"), target, type="btrfs") is True
        assert await namespace.mounts.mount(str(tmp_path / "vdb"), target, type="btrfs") is False
        assert await namespace.mounts.mount(device, target, type="btrfs") is False
        await namespace.mounts.unmount(target)


@pytest.mark.netns
async def test_a_protected_target_cannot_be_written_to_while_nothing_is_mounted(
    namespace: Namespace, tmp_path: Path
) -> None:
    target = tmp_path / "brick"
    await namespace.mounts.mount("tmpfs", str(target), type="tmpfs", protect=True)
    try:
        namespace.seen(target / "inside").touch()
        with pytest.raises(PermissionError):
            (target / "beneath").touch()
    finally:
        await namespace.mounts.unmount(str(target), remove=True)
    assert not target.exists()


@pytest.mark.netns
async def test_files_are_not_hidden_beneath_a_mount(namespace: Namespace, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full/letter").touch()
    with pytest.raises(MountConflictError, match="the directory is not empty"):
        await namespace.mounts.mount("tmpfs", str(tmp_path / "full"), type="tmpfs")
    with pytest.raises(MountConflictError, match="is not a directory"):
        await namespace.mounts.mount("tmpfs", str(tmp_path / "full/letter"), type="tmpfs")


@pytest.mark.netns
async def test_a_mount_in_use_stays_unless_a_lazy_unmount_is_asked_for(namespace: Namespace, tmp_path: Path) -> None:
    target = str(tmp_path / "m")
    await namespace.mounts.mount("tmpfs", target, type="tmpfs")
    namespace.seen(f"{target}/file").touch()
    with namespace.seen(f"{target}/file").open():
        with pytest.raises(MountBusyError, match="tmpfs is in use"):
            await namespace.mounts.unmount(target)
        assert await namespace.mounts.unmount(target, lazy=True) is True


@pytest.mark.netns
async def test_a_bind_mount_is_recognised_by_what_it_shows(namespace: Namespace, tmp_path: Path) -> None:
    mounts, target = namespace.mounts, str(tmp_path / "t")
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    assert await mounts.bind(str(tmp_path / "a"), target, read_only=True) is True
    assert await mounts.bind(str(tmp_path / "a"), target, read_only=True) is False
    assert "ro" in (mounted_at(mounts.table(), target) or pytest.fail("not mounted")).options
    with pytest.raises(MountConflictError, match="cannot bind"):
        await mounts.bind(str(tmp_path / "b"), target)
    assert await mounts.bind(str(tmp_path / "a"), target, propagation=Propagation.SHARED) is True, "now writable"
    assert await mounts.bind(str(tmp_path / "a"), target, propagation=Propagation.SHARED) is False
    await mounts.unmount(target, remove=True)


@pytest.mark.netns
async def test_a_file_is_bound_to_a_file(namespace: Namespace, tmp_path: Path) -> None:
    (tmp_path / "image").write_text("raw")
    await namespace.mounts.bind(str(tmp_path / "image"), str(tmp_path / "block"))
    assert namespace.seen(tmp_path / "block").read_text() == "raw"
    await namespace.mounts.unmount(str(tmp_path / "block"), remove=True)
    assert not (tmp_path / "block").exists()


@pytest.mark.netns
async def test_a_failing_mount_says_what_mount_said(namespace: Namespace, tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"cannot mount /dev/zero on .*: mount exited with 32: .*not a block device"):
        await namespace.mounts.mount("/dev/zero", str(tmp_path / "m"), type="ext4")


@pytest.mark.netns
async def test_a_mount_whose_daemon_died_is_corrupted_and_one_that_is_silent_is_unresponsive(
    namespace: Namespace, tmp_path: Path
) -> None:
    target = tmp_path / "fuse"
    with fuse_server(namespace, target) as server:
        health = await namespace.mounts.health(str(target), timeout_s=0.3)
        assert health.state is MountState.UNRESPONSIVE
        server.die()
        health = await namespace.mounts.health(str(target))
        assert (health.state, health.reason) == (MountState.CORRUPTED, "ENOTCONN")
        assert await namespace.mounts.unmount(str(target), lazy=True) is True


@pytest.mark.netns
async def test_a_file_system_that_has_given_up_its_disk_is_corrupted_although_it_still_answers(
    namespace: Namespace, tmp_path: Path
) -> None:
    target = str(tmp_path / "m")
    with loop_device(tmp_path) as device:
        subprocess.run(["mkfs.xfs", "-q", device], check=True)
        await namespace.mounts.mount(device, target, type="xfs")
        assert (await namespace.mounts.health(target)).state is MountState.HEALTHY
        namespace.run("xfs_io", "-x", "-c", "shutdown", target)
        health = await namespace.mounts.health(target)
        assert (health.state, health.reason) == (MountState.CORRUPTED, "EIO")
        await namespace.mounts.unmount(target)


async def test_a_disk_that_this_process_may_not_open_says_nothing_about_its_mount(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class InAContainer:
        async def run(self, command: Command) -> Result:
            refused = command.argv[0] == "dd"
            text = b"dd: failed to open '/dev/sda2': Operation not permitted" if refused else b""
            return Result(1 if refused else 0, b"", text)

    monkeypatch.setattr("quartermaster.host.mounts._device_number", lambda _source: "8:2")
    table = tmp_path / "mountinfo"
    table.write_text(TABLE)
    assert (await HostMounts(InAContainer(), mountinfo=table).health("/")).state is MountState.HEALTHY
