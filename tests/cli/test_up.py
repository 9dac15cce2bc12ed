"""`qm up --single` and its siblings, as people run them: whole commands, a process that stays, and nothing else."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from quartermaster.orchestration.joining.access import StoreAccess, write_access
from tests.cli.conftest import Cli, Program, Result, node

PATIENCE_S = 30.0
CLAIM = """apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec:
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 1Gi}}
"""


@pytest.fixture
def state(environment: dict[str, str], tmp_path: Path) -> Path:
    environment["QM_STATE_DIR"] = str(tmp_path / "state")
    return tmp_path / "state"


@pytest.fixture
def single(qm: Program, state: Path) -> Iterator[Program]:
    """A `qm` on a host of its own; what it started is stopped."""
    yield qm
    if (state / "host.json").exists():
        qm("down")


def until(holds: object, what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():  # type: ignore[operator]
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def phase(qm: Program) -> str:
    return qm("get", "pvc", "data", "-o", "jsonpath={.status.phase}").out


def agent_pid(state: Path) -> int:
    return int(json.loads((state / "daemons" / "records" / "agent.json").read_text())["pid"])


def fine(result: Result) -> Result:
    assert result.code == 0, result.err
    return result


@pytest.mark.slow
def test_from_nothing_to_a_directory_for_a_claim(single: Program, state: Path) -> None:
    up = fine(single("up", "--single"))
    assert up.out.endswith("is up\n")
    assert "saved as the context single" in up.err
    fine(single("apply", "-f", "-", stdin=CLAIM))
    until(lambda: phase(single) == "Bound", "the claim is not bound")
    volume = json.loads(single("get", "pv", "-o", "json").out)["items"][0]
    directory = Path(volume["spec"]["local"]["path"])
    assert directory.is_dir()
    assert directory.is_relative_to(state / "volumes")
    fine(single("delete", "pvc", "data"))
    until(lambda: not directory.exists(), "the directory of the deleted claim is still there")


@pytest.mark.slow
def test_it_needs_no_rights(single: Program) -> None:
    single.command = ["unshare", "--user", *single.command]
    fine(single("up", "--single"))
    fine(single("apply", "-f", "-", stdin=CLAIM))
    until(lambda: phase(single) == "Bound", "the claim is not bound")


@pytest.mark.parametrize("option", [("--device", "/dev/vdb"), ("--all-devices",)])
@pytest.mark.parametrize("verb", [("up", "--single"), ("up",), ("join", "qm1-token"), ("agent",)])
def test_disks_take_root(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, verb: tuple[str, ...], option: tuple[str, ...]
) -> None:
    monkeypatch.setenv("QM_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    result = cli(*verb, *option)
    assert result.code == 2
    assert f"cannot use {option[0]}: disks are formatted and mounted by root, and this is not root" in result.err
    assert "offer a directory with --directory" in result.err
    assert not (tmp_path / "state").exists()


@pytest.mark.slow
def test_up_again_changes_nothing_and_starts_what_was_stopped(single: Program, state: Path) -> None:
    fine(single("up", "--single"))
    first = agent_pid(state)
    fine(single("up", "--single"))
    assert agent_pid(state) == first
    assert fine(single("down")).out == "agent stopped\n"
    assert fine(single("down")).out == ""
    assert single("get", "storagenodes", "-o", "name").out.startswith("storagenode.coreos.com/")
    fine(single("up", "--single"))
    assert agent_pid(state) != first


@pytest.mark.slow
def test_other_settings_start_the_agent_anew(single: Program, state: Path) -> None:
    fine(single("up", "--single"))
    first = agent_pid(state)
    fine(single("up", "--single", "--label", "rack=7"))
    assert agent_pid(state) != first
    host = json.loads(single("get", "hosts", "-o", "json").out)["items"][0]
    assert host["metadata"]["labels"]["rack"] == "7"


@pytest.mark.slow
def test_what_was_declared_already_is_left_as_it_is(single: Program, tmp_path: Path) -> None:
    fine(single("apply", "-f", "-", stdin=node("mine", type="local", directories="[/srv]")))
    fine(single("up", "--single"))
    assert single("get", "storagenodes", "-o", "name").lines == ["storagenode.coreos.com/mine"]


@pytest.mark.slow
def test_an_agent_that_belongs_to_no_cluster_says_what_to_do(qm: Program, state: Path) -> None:
    result = qm("agent", "--name", "h1")
    assert result.code == 2
    assert "cannot start the agent of h1: it belongs to no cluster; `qm up` makes one" in result.err


@pytest.mark.slow
def test_down_where_nothing_was_brought_up_says_so(qm: Program, state: Path) -> None:
    result = qm("down")
    assert result.code == 2
    assert "this host was never brought up" in result.err


@pytest.mark.slow
def test_a_host_that_is_alone_does_not_become_the_first_of_a_cluster_unasked(qm: Program, state: Path) -> None:
    state.mkdir()
    (state / "host.json").write_text('{"name": "h1", "store": "sqlite:/somewhere/store.db", "leads": true}')
    result = qm("up")
    assert result.code == 2
    assert "this host is alone, on sqlite:/somewhere/store.db already" in result.err
    assert "qm store migrate" in result.err


@pytest.mark.parametrize("words", [("up",), ("up", "--single"), ("agent",)])
def test_a_host_that_is_known_is_not_called_otherwise(qm: Program, state: Path, words: tuple[str, ...]) -> None:
    alone = "--single" in words
    state.mkdir()
    settings = '{"name": "h3"%s}' % (', "store": "sqlite:/somewhere/store.db", "leads": true' if alone else "")
    (state / "host.json").write_text(settings)
    if not alone:
        write_access(StoreAccess(directory=str(state), host="h3", endpoints=("192.0.2.1:2379",)))
    result = qm(*words, "--name", "h1")
    assert result.code == 2
    assert "cannot call this host h1: it is known as h3, and what is on it belongs to that name" in result.err
    assert (state / "host.json").read_text() == settings


def test_settings_that_cannot_be_read_name_their_file(qm: Program, state: Path) -> None:
    state.mkdir()
    (state / "host.json").write_text("{")
    result = qm("agent")
    assert result.code == 1
    assert f"cannot read {state}/host.json" in result.err


@pytest.mark.slow
def test_a_label_is_taken_back_and_those_of_others_stay(single: Program) -> None:
    fine(single("up", "--single", "--label", "rack=7", "--label", "row=2"))
    fine(single("up", "--single", "--label", "rack-"))
    host = json.loads(single("get", "hosts", "-o", "json").out)["items"][0]
    assert "rack" not in host["metadata"]["labels"]
    assert host["metadata"]["labels"]["row"] == "2"


@pytest.mark.parametrize("label", ["rack", "=7", "-"])
def test_a_label_is_a_key_and_a_value(qm: Program, state: Path, label: str) -> None:
    result = qm("up", "--single", "--label", label)
    assert result.code == 2
    assert "is not KEY=VALUE" in result.err


@pytest.mark.slow
def test_where_to_listen_is_a_host_and_a_port(qm: Program, state: Path) -> None:
    result = qm("agent", "--store", "memory:", "--listen", "nowhere")
    assert result.code == 2
    assert 'cannot listen on "nowhere"' in result.err
