"""Directories of volumes: made once, measured, removed as a whole and never past what is mounted in them."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from quartermaster.host.commands import HostCommands
from quartermaster.host.directories import HostDirectories
from quartermaster.host.fake import FakeDirectories, FakeMachine, Faults
from quartermaster.host.fake.faults import Moment
from quartermaster.support.errors import HostError

REAL = HostDirectories(HostCommands())


async def test_a_directory_is_made_once_with_its_mode_whatever_the_umask(tmp_path: Path) -> None:
    path = tmp_path / "volume"
    old = os.umask(0o077)
    try:
        assert await REAL.ensure(str(path))
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.stat().st_mode) == 0o770
    path.chmod(0o700)
    assert not await REAL.ensure(str(path))
    assert stat.S_IMODE(path.stat().st_mode) == 0o700


async def test_a_missing_parent_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(HostError, match=r"cannot make the directory .*: No such file"):
        await REAL.ensure(str(tmp_path / "not-mounted" / "volume"))


async def test_a_file_of_that_name_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "volume").write_text("mine")
    with pytest.raises(HostError, match="something else has that name"):
        await REAL.ensure(str(tmp_path / "volume"))


async def test_what_is_removed_is_gone_with_all_that_is_in_it_and_nothing_else(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("kept")
    path = tmp_path / "volume"
    (path / "deep").mkdir(parents=True)
    (path / "deep" / "file").write_text("x")
    (path / "link").symlink_to(outside)
    assert await REAL.remove(str(path))
    assert not await REAL.remove(str(path))
    assert sorted(os.listdir(tmp_path)) == ["outside"]
    assert outside.read_text() == "kept"


async def test_a_removal_that_was_cut_off_is_finished(tmp_path: Path) -> None:
    half = tmp_path / ".volume.removing"
    half.mkdir()
    (half / "file").write_text("x")
    assert await REAL.remove(str(tmp_path / "volume"))
    assert os.listdir(tmp_path) == []


async def test_a_directory_made_anew_is_removed_although_the_removal_of_its_forerunner_was_cut_off(
    tmp_path: Path,
) -> None:
    for name in (".volume.removing", "volume"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("x")
    assert await REAL.remove(str(tmp_path / "volume"))
    assert os.listdir(tmp_path) == []


async def test_removals_that_were_cut_off_are_finished_and_nothing_else_is_removed(tmp_path: Path) -> None:
    for name in (".pvc-1.removing", ".other.removing", "pvc-1", ".pvc-2"):
        (tmp_path / name).mkdir()
    assert await REAL.finish_removals(str(tmp_path), "pvc-")
    assert not await REAL.finish_removals(str(tmp_path), "pvc-")
    assert sorted(os.listdir(tmp_path)) == [".other.removing", ".pvc-2", "pvc-1"]


async def test_on_a_modelled_host_a_removal_can_be_cut_off_too() -> None:
    machine = FakeMachine()
    await FakeDirectories(machine).ensure("/srv/pvc-1")
    await FakeDirectories(machine).write("/srv/pvc-1/file", b"x")
    killed = Faults(lambda _, name: Moment.BEFORE if name.startswith("remove") else None)
    with pytest.raises(HostError):
        await FakeDirectories(machine, killed).remove("/srv/pvc-1")
    assert await FakeDirectories(machine).entries("/srv") == (".pvc-1.removing",)
    assert await FakeDirectories(machine).read("/srv/.pvc-1.removing/file") == b"x"
    assert await FakeDirectories(machine).finish_removals("/srv", "pvc-")
    assert (machine.directories, machine.files) == ({}, {})


async def test_two_directories_of_one_file_system_say_so(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    one, other = await REAL.space(str(tmp_path)), await REAL.space(str(tmp_path / "a"))
    assert one.total >= one.available > 0
    assert one.file_system == other.file_system
    with pytest.raises(HostError, match="cannot measure"):
        await REAL.space(str(tmp_path / "nowhere"))


async def test_on_a_modelled_host_a_directory_on_a_disk_is_there_only_while_it_is_mounted() -> None:
    machine = FakeMachine()
    fake = FakeDirectories(machine)
    assert await fake.ensure("/srv/volume")
    assert not await fake.ensure("/srv/volume")
    assert await fake.exists("/srv/volume")
    assert await fake.remove("/srv/volume")
    assert not await fake.exists("/srv/volume")


async def test_an_attribute_that_nobody_set_is_none_and_one_that_cannot_be_read_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await REAL.attribute(str(tmp_path), "user.mark") is None
    assert await REAL.attribute(str(tmp_path / "missing"), "user.mark") is None

    def broken(*_: object, **__: object) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "getxattr", broken)
    with pytest.raises(HostError, match=r"cannot read user.mark of .*: Input/output error"):
        await REAL.attribute(str(tmp_path), "user.mark")


async def test_on_a_modelled_host_attributes_go_with_their_directory() -> None:
    machine = FakeMachine()
    directories = FakeDirectories(machine)
    await directories.ensure("/srv/pvc-1")
    key = next(key for key in machine.directories if key[1] == "/srv/pvc-1")
    machine.attributes[key] = {"user.mark": b"x"}
    assert await directories.attribute("/srv/pvc-1", "user.mark") == b"x"
    assert await directories.attribute("/srv/pvc-1", "user.other") is None
    await directories.remove("/srv/pvc-1")
    assert await directories.attribute("/srv/pvc-1", "user.mark") is None
    assert machine.attributes == {}
