"""`qm doctor`: what is wrong with this host, as a table, as JSON and as an exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from quartermaster.cli.doctoring import judge_agent
from quartermaster.host.daemons.base import DaemonState, DaemonStatus
from quartermaster.operators.settings import HostSettings
from tests.cli.conftest import Cli


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    monkeypatch.setenv("QM_STATE_DIR", str(tmp_path / "state"))


def test_a_host_before_anything_is_set_up(cli: Cli) -> None:
    result = cli("doctor")
    assert result.out.splitlines()[0].split() == ["CHECK", "RESULT", "FOUND", "FIX"]
    assert "this host was not brought up" in result.out
    assert "programs of local" in result.out


def test_a_store_that_is_away_fails_the_check(cli: Cli) -> None:
    result = cli("doctor", "--store", f"sqlite:{'/nowhere/at/all.db'}", "-o", "json")
    checks = {check["what"]: check for check in json.loads(result.out)["checks"]}
    assert result.code == 1
    assert checks["store"]["state"] == "fail"
    assert "the directory /nowhere/at does not exist" in checks["store"]["message"]
    assert "what: store" not in cli("doctor", "--no-store", "-o", "yaml").out


def test_a_storage_system_that_nobody_has_is_wrong_use(cli: Cli) -> None:
    result = cli("doctor", "--type", "nonsense")
    assert result.code == 2
    assert 'cannot use the storage system "nonsense"' in result.err


@pytest.mark.parametrize(("store", "command"), [("", "qm up"), ("sqlite:/x/store.db", "qm up --single")])
def test_the_command_that_starts_the_agent_is_the_one_that_this_host_accepts(store: str, command: str) -> None:
    settings = HostSettings("h1", store=store)
    dead = judge_agent(DaemonStatus("agent", DaemonState.DEAD), settings)
    assert dead.fix.startswith(f"`{command}` starts it again")
    running = judge_agent(DaemonStatus("agent", DaemonState.RUNNING), settings)
    assert running.fix == f"have `{command}` run at boot, for example by a line `@reboot {command}` of cron"


def test_settings_that_cannot_be_read_are_told(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "host.json").write_text("{")
    result = cli("doctor", "--no-store", "-o", "json")
    assert result.code == 1
    assert any(check["what"] == "settings" for check in json.loads(result.out)["checks"])
