"""Every way to say who we are, over real connections to a real API server."""

import asyncio
import base64
import os
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trustme

from quartermaster.resources.kubernetes.core import Namespace
from quartermaster.stores.kubernetes import KubernetesStore
from quartermaster.stores.kubernetes.connection import in_cluster_connection
from quartermaster.support.errors import ForbiddenError, UnauthorizedError, UnavailableError, UsageError
from quartermaster.testing.servers import KubernetesAccess
from tests.stores.kubernetes.conftest import Opener

V1 = "client.authentication.k8s.io/v1"
V1BETA1 = "client.authentication.k8s.io/v1beta1"
FAR_FUTURE = "2999-01-01T00:00:00Z"
PAST = "2020-01-01T00:00:00Z"


async def works(store: KubernetesStore) -> bool:
    return (await store.get(Namespace, "default")).metadata.name == "default"


def encoded(path: str) -> str:
    return base64.b64encode(Path(path).read_bytes()).decode()


async def test_a_token(open_as: Opener, kubernetes_server: KubernetesAccess) -> None:
    store = await open_as({"token": kubernetes_server.token})
    assert await works(store)
    assert store.url == f"kubernetes:test ({kubernetes_server.url})"


async def test_a_client_certificate_in_files(open_as: Opener, kubernetes_server: KubernetesAccess) -> None:
    tls = kubernetes_server.tls
    assert await works(await open_as({"client-certificate": tls.certificate, "client-key": tls.key}))


async def test_a_client_certificate_as_data_leaves_no_file(
    open_as: Opener, kubernetes_server: KubernetesAccess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "empty"))
    tls = kubernetes_server.tls
    user = {"client-certificate-data": encoded(tls.certificate), "client-key-data": encoded(tls.key)}
    cluster = {"certificate-authority": None, "certificate-authority-data": encoded(tls.authority)}
    assert await works(await open_as(user, **cluster))
    assert not (tmp_path / "empty").exists()
    assert not [name for name in os.listdir("/proc/self/fd") if "certificate" in _target(name)]


def _target(number: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{number}")
    except FileNotFoundError:
        return ""


async def test_a_token_file_is_read_again_after_it_was_rotated(
    open_as: Opener, kubernetes_server: KubernetesAccess, tmp_path: Path
) -> None:
    token_file = tmp_path / "token"
    token_file.write_text("the token of yesterday\n")
    store = await open_as({"tokenFile": "token"})
    with pytest.raises(UnauthorizedError, match=rf"the token in {token_file} is expired or not valid here"):
        await works(store)
    # As a projected volume does it: another file takes the name.
    fresh = tmp_path / "token.new"
    fresh.write_text(f"{kubernetes_server.token}\n")
    fresh.rename(token_file)
    assert await works(store)


async def test_the_service_account_of_a_pod(
    kubernetes_server: KubernetesAccess, tmp_path: Path, opened: list[KubernetesStore]
) -> None:
    (tmp_path / "token").write_text(kubernetes_server.token)
    (tmp_path / "ca.crt").write_bytes(Path(kubernetes_server.tls.authority).read_bytes())
    host, port = kubernetes_server.url.removeprefix("https://").split(":")
    environment = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
    opened.append(store := KubernetesStore(in_cluster_connection(environment, tmp_path)))
    assert await works(store)
    assert store.url == f"kubernetes:in-cluster ({kubernetes_server.url})"


async def test_an_expired_token_is_told_with_the_way_out(open_as: Opener) -> None:
    store = await open_as({"token": "expired-secret"})
    with pytest.raises(UnauthorizedError) as caught:
        await works(store)
    assert 'the credentials of user "me"' in caught.value.hint
    assert "expired or not valid" in caught.value.hint
    assert "expired-secret" not in str(caught.value)


async def test_nobody_is_told_that_there_are_no_credentials(open_as: Opener) -> None:
    store = await open_as({})
    with pytest.raises((UnauthorizedError, ForbiddenError)):
        await works(store)


async def test_an_impersonated_user_has_its_rights_only(open_as: Opener, kubernetes_server: KubernetesAccess) -> None:
    store = await open_as({"token": kubernetes_server.token, "as": "jane", "as-groups": ["visitors"]})
    with pytest.raises(ForbiddenError, match='User "jane"'):
        await store.list(Namespace)


class Plugin:
    """A program that prints, run by run, what `issue` queued; the last one again and again."""

    def __init__(self, directory: Path, version: str) -> None:
        self.directory = directory
        self.version = version
        self.user = {"exec": {"command": "./plugin", "apiVersion": version, "interactiveMode": "Never"}}
        self._count = 0
        program = directory / "plugin"
        program.write_text(
            "#!/bin/sh\n"
            'cd "$(dirname "$0")"; n=$(cat runs 2>/dev/null || echo 0); n=$((n + 1)); echo $n > runs\n'
            'printf %s "$KUBERNETES_EXEC_INFO" > information\n'
            "[ -f answer-$n ] || n=$(ls answer-* | wc -l); cat answer-$n\n"
        )
        program.chmod(program.stat().st_mode | stat.S_IXUSR)

    def issue(self, **status: str) -> None:
        self._count += 1
        content = {"apiVersion": self.version, "kind": "ExecCredential", "status": status}
        (self.directory / f"answer-{self._count}").write_bytes(msgspec.json.encode(content))

    @property
    def runs(self) -> int:
        return int((self.directory / "runs").read_text())


@pytest.mark.parametrize("version", [V1, V1BETA1])
async def test_a_plugin_issues_a_token_that_is_kept(
    open_as: Opener, kubernetes_server: KubernetesAccess, tmp_path: Path, version: str
) -> None:
    plugin = Plugin(tmp_path, version)
    plugin.issue(token=kubernetes_server.token, expirationTimestamp=FAR_FUTURE)
    store = await open_as(plugin.user)
    assert all(await asyncio.gather(*(works(store) for _ in range(5))))
    assert plugin.runs == 1
    assert f'"apiVersion":"{version}"' in (tmp_path / "information").read_text()


async def test_an_expired_credential_is_asked_for_again(
    open_as: Opener, kubernetes_server: KubernetesAccess, tmp_path: Path
) -> None:
    plugin = Plugin(tmp_path, V1)
    plugin.issue(token=kubernetes_server.token, expirationTimestamp=PAST)
    plugin.issue(token=kubernetes_server.token, expirationTimestamp=FAR_FUTURE)
    store = await open_as(plugin.user)
    for _ in range(3):
        assert await works(store)
    assert plugin.runs == 2


async def test_a_refused_credential_is_asked_for_again_at_once(
    open_as: Opener, kubernetes_server: KubernetesAccess, tmp_path: Path
) -> None:
    plugin = Plugin(tmp_path, V1)
    plugin.issue(token="revoked")
    plugin.issue(token=kubernetes_server.token)
    store = await open_as(plugin.user)
    assert all(await asyncio.gather(*(works(store) for _ in range(5))))
    assert plugin.runs == 2


async def test_a_plugin_issues_a_certificate(
    open_as: Opener, kubernetes_server: KubernetesAccess, tmp_path: Path
) -> None:
    plugin = Plugin(tmp_path, V1)
    tls = kubernetes_server.tls
    plugin.issue(clientCertificateData=Path(tls.certificate).read_text(), clientKeyData=Path(tls.key).read_text())
    assert await works(await open_as(plugin.user))


@pytest.mark.parametrize(
    ("script", "complaint"),
    [
        ("echo no network, token=abc >&2; exit 3", "ended with code 3: no network"),
        ("echo very-secret", "not an ExecCredential"),
        ('echo \'{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential"}\'', "neither a token nor"),
        ('echo \'{"apiVersion":"client.authentication.k8s.io/v1beta1","kind":"ExecCredential"}\'', "v1beta1, wanted"),
    ],
)
async def test_a_plugin_that_fails_is_named(open_as: Opener, script: str, complaint: str) -> None:
    user = {"exec": {"command": "sh", "args": ["-c", script], "apiVersion": V1, "interactiveMode": "Never"}}
    store = await open_as(user)
    with pytest.raises(UnauthorizedError, match=complaint) as caught:
        await works(store)
    assert str(caught.value).startswith('cannot get credentials for user "me": sh: ')
    assert "very-secret" not in str(caught.value)


async def test_a_plugin_that_is_not_installed_says_how_to_get_it(open_as: Opener) -> None:
    user = {"exec": {"command": "no-such-plugin", "apiVersion": V1, "installHint": "run: get it"}}
    store = await open_as(user)
    with pytest.raises(UnauthorizedError, match="no-such-plugin: No such file or directory; run: get it"):
        await works(store)


async def test_an_authority_that_did_not_sign_is_told_at_once(open_as: Opener, tmp_path: Path) -> None:
    other = tmp_path / "other.crt"
    trustme.CA().cert_pem.write_to_path(other)
    store = await open_as({"token": "x"}, **{"certificate-authority": str(other)})
    async with asyncio.timeout(5):
        with pytest.raises(
            UnavailableError, match=r"certificate of https://.* is not trusted: .*certificate-authority"
        ):
            await works(store)


async def test_a_watch_does_not_wait_for_an_authority_to_sign(open_as: Opener, tmp_path: Path) -> None:
    other = tmp_path / "other.crt"
    trustme.CA().cert_pem.write_to_path(other)
    store = await open_as({"token": "x"}, **{"certificate-authority": str(other)})
    async with asyncio.timeout(5):
        with pytest.raises(UnavailableError, match="is not trusted"):
            await anext(store.watch(Namespace, since="1"))


async def test_verification_can_be_switched_off(open_as: Opener, kubernetes_server: KubernetesAccess) -> None:
    options = {"certificate-authority": None, "insecure-skip-tls-verify": True}
    assert await works(await open_as({"token": kubernetes_server.token}, **options))


async def test_the_name_in_the_certificate_may_be_another(open_as: Opener, kubernetes_server: KubernetesAccess) -> None:
    user = {"token": kubernetes_server.token}
    assert await works(await open_as(user, **{"tls-server-name": "localhost"}))
    with pytest.raises(UnavailableError, match=r"is not trusted: Hostname mismatch.*tls-server-name"):
        await works(await open_as(user, **{"tls-server-name": "elsewhere.example.com"}))


@pytest.mark.parametrize(
    ("user", "cluster", "complaint"),
    [
        ({}, {"certificate-authority": "kubeconfig"}, 'certificate authority of context "test": it is not a PEM'),
        ({}, {"certificate-authority": "absent"}, "cannot read the certificate authority .*absent: No such file"),
        ({"client-certificate": "kubeconfig", "client-key": "kubeconfig"}, {}, 'certificate and key of user "me"'),
        ({"tokenFile": "absent"}, {}, "cannot read the token .*absent: No such file"),
    ],
)
async def test_a_file_that_is_no_certificate_is_named(
    open_as: Opener, user: dict[str, Any], cluster: dict[str, Any], complaint: str
) -> None:
    store = await open_as(user, **cluster)
    with pytest.raises(UsageError, match=complaint):
        await works(store)


async def test_a_certificate_and_the_key_of_another_do_not_belong_together(
    open_as: Opener, kubernetes_server: KubernetesAccess, tmp_path: Path
) -> None:
    trustme.CA().issue_cert("other.example.com").private_key_pem.write_to_path(tmp_path / "other.key")
    user = {"client-certificate": kubernetes_server.tls.certificate, "client-key": "other.key"}
    store = await open_as(user)
    with pytest.raises(UsageError, match="they do not belong together"):
        await works(store)


@asynccontextmanager
async def connect_proxy() -> AsyncIterator[tuple[int, list[str]]]:
    """A proxy that knows CONNECT only; the heads of the requests it got."""
    heads: list[str] = []

    async def pipe(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await source.read(65536):
                target.write(data)
                await target.drain()
        target.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        heads.append(head)
        host, port = head.split()[1].rsplit(":", 1)
        there_reader, there_writer = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(pipe(reader, there_writer), pipe(there_reader, writer))
        ended.set()

    ended = asyncio.Event()
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], heads
        await asyncio.wait_for(ended.wait(), 10)
    finally:
        server.close()


async def test_a_proxy_leads_to_the_server(
    open_as: Opener, kubernetes_server: KubernetesAccess, opened: list[KubernetesStore]
) -> None:
    async with connect_proxy() as (port, heads):
        proxy = {"proxy-url": f"http://me:pass@127.0.0.1:{port}"}
        store = await open_as({"token": kubernetes_server.token}, **proxy)
        assert await works(store)
        await store.close()
    assert heads[0].startswith(f"CONNECT {kubernetes_server.url.removeprefix('https://')} ")
    assert f"Basic {base64.b64encode(b'me:pass').decode()}" in heads[0]
    assert kubernetes_server.token not in heads[0]


async def test_a_proxy_that_is_not_there_is_named(open_as: Opener) -> None:
    store = await open_as({"token": "x"}, {"patience_s": 0.2}, **{"proxy-url": "http://127.0.0.1:9"})
    with pytest.raises(UnavailableError, match="cannot reach https://"):
        await works(store)
