"""Files: whole or not there, and private."""

import os
import stat
from pathlib import Path

import pytest

from quartermaster.host.files import private_file, remove, write_whole


def test_a_file_is_replaced_in_one_step_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    file = tmp_path / "record"
    write_whole(file, b"old")
    with file.open("rb") as reader:
        write_whole(file, b"new")
        assert reader.read() == b"old", "who reads the old one reads all of it"
    assert file.read_bytes() == b"new"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["record"]


def test_a_failed_write_leaves_the_old_file_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "record"
    write_whole(file, b"old")

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_whole(file, b"new")
    assert [(entry.name, entry.read_bytes()) for entry in tmp_path.iterdir()] == [("record", b"old")]


def test_a_secret_lies_in_a_private_file_for_as_long_as_it_is_needed(tmp_path: Path) -> None:
    with private_file(tmp_path, b"canary") as path:
        assert path.read_bytes() == b"canary"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == []


def test_what_is_gone_may_be_removed_again(tmp_path: Path) -> None:
    (tmp_path / "record").touch()
    remove(tmp_path / "record")
    remove(tmp_path / "record")
    assert list(tmp_path.iterdir()) == []
