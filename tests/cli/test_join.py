"""`qm token`, `qm join` and `qm leave`: mistakes are sentences; and the whole way, with real etcd and processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import quartermaster
from quartermaster.backends.etcd.tool import DAEMON as ETCD
from quartermaster.orchestration.joining.access import StoreAccess, write_access
from quartermaster.orchestration.joining.authority import Authority
from quartermaster.orchestration.joining.certificates import HostCertificates
from quartermaster.orchestration.joining.tokens import Token, encode
from quartermaster.testing.servers import find_program
from tests.cli.conftest import Cli, Result

TIMEOUT_S = 150
VERSION_OF_AGENT = "jsonpath={.status.agentVersion}"
TOKEN = encode(Token(id="a", secret="b", fingerprint="c", addresses=("127.0.0.1:1",)))


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("QM_STATE_DIR", str(tmp_path / "state"))
    return tmp_path / "state"


def test_a_token_that_is_damaged_is_told_so(cli: Cli, state: Path) -> None:
    result = cli("join", "qm1-nonsense", "--name", "h2", "--address", "127.0.0.1")
    assert result.code == 1
    assert "cannot read the token: it is damaged or was not copied whole" in result.err
    assert cli("join", "-", "--name", "h2", "--address", "127.0.0.1", stdin="oops\n").code == 1


@pytest.mark.parametrize("verb", [("up",), ("up", "--single"), ("join", TOKEN)])
@pytest.mark.parametrize("address", ["300.1.1.1", "h2.example", "0.0.0.0", "224.0.0.1"])
def test_what_is_no_address_of_a_host_is_refused_at_once(
    cli: Cli, state: Path, verb: tuple[str, ...], address: str
) -> None:
    result = cli(*verb, "--name", "h2", "--address", address)
    assert result.code == 2
    assert f'cannot use "{address}": it is not the IP address of a host' in result.err
    assert list(state.iterdir()) == []


@pytest.mark.parametrize("verb", [("up",), ("up", "--single"), ("join", TOKEN)])
@pytest.mark.parametrize("address", ["203.0.113.77", "2001:db8::7"])
def test_an_address_that_this_host_does_not_have_is_refused_before_anything_is_done(
    cli: Cli, state: Path, verb: tuple[str, ...], address: str
) -> None:
    result = cli(*verb, "--name", "h2", "--address", "127.0.0.1", "--address", address)
    assert result.code == 2
    assert f"cannot use {address}: this host does not have that address; it has " in result.err
    assert list(state.iterdir()) == []


def test_a_host_of_a_cluster_takes_no_token_of_another_nor_nonsense(cli: Cli, state: Path) -> None:
    write_access(StoreAccess(directory=str(state), host="h2", namespace="default", joined="x", endpoints=()))
    HostCertificates(state).write_authority(Authority.create(now=0.0).certificate)
    assert "cannot read the token" in cli("join", "nonsense", "--name", "h2").err
    result = cli("join", TOKEN, "--name", "h2")
    assert result.code == 2
    assert "this host belongs to another cluster than the token is for, as h2" in result.err


def test_tokens_need_a_cluster_of_our_own(cli: Cli, state: Path) -> None:
    result = cli("--store", "memory:", "token", "create")
    assert result.code == 1
    assert "this store was not made by `qm up`" in result.err
    listed = cli("--store", "memory:", "token", "list")
    assert (listed.code, listed.out) == (0, "")
    assert "There are no tokens" in listed.err
    assert cli("--store", "memory:", "token", "list", "-o", "json").out == '{\n    "tokens": []\n}\n'
    unknown = cli("--store", "memory:", "token", "revoke", "nobody")
    assert unknown.code == 1
    assert 'cannot revoke the token "nobody": there is none of that id' in unknown.err


def test_a_token_cannot_be_born_expired(cli: Cli, state: Path) -> None:
    assert cli("--store", "memory:", "token", "create", "--expires", "0s").code == 2


def test_a_host_of_no_cluster_cannot_leave_one(cli: Cli, state: Path) -> None:
    result = cli("leave")
    assert result.code == 2
    assert "this host belongs to no cluster" in result.err


class Hosts:
    """`qm` on hosts that have a home, a state directory and a loopback address each."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._network = f"127.{os.getpid() % 200 + 20}.{os.getpid() // 200 % 200 + 30}"
        self.names: list[str] = []

    def __call__(self, host: str, *arguments: str, stdin: str = "", program: Path | None = None) -> Result:
        home = self._directory / host
        if host not in self.names:
            self.names.append(host)
        for part in ("home", "devices"):
            (home / part).mkdir(parents=True, exist_ok=True)
        path = f"{find_program('etcd').parent}{os.pathsep}{os.environ['PATH']}"
        environment = {
            "PATH": path,
            "HOME": str(home / "home"),
            "QM_STATE_DIR": str(home / "state"),
            "QM_DEVICE_ROOT": str(home / "devices"),
            "NO_COLOR": "1",
            **({"PYTHONPATH": str(program)} if program is not None else {}),
        }
        command = [str(Path(sys.executable).parent / "qm"), *arguments]
        done = subprocess.run(
            command, input=stdin, capture_output=True, text=True, timeout=TIMEOUT_S, env=environment, check=False
        )
        return Result(done.returncode, done.stdout, done.stderr)

    def state(self, host: str) -> Path:
        return self._directory / host / "state"

    def daemon(self, host: str, name: str) -> tuple[int, str]:
        """Its process: the number, and when it started."""
        record = json.loads((self.state(host) / "daemons" / "records" / f"{name}.json").read_text())
        return record["pid"], Path(f"/proc/{record['pid']}/stat").read_text().rpartition(")")[2].split()[19]

    def at(self, host: str) -> list[str]:
        number = host.removeprefix("h")
        return ["--name", host, "--address", f"{self._network}.{number}", "--address", "127.0.0.1", "--debounce", "0"]


@pytest.fixture
def etcd_command_line(tmp_path: Path) -> Iterator[Hosts]:
    hosts = Hosts(tmp_path)
    yield hosts
    for name in hosts.names:
        hosts(name, "down", "--force")


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_the_whole_way_from_up_to_leave(etcd_command_line: Hosts) -> None:
    qm = etcd_command_line
    up = qm("h1", "up", *qm.at("h1"))
    assert up.code == 0, up.err
    token = qm("h1", "token", "create", "--expires", "10m").out.strip()
    joined = qm("h2", "join", *qm.at("h2"), "-", stdin=token)
    assert joined.out == "h2 is up\n", joined.err
    assert [line.split()[:2] for line in qm("h2", "get", "hosts").lines[1:]] == [["h1", "Ready"], ["h2", "Ready"]]

    stolen = qm("h3", "join", "--name", "h3", "--address", qm.at("h2")[3], qm("h1", "token", "create").out.strip())
    assert stolen.code == 1
    assert f"cannot join as h3: the address {qm.at('h2')[3]} is that of host h2" in stolen.err
    again = qm("h3", "join", *qm.at("h3"), token)
    assert again.code == 1
    assert "host h2 has used it, and it works once; make a new one with `qm token create`" in again.err
    denied = qm("h2", "token", "create")
    assert denied.code == 1
    assert "run it on a host that carries a member of etcd" in denied.err
    declared = '{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "mine"}}'
    refused = qm("h2", "apply", "-f", "-", stdin=declared)
    assert refused.code == 1
    assert "declare things on a host that carries a member of etcd, once `qm up` was run there" in refused.err
    assert qm("h1", "apply", "-f", "-", stdin=declared).code == 0
    assert "used by h2" in qm("h1", "token", "list").out

    needed = qm("h1", "down")
    assert needed.code == 1
    assert "0 of 1 members would be left, and it takes 1: h2 would be without a store" in needed.err
    assert "--force stops it all the same" in needed.err

    stays = qm("h1", "leave", "--timeout", "1s")
    assert stays.code == 1
    assert "its member of etcd, etcd-1, has to move to another host" in stays.err
    assert qm("h1", "leave", "--cancel").out == "h1 stays\n"

    remains = [qm.state("h2") / "backups" / "store-1.qmb", qm.state("h2") / "etcd" / "removed" / "etcd-9"]
    for path in remains:
        path.mkdir(parents=True)
    left = qm("h2", "leave")
    assert left.out == "h2 has left\n", left.err
    assert not any(path.exists() for path in remains)
    assert not list((qm.state("h2") / "tls").glob("*.key"))
    last = qm("h1", "leave")
    assert last.code == 1
    assert "it is the last host, and the store is on it" in last.err


def become_version(program: Path, version: str) -> None:
    """The program as it is, but for its version: what an upgrade in its place leaves."""
    package = Path(quartermaster.__file__).parent
    (program / "quartermaster").mkdir(parents=True, exist_ok=True)
    for part in package.iterdir():
        link = program / "quartermaster" / part.name
        if part.name not in ("__init__.py", "__pycache__") and not link.exists():
            link.symlink_to(part)
    (program / "quartermaster" / "__init__.py").write_text(f'__version__ = "{version}"\n')


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_an_upgraded_agent_takes_the_place_of_the_old_one_and_no_daemon_is_started_again(
    etcd_command_line: Hosts, tmp_path: Path
) -> None:
    qm, program = etcd_command_line, tmp_path / "program"
    become_version(program, "7.1.0")
    up = qm("h1", "up", *qm.at("h1"), program=program)
    assert up.code == 0, up.err
    assert qm("h1", "get", "host", "h1", "-o", VERSION_OF_AGENT).out == "7.1.0"
    etcd, agent = qm.daemon("h1", ETCD), qm.daemon("h1", "agent")
    assert qm("h1", "up", program=program).code == 0
    assert qm.daemon("h1", "agent") == agent
    become_version(program, "7.2.0-next")
    upgraded = qm("h1", "up", program=program)
    assert upgraded.code == 0, upgraded.err
    assert qm.daemon("h1", "agent") != agent
    assert qm("h1", "get", "host", "h1", "-o", VERSION_OF_AGENT).out == "7.2.0-next"
    assert qm.daemon("h1", ETCD) == etcd


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_host_alone_becomes_the_first_of_a_cluster(etcd_command_line: Hosts) -> None:
    qm = etcd_command_line
    alone = qm("h1", "up", "--single", *qm.at("h1"))
    assert alone.code == 0, alone.err
    uid = qm("h1", "get", "sn", "-o", "jsonpath={.items[*].metadata.uid}").out
    assert uid
    moved = qm("h1", "store", "migrate")
    assert moved.code == 0, moved.err
    assert "migrated to etcds://" in moved.out
    assert qm("h1", "get", "sn", "-o", "jsonpath={.items[*].metadata.uid}").out == uid
    assert qm("h1", "get", "hosts").lines[1].split()[:2] == ["h1", "Ready"]
    joined = qm("h2", "join", *qm.at("h2"), "-", stdin=qm("h1", "token", "create").out)
    assert joined.out == "h2 is up\n", joined.err
