"""What people get wrong, through the real program: one clear error each, a code that is not 0, and no traceback."""

import os
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from quartermaster.testing.servers import KubernetesAccess
from tests.cli.conftest import SEED, Program, Result, node

pytestmark = pytest.mark.slow  # a process each

Write = Callable[[str, str], Path]

BROKEN = "apiVersion: coreos.com/v1\nkind: StorageNode\nmetadata:\n  name: a\nspec:\n  type: [glusterfs\n"
TWICE = node("a") + "---\n" + node("a")


def refusal(result: Result, code: int = 1) -> str:
    """The one message; it stands on standard error, and there is nothing else."""
    assert result.code == code
    assert result.out == ""
    assert "Traceback" not in result.err
    messages = [line for line in result.err.splitlines() if line.startswith("error: ")]
    assert len(messages) == 1
    return result.err


@pytest.mark.parametrize(
    ("text", "place", "sentence"),
    [
        (node("a", devices="/dev/vdb"), "a.yaml:7: spec.devices", "must be a list"),
        (node("a", devicez="[/dev/vdb]"), "a.yaml:7: spec.devicez", 'did you mean "devices"?'),
        (node("a", glusterfs="{zone: -3}"), "a.yaml:7: spec.glusterfs.zone", "at least 1"),
        (node("a", storageNetwork="{ips: [10.0.0.256]}"), "a.yaml:7: spec.storageNetwork.ips[0]", "IP address"),
        (node("a").replace("kind: StorageNode\n", ""), "a.yaml:1: kind", "is missing"),
        (node("a").replace("StorageNode", "StorageNod"), "a.yaml:2: kind", 'did you mean "StorageNode"?'),
        (BROKEN, "a.yaml:6", ""),
        (TWICE, "a.yaml:11: metadata.name", "a.yaml:1"),
    ],
    ids=["type", "unknown field", "negative zone", "IP", "no kind", "unknown kind", "broken YAML", "twice"],
)
def test_a_mistake_in_a_file_is_told_with_line_and_path(
    qm: Program, write: Write, text: str, place: str, sentence: str
) -> None:
    said = refusal(qm("apply", "-f", write("a.yaml", text).name))
    assert place in said
    assert sentence in said


def test_all_mistakes_of_one_file_come_in_one_reply(qm: Program, write: Write) -> None:
    text = node("a", glusterfs="{zone: -3}", storageNetwork="{ips: [x]}") + "---\n" + node("B") + "---\n" + BROKEN
    said = refusal(qm("apply", "-f", write("a.yaml", text).name))
    assert "4 mistakes" in said
    for place in ("a.yaml:7", "a.yaml:8", "a.yaml:13", "a.yaml:22"):
        assert place in said


@pytest.mark.parametrize("size_mb", [4, 50])
def test_a_document_that_is_far_too_large_is_refused_at_once(qm: Program, tmp_path: Path, size_mb: int) -> None:
    path = tmp_path / "large.yaml"
    path.write_text(node("a", directories="[/srv/" + "x" * size_mb * 1_000_000 + "]"))
    said = refusal(qm("apply", "-f", path))
    assert "large" in said
    assert "MiB" in said
    assert len(said) < 500


def test_a_file_that_is_not_there(qm: Program) -> None:
    assert 'cannot read "nothing.yaml": there is no such file' in refusal(qm("apply", "-f", "nothing.yaml"), 2)


@pytest.mark.parametrize(
    ("url", "command", "sentence"),
    [
        ("sqlite:/nowhere/at/all.db", ("get", "sn"), "the directory /nowhere/at does not exist"),
        ("sqlite:/nowhere/at/all.db", ("apply", "-f", str(SEED)), "the directory /nowhere/at does not exist"),
        ("sqlite:/nowhere/at/all.db", ("watch", "sn"), "the directory /nowhere/at does not exist"),
        ("sqlite:", ("delete", "sn", "a"), "no path is given"),
        ("postgres://a", ("describe", "sn"), "it is neither memory:, sqlite:PATH"),
    ],
)
def test_a_store_that_is_not_there(qm: Program, url: str, command: tuple[str, ...], sentence: str) -> None:
    result = qm("--store", url, *command)
    assert result.code in (1, 2)
    assert sentence in refusal(result, result.code)


@pytest.mark.slow
@pytest.mark.parametrize("url", ["etcd://127.0.0.1:1", "kubernetes:lab"])
def test_a_server_that_nobody_runs_is_told_within_ten_seconds(qm: Program, write: Write, url: str) -> None:
    config = (
        "apiVersion: v1\nkind: Config\ncurrent-context: lab\n"
        "clusters: [{name: lab, cluster: {server: 'https://127.0.0.1:1'}}]\n"
        "users: [{name: lab, user: {token: abc}}]\ncontexts: [{name: lab, context: {cluster: lab, user: lab}}]\n"
    )
    qm.environment["KUBECONFIG"] = str(write("kubeconfig", config))
    said = refusal(qm("--store", url, "get", "sn"))
    assert "127.0.0.1:1" in said


def test_a_kubeconfig_without_the_context(qm: Program, write: Write) -> None:
    config = "apiVersion: v1\nkind: Config\ncontexts: [{name: lab, context: {cluster: lab, user: lab}}]\n"
    qm.environment["KUBECONFIG"] = str(write("kubeconfig", config))
    said = refusal(qm("--store", "kubernetes:production", "get", "sn"), 2)
    assert 'cannot find context "production"' in said
    assert "lab" in said


def test_an_expired_token(qm: Program, write: Write, kubernetes_server: KubernetesAccess) -> None:
    config = (
        "apiVersion: v1\nkind: Config\ncurrent-context: lab\n"
        f"clusters: [{{name: lab, cluster: {{server: '{kubernetes_server.url}', "
        f"certificate-authority: '{kubernetes_server.tls.authority}'}}}}]\n"
        "users: [{name: lab, user: {token: long-expired}}]\n"
        "contexts: [{name: lab, context: {cluster: lab, user: lab}}]\n"
    )
    qm.environment["KUBECONFIG"] = str(write("kubeconfig", config))
    said = refusal(qm("get", "sn"))
    assert "long-expired" not in said
    assert "token" in said or "who" in said


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, of eight megabytes."""
    directory = tmp_path / "disk"
    directory.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(directory)], check=True)
    yield directory
    subprocess.run(["umount", str(directory)], check=True)


def test_a_read_only_embedded_file_can_be_read_and_not_written(qm: Program, small_disk: Path) -> None:
    url = f"sqlite:{small_disk}/store.db"
    assert qm("--store", url, "apply", "-f", SEED).code == 0
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    assert qm("--store", url, "get", "sn", "-o", "name").out == "storagenode.coreos.com/storage-node1\n"
    said = refusal(qm("--store", url, "delete", "sn", "storage-node1"))
    assert "read-only" in said


def test_a_full_disk(qm: Program, small_disk: Path) -> None:
    url = f"sqlite:{small_disk}/store.db"
    assert qm("--store", url, "apply", "-f", SEED).code == 0
    free = os.statvfs(small_disk)
    (small_disk / "ballast").write_bytes(b"x" * (free.f_bavail * free.f_frsize))
    nodes = "---\n".join(node(f"n{number}", directories=f"[/srv/{'x' * 200}]") for number in range(200))
    result = qm("--store", url, "apply", "-f", "-", stdin=nodes)
    assert result.code == 1
    assert "the disk is full" in result.err
    assert "not written: " in result.err
    assert "Traceback" not in result.err
    (small_disk / "ballast").unlink()
    assert qm("--store", url, "apply", "-f", "-", stdin=nodes).code == 0


def test_a_corrupt_embedded_file(qm: Program, tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    url = f"sqlite:{path}"
    assert qm("--store", url, "apply", "-f", SEED).code == 0
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    data = bytearray(path.read_bytes())
    data[4096:] = b"\xff" * (len(data) - 4096)
    path.write_bytes(data)
    said = refusal(qm("--store", url, "get", "sn"))
    assert "the file is corrupt" in said
    assert ".recover" in said


def test_a_file_that_is_no_database(qm: Program, write: Write) -> None:
    said = refusal(qm("--store", f"sqlite:{write('notes.db', 'just some notes ' * 100)}", "get", "sn"))
    assert "the file is not a database" in said


def test_a_mistake_of_our_own_is_called_one_and_shows_its_traceback_on_request(qm: Program, write: Write) -> None:
    lines = [
        "import quartermaster.stores as stores",
        "async def open_store(*_, **__): raise KeyError('x')",
        "stores.open_store = open_store",
    ]
    broken = write("sitecustomize.py", "\n".join(lines))
    qm.environment["PYTHONPATH"] = str(broken.parent)
    result = qm("get", "sn")
    assert result.code == 70
    assert "this is a mistake in quartermaster: KeyError" in result.err
    assert "Traceback" not in result.err
    assert "Traceback" in qm("-v", "get", "sn").err
