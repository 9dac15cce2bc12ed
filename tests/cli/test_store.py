"""`qm store`: a backup is whole and private, a restore acts on nothing, a migration keeps what objects are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.conftest import ROOT, Cli, node


@pytest.fixture
def filled(cli: Cli, tmp_path: Path) -> Path:
    """An embedded store with two nodes, and a backup of it."""
    cli("--store", "sqlite:old.db", "apply", "-f", "-", stdin=node("alpha") + "---\n" + node("beta"))
    result = cli("--store", "sqlite:old.db", "store", "backup", "b.qmb")
    assert result.code == 0, result.err
    assert "2 objects written to b.qmb" in result.out
    return tmp_path / "b.qmb"


def uids(cli: Cli, store: str) -> str:
    template = "{range .items[*]}{.metadata.name}={.metadata.uid} {end}"
    return cli("--store", store, "get", "sn", "-o", f"jsonpath={template}").out


def test_a_backup_that_is_there_is_not_overwritten_unless_that_is_said(cli: Cli, filled: Path) -> None:
    before = filled.read_bytes()
    result = cli("--store", "sqlite:old.db", "store", "backup", "b.qmb")
    assert result.code == 1
    assert "cannot write the backup to b.qmb: it is there already; choose another name, or say --replace" in result.err
    assert filled.read_bytes() == before
    assert cli("--store", "sqlite:old.db", "delete", "sn", "beta").code == 0
    result = cli("--store", "sqlite:old.db", "store", "backup", "b.qmb", "--replace")
    assert (result.code, "1 object written" in result.out) == (0, True)


def test_a_backup_is_readable_by_its_owner_alone_and_names_the_store(filled: Path) -> None:
    assert filled.stat().st_mode & 0o777 == 0o600
    assert b"sqlite:old.db" in filled.read_bytes().splitlines()[0]


def test_a_restore_brings_the_same_objects_back_and_nothing_acts_on_them(cli: Cli, filled: Path) -> None:
    result = cli("--store", "sqlite:new.db", "store", "restore", "b.qmb")
    assert result.code == 0, result.err
    assert "2 objects written" in result.out
    assert "nothing acts on it yet: look, then say `qm resume`" in result.err
    assert uids(cli, "sqlite:new.db") == uids(cli, "sqlite:old.db")
    settings = cli("--store", "sqlite:new.db", "get", "cm", "quartermaster-settings", "-o", "yaml").out
    assert "quartermaster.coreos.com/observe-only: restored from b.qmb" in settings


def test_a_store_with_other_objects_is_replaced_only_when_told(cli: Cli, filled: Path) -> None:
    cli("--store", "sqlite:new.db", "apply", "-f", "-", stdin=node("gamma"))
    refused = cli("--store", "sqlite:new.db", "store", "restore", "b.qmb")
    assert refused.code == 1
    assert "it holds 1 objects, such as gamma; --replace puts the backup in their place" in refused.err
    assert cli("--store", "sqlite:new.db", "store", "restore", "b.qmb", "--replace").code == 0
    assert "gamma" not in uids(cli, "sqlite:new.db")


@pytest.mark.parametrize(
    "damage", [lambda text: text[:-40], lambda text: text.replace(b"alpha", b"alphb"), lambda _: b""]
)
def test_a_damaged_backup_is_refused(cli: Cli, filled: Path, damage: object) -> None:
    filled.write_bytes(damage(filled.read_bytes()))  # type: ignore[operator]
    result = cli("--store", "sqlite:new.db", "store", "restore", "b.qmb")
    assert result.code == 1
    assert "cannot read the backup b.qmb" in result.err
    assert "nothing was written" in result.err


def test_a_file_that_is_not_there_is_a_mistake_of_the_command_line(cli: Cli) -> None:
    assert cli("store", "restore", "nowhere.qmb").code == 2
    assert cli("store", "backup", "nowhere/at/all.qmb").code == 1


def test_a_migration_keeps_identities_and_the_old_store_is_at_rest(cli: Cli, filled: Path) -> None:
    result = cli("--store", "sqlite:old.db", "store", "migrate", "sqlite:new.db")
    assert result.code == 0, result.err
    assert "2 objects written" in result.out
    assert uids(cli, "sqlite:new.db") == uids(cli, "sqlite:old.db")
    settings = cli("--store", "sqlite:old.db", "get", "cm", "quartermaster-settings", "-o", "yaml").out
    assert "observe-only: migrated to sqlite:" in settings
    again = cli("--store", "sqlite:old.db", "store", "migrate", "sqlite:new.db")
    assert "0 objects written, 2 unchanged" in again.out


def test_a_host_that_is_not_alone_cannot_be_migrated_without_a_url(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("QM_STATE_DIR", str(tmp_path / "state"))
    result = cli("store", "migrate")
    assert result.code == 2
    assert "it was not brought up with `qm up --single`" in result.err


def test_every_command_of_the_guide_is_there(cli: Cli) -> None:
    text = (ROOT / "docs" / "guide" / "store.md").read_text()
    groups = {"store", "token"}
    named = {tuple(found.split()) for found in re.findall(r"(?:^\$ |`)qm ([a-z]+(?: [a-z]+)?)", text, re.MULTILINE)}
    words = {names[: 2 if names[0] in groups else 1] for names in named}
    assert {("store", "backup"), ("store", "restore"), ("store", "migrate"), ("token", "create"), ("leave",)} <= words
    for command in sorted(words):
        assert cli(*command, "--help").code == 0, command
