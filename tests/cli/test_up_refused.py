"""What is wrong with what a host is told: all of it at once, before anything is stored."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.cli.conftest import Cli, Program
from tests.cli.test_join import TOKEN
from tests.cli.test_up import fine, single, state

__all__ = ["single", "state"]


@pytest.fixture
def place(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a host keeps its settings. Made after the variables of `cli`, which clears others."""
    monkeypatch.setenv("QM_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return tmp_path / "state"


@pytest.mark.parametrize("verb", [("up",), ("up", "--single"), ("join", TOKEN), ("agent",)])
def test_all_mistakes_are_told_at_once_and_nothing_is_stored(cli: Cli, place: Path, verb: tuple[str, ...]) -> None:
    options = ["--name", "H_1", "--label", "bad label=x", "--label", "a=b c", "--directory", "/"]
    result = cli(*verb, *options, "--device", "/dev/nope", "--device", "sdb", "--device", __file__)
    assert result.code == 2
    told = result.err.splitlines()
    assert told[0] == "error: cannot bring up H_1: 7 mistakes"
    begins = ("--name: must", "--label bad label: the key", "--label a: the value", "--device: must be an absolute")
    ends = ("--directory: must", "--device: there is no /dev/nope on this host", f"--device: {__file__} is not a disk")
    for begin in (*begins, *ends):
        assert any(line.startswith(f"  {begin}") for line in told), (begin, told)
    assert not place.exists() or list(place.iterdir()) == []


def test_a_name_is_short_enough_for_a_label(cli: Cli, place: Path) -> None:
    result = cli("up", "--single", "--name", "a" * 64)
    assert result.code == 2
    assert "--name: must be at most 63 characters, has 64" in result.err


def test_what_was_stored_wrong_is_told_with_its_file(cli: Cli, place: Path) -> None:
    place.mkdir()
    (place / "host.json").write_text('{"name": "h1", "labels": {"bad label": "x"}}')
    result = cli("up")
    assert result.code == 2
    assert f"what was given before is in {place}/host.json: mend it there" in result.err


@pytest.mark.slow
def test_what_a_node_says_already_is_not_offered_otherwise(single: Program, state: Path, tmp_path: Path) -> None:
    fine(single("up", "--single", "--name", "h1", "--directory", "first"))
    fine(single("up", "--single", "--directory", "first"))
    settings = (state / "host.json").read_text()
    assert json.loads(settings)["wishes"]["directories"] == [str(tmp_path / "first")]
    result = single("up", "--single", "--directory", "second")
    assert result.code == 2
    assert f"cannot offer {tmp_path}/second: the StorageNode h1 says what this host offers" in result.err
    assert "`qm edit storagenode h1` changes that" in result.err
    assert (state / "host.json").read_text() == settings
