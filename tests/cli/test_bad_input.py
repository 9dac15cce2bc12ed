"""What people get wrong, through the real program: one clear error each, a code that is not 0, and no traceback."""

import base64
import json
import os
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from quartermaster.support import entropy
from quartermaster.testing.servers import KubernetesAccess
from tests.cli.conftest import SEED, Cli, Program, Result, node

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
        ("etcd://[::1", ("get", "sn"), "cannot use the etcd URL: '[::1' is not an address"),
    ],
)
def test_a_store_that_is_not_there(qm: Program, url: str, command: tuple[str, ...], sentence: str) -> None:
    result = qm("--store", url, *command)
    assert result.code in (1, 2)
    assert sentence in refusal(result, result.code)


@pytest.mark.parametrize(
    "command",
    [("-n", "../x", "get", "sn"), ("get", "sn", "-n", "../x"), ("context", "set", "lab", "--namespace", "../x")],
    ids=["before the command", "after it", "to be saved"],
)
def test_what_is_no_namespace_is_not_looked_up(cli: Cli, command: tuple[str, ...]) -> None:
    result = cli("--store", "memory:", *command)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith('error: cannot use the namespace "../x": its name must be lower-case letters')


@pytest.mark.slow
def test_a_server_that_nobody_runs_is_told_within_ten_seconds(
    qm: Program, running: Callable[..., subprocess.Popen[str]], write: Write
) -> None:
    config = (
        "apiVersion: v1\nkind: Config\ncurrent-context: lab\n"
        "clusters: [{name: lab, cluster: {server: 'https://127.0.0.1:1'}}]\n"
        "users: [{name: lab, user: {token: abc}}]\ncontexts: [{name: lab, context: {cluster: lab, user: lab}}]\n"
    )
    qm.environment["KUBECONFIG"] = str(write("kubeconfig", config))
    for process in [running("--store", url, "get", "sn") for url in ("etcd://127.0.0.1:1", "kubernetes:lab")]:
        out, err = process.communicate(timeout=10 + 5)  # to load the program takes a while where others run
        assert "127.0.0.1:1" in refusal(Result(process.returncode, out, err))


def test_a_kubeconfig_without_the_context(qm: Program, write: Write) -> None:
    config = "apiVersion: v1\nkind: Config\ncontexts: [{name: lab, context: {cluster: lab, user: lab}}]\n"
    qm.environment["KUBECONFIG"] = str(write("kubeconfig", config))
    said = refusal(qm("--store", "kubernetes:production", "get", "sn"), 2)
    assert 'cannot find context "production"' in said
    assert "lab" in said


def kubeconfig_with(token: str, server: KubernetesAccess) -> str:
    return (
        "apiVersion: v1\nkind: Config\ncurrent-context: lab\n"
        f"clusters: [{{name: lab, cluster: {{server: '{server.url}', "
        f"certificate-authority: '{server.tls.authority}'}}}}]\n"
        f"users: [{{name: lab, user: {{token: {token}}}}}]\n"
        "contexts: [{name: lab, context: {cluster: lab, user: lab}}]\n"
    )


def signed_token(server: KubernetesAccess, namespace: str, uid: str, *, expires_at: float) -> str:
    """A service account's token as the API server itself issues it: signed with the key that it checks them with."""
    key = load_pem_private_key(Path(server.tls.authority).with_name("server.key").read_bytes(), None)
    assert isinstance(key, EllipticCurvePrivateKey)
    claims = {
        "iss": "https://kubernetes.quartermaster.test",
        "aud": ["https://kubernetes.quartermaster.test"],
        "sub": f"system:serviceaccount:{namespace}:reader",
        "kubernetes.io": {"namespace": namespace, "serviceaccount": {"name": "reader", "uid": uid}},
        "iat": int(expires_at) - 3600,
        "nbf": int(expires_at) - 3600,
        "exp": int(expires_at),
    }
    parts = [url_safe(json.dumps(part).encode()) for part in ({"alg": "ES256", "typ": "JWT"}, claims)]
    r, s = decode_dss_signature(key.sign(".".join(parts).encode(), ECDSA(SHA256())))
    return ".".join([*parts, url_safe(r.to_bytes(32, "big") + s.to_bytes(32, "big"))])


def url_safe(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


async def test_a_token_that_expired_an_hour_ago(qm: Program, write: Write, kubernetes_server: KubernetesAccess) -> None:
    kubectl = kubernetes_server.kubectl
    namespace = f"cli-{entropy.name_suffix(8)}"
    await kubectl("create", "namespace", namespace)
    await kubectl("-n", namespace, "create", "serviceaccount", "reader")
    uid = await kubectl("-n", namespace, "get", "serviceaccount", "reader", "-o", "jsonpath={.metadata.uid}")

    valid = signed_token(kubernetes_server, namespace, uid, expires_at=time.time() + 1800)
    qm.environment["KUBECONFIG"] = str(write("kubeconfig", kubeconfig_with(valid, kubernetes_server)))
    assert f'User "system:serviceaccount:{namespace}:reader" cannot list' in refusal(qm("get", "sn"))

    expired = signed_token(kubernetes_server, namespace, uid, expires_at=time.time() - 3600)
    path = write("kubeconfig", kubeconfig_with(expired, kubernetes_server))
    said = refusal(qm("get", "sn"))
    assert said == (
        "error: cannot list storagenodes: the server does not accept who we say we are; "
        f'the credentials of user "lab" in {path} are expired or not valid here\n'
    )
    await kubectl("delete", "namespace", namespace, "--wait=false")


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


def test_a_full_disk_under_a_backup(qm: Program, small_disk: Path, tmp_path: Path) -> None:
    url, backup = f"sqlite:{tmp_path}/store.db", small_disk / "b.qmb"
    assert qm("--store", url, "apply", "-f", SEED).code == 0
    free = os.statvfs(small_disk)
    (small_disk / "ballast").write_bytes(b"x" * (free.f_bavail * free.f_frsize))
    said = refusal(qm("--store", url, "store", "backup", str(backup)))
    assert f"cannot use {backup}: No space left on device; make room" in said


def test_a_backup_into_a_directory_that_is_not_there(qm: Program, tmp_path: Path) -> None:
    url, backup = f"sqlite:{tmp_path}/store.db", tmp_path / "nowhere" / "b.qmb"
    assert qm("--store", url, "apply", "-f", SEED).code == 0
    assert f"cannot use {backup}: No such file or directory" in refusal(
        qm("--store", url, "store", "backup", str(backup))
    )


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


@pytest.mark.parametrize(
    "text", ["apiVersion:coreos.com/v1\nkind:StorageNode\n", "apiVersion:coreos.com/v1\nkind: StorageNode\n"]
)
def test_a_colon_without_a_space_is_pointed_out(cli: Cli, text: str) -> None:
    result = cli("apply", "-f", "-", stdin=text)
    assert result.code == 1
    assert "put a space after the colon: apiVersion: coreos.com/v1" in result.err


def test_a_kind_of_others_leads_to_the_list_of_kinds(cli: Cli) -> None:
    result = cli("apply", "-f", "-", stdin="apiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\n")
    assert 'there is no kind "Job" (`qm explain` lists the kinds)' in result.err


@pytest.mark.parametrize("verb", ["apply", "diff"])
def test_a_file_without_its_option_is_understood(cli: Cli, verb: str) -> None:
    result = cli(verb, "--store", "memory:", "x.yaml")
    assert result.code == 2
    assert f"files are given with -f: qm {verb} -f x.yaml" in result.err
