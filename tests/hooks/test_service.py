"""The hook service: what it answers, and what it refuses with which reason."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trustme

from quartermaster.engine.metrics import HOOK_CALLS, Metrics
from quartermaster.hooks import Certificate, OverHTTP, TokenFile, decode_request, group_of
from quartermaster.hooks.protocol import KnownObjects
from quartermaster.hooks.service import HookService, ServiceOptions
from quartermaster.resources import ConfigMap, Node, ObjectMeta, Secret, StorageNode
from quartermaster.resources.codec import to_document
from quartermaster.support import clock
from quartermaster.support.errors import UnavailableError, UsageError

from .metac_client import Answer, Cluster, Metac, post
from .toy import TOY, storage_node

WATCH = group_of(StorageNode)
KINDS = (group_of(ConfigMap), group_of(Node), group_of(Secret))
LOCAL = ServiceOptions(port=0, max_request_bytes=100_000)


@asynccontextmanager
async def service(options: ServiceOptions = LOCAL, **parts: Any) -> AsyncIterator[str]:
    scheme = "https" if parts.get("certificate") else "http"
    async with HookService([TOY], options, **parts).serving() as port:
        yield f"{scheme}://127.0.0.1:{port}"


def metac(url: str, **options: Any) -> Metac:
    return Metac(url, "toy", WATCH, KINDS, **options)


def cluster(devices: int = 2) -> Cluster:
    made = Cluster()
    made.create(to_document(Node(metadata=ObjectMeta(name="a"))))
    made.create(to_document(storage_node(devices=devices)))
    return made


def request(**changes: Any) -> dict[str, Any]:
    made = cluster()
    watch = made.get(WATCH, "a", "default")
    assert watch is not None
    return {**metac("").request(made, watch), **changes}


async def sent(url: str, body: Any, path: str = "/sync/toy", **options: Any) -> Answer:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return await post(url + path, raw, **options)


async def test_a_client_that_speaks_metacs_protocol_drives_a_hook_through_its_whole_life() -> None:
    made = cluster(devices=3)
    async with service() as url:
        driver = metac(url)
        await driver.settle(made)
        node = made.get(WATCH, "a", "default")
        assert node is not None
        assert node["status"]["state"] == "Ready"
        assert [d["data"]["device"] for d in made.all(group_of(ConfigMap))] == ["/dev/vdb", "/dev/vdc", "/dev/vdd"]
        writes = len(made.writes)
        await driver.settle(made)
        assert len(made.writes) == writes
        made.delete(WATCH, "a", "default")
        await driver.settle(made)
    assert [place[2] for place in made.documents] == ["a"]  # the Node
    ending = [write for write in made.writes if write.startswith(("delete ConfigMap", "gone"))]
    assert ending == ["delete ConfigMap a-2", "delete ConfigMap a-1", "delete ConfigMap a-0", "gone StorageNode a"]


async def test_an_answer_has_every_field_of_the_protocol() -> None:
    async with service() as url:
        answer = (await sent(url, request())).json()
    assert list(answer) == [
        *("status", "labels", "annotations", "attachments", "explicitUpdates", "explicitDeletes"),
        *("resyncAfterSeconds", "skipReconcile", "finalized", "irreversible", "events"),
    ]
    assert answer["events"] == [{"type": "Normal", "reason": "Counted", "message": "2 devices"}]
    assert answer["labels"] == {"seen": "yes", "unwanted": None}


def without(document: dict[str, Any], *path: str) -> dict[str, Any]:
    copy: dict[str, Any] = json.loads(json.dumps(document))
    target = copy
    for step in path[:-1]:
        target = target[step]
    del target[path[-1]]
    return copy


def changed(document: dict[str, Any], value: Any, *path: str) -> dict[str, Any]:
    copy: dict[str, Any] = json.loads(json.dumps(document))
    target = copy
    for step in path[:-1]:
        target = target[step]
    target[path[-1]] = value
    return copy


NODES = group_of(Node)
NODE_LABELS = ("attachments", NODES, "a", "metadata", "labels")
WRONG: dict[str, tuple[Any, int, str, str]] = {
    "not JSON": (b"{", 400, "BadJSON", "cannot read the request as JSON"),
    "not UTF-8": (b'{"watch": "\xff", "attachments": {}}', 400, "BadJSON", "cannot read watch as JSON"),
    "empty": (b"", 400, "BadJSON", "cannot read the request as JSON"),
    "deeper than anything is": (b'{"watch": ' + b"[" * 50_000, 400, "BadJSON", "cannot read the request as JSON"),
    "a list": (b"[]", 422, "Invalid", "does not have the form of a hook request"),
    "no watch": (without(request(), "watch"), 422, "Invalid", "watch"),
    "no attachments": (without(request(), "attachments"), 422, "Invalid", "attachments"),
    "watch is null": (request(watch=None), 422, "WrongKind", "watch is no object"),
    "watch of another kind": (changed(request(), "Pod", "watch", "kind"), 422, "WrongKind", "watch is Pod of"),
    "watch of another version": (
        changed(request(), "coreos.com/v9", "watch", "apiVersion"),
        *(422, "WrongKind", "not StorageNode of coreos.com/v1"),
    ),
    "watch that does not fit": (changed(request(), "x", "watch", "spec"), 422, "Invalid", "does not fit its kind"),
    "a declared kind is missing": (
        without(request(), "attachments", NODES),
        *(422, "MissingKind", 'attachments has no "Node.v1"'),
    ),
    "a declared kind is null": (changed(request(), None, "attachments", NODES), 422, "MissingKind", "Node.v1"),
    "an attachment of another kind": (
        changed(request(), "Pod", "attachments", NODES, "a", "kind"),
        *(422, "WrongKind", 'attachments["Node.v1"]["a"] is Pod of v1, not Node of v1'),
    ),
    "an attachment under another name": (
        changed(request(), {"b": request()["attachments"][NODES]["a"]}, "attachments", NODES),
        *(422, "Invalid", "is the object a"),
    ),
    "a watch that was never stored": (without(request(), "watch", "metadata", "uid"), 409, "Stale", "uid is empty"),
    "a watch that is being deleted": (
        changed(request(), "2020-01-01T00:00:00Z", "watch", "metadata", "deletionTimestamp"),
        *(409, "Stale", "call /finalize/toy"),
    ),
    "finalizing what is not being deleted": (request(finalizing=True), 409, "Stale", "is not being deleted"),
    "huge": (request(padding="x" * 100_000), 413, "TooLarge", "larger than 100000 bytes"),
}


@pytest.mark.parametrize("name", WRONG)
async def test_what_is_wrong_with_a_request_is_said_before_the_hook_is_called(name: str) -> None:
    body, status, reason, words = WRONG[name]
    called: list[str] = []
    hook = msgspec.structs.replace(TOY, sync=lambda _: called.append("sync"), finalize=lambda _: called.append("fin"))
    async with HookService([hook], LOCAL).serving() as port:
        answer = await sent(f"http://127.0.0.1:{port}", body)
    assert (answer.status, answer.json()["reason"], answer.json()["code"]) == (status, reason, status)
    assert words in answer.json()["message"]
    assert called == []


def test_what_is_known_is_not_read_again_and_takes_no_more_room_than_it_may() -> None:
    known = KnownObjects(limit=20_000)
    body = json.dumps(request()).encode()
    first, second = (decode_request(TOY, body, now="", known=known) for _ in range(2))
    assert first.attachments.of(Node) == second.attachments.of(Node)
    assert first.attachments.of(Node)[0] is second.attachments.of(Node)[0]
    fresh = decode_request(TOY, json.dumps(changed(request(), {"x": "y"}, *NODE_LABELS)).encode(), now="", known=known)
    assert fresh.attachments.of(Node)[0].metadata.labels == {"x": "y"}
    texts = [b"%05d" % number * 1_000 for number in range(10)]
    for text in texts:
        known.put(text, fresh.watch)
    assert [text for text in texts if known.get(StorageNode, text)] == texts[-4:]


def test_fields_that_no_type_knows_come_through() -> None:
    body = json.dumps(changed(request(), "later", "watch", "spec", "ofNextYear")).encode()
    watch = decode_request(TOY, body, now="").watch
    assert to_document(watch)["spec"]["ofNextYear"] == "later"


async def test_finalize_wants_the_flag_of_the_protocol() -> None:
    async with service() as url:
        answer = await sent(url, request(), "/finalize/toy")
    assert (answer.status, answer.json()["reason"]) == (409, "Stale")


@pytest.mark.parametrize(
    ("method", "path", "status", "reason"),
    [
        ("POST", "/sync/nothing", 404, "NotFound"),
        ("POST", "/finalize/nothing", 404, "NotFound"),
        ("POST", "/elsewhere", 404, "NotFound"),
        ("GET", "/sync/toy", 405, "MethodNotAllowed"),
    ],
)
async def test_other_paths_are_refused_in_the_same_form(method: str, path: str, status: int, reason: str) -> None:
    async with service() as url:
        answer = await sent(url, {}, path, method=method)
    assert (answer.status, answer.json()["reason"]) == (status, reason)


async def test_a_body_that_does_not_say_its_length_is_bounded_too() -> None:
    chunk = b"x" * 10_000
    body = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for _ in range(20)) + b"0\r\n\r\n"
    headers = [("Transfer-Encoding", "chunked"), ("Content-Length", "")]
    async with service() as url:
        answer = await sent(url, body, headers=headers)
        assert (answer.status, answer.json()["reason"]) == (413, "TooLarge")
        compressed = await sent(url, request(), headers=[("Content-Encoding", "gzip")])
    assert (compressed.status, compressed.json()["reason"]) == (415, "UnsupportedMediaType")


@pytest.mark.slow
async def test_a_body_that_does_not_arrive_is_given_up() -> None:
    async with service(ServiceOptions(port=0, body_timeout_s=0.1)) as url:
        answer = await sent(url, b"{", headers=[("Content-Length", "10")])
    assert (answer.status, answer.json()["reason"]) == (408, "Timeout")


async def test_a_body_that_breaks_off_is_the_callers_mistake(caplog: pytest.LogCaptureFixture) -> None:
    metrics = Metrics()
    async with service(metrics=metrics) as url:
        _, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        writer.write(b"POST /sync/toy HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        await writer.drain()
        writer.close()
        async with asyncio.timeout(60):
            while metrics.value(HOOK_CALLS, "toy", "400") < 1:
                await asyncio.sleep(0.01)
        headers = [("Transfer-Encoding", "chunked"), ("Content-Length", "")]
        malformed = await sent(url, b"zz\r\n{}\r\n0\r\n\r\n", headers=headers)
    assert malformed.status == 400
    assert [record.exc_info for record in caplog.records] == [None] * len(caplog.records)
    assert metrics.value(HOOK_CALLS, "toy", "500") == 0


@pytest.mark.slow
async def test_callers_take_no_more_memory_than_was_granted() -> None:
    options = ServiceOptions(port=0, max_request_bytes=1_000_000, body_timeout_s=1.0)
    async with service(options) as url:
        slow = [asyncio.ensure_future(sent(url, b"{", headers=[("Content-Length", "999999")])) for _ in range(4)]
        await asyncio.sleep(0.3)
        busy = await sent(url, request())
        for task in slow:
            assert (await task).status == 408
        again = await sent(url, request())
    assert (busy.status, busy.json()["reason"], busy.headers["retry-after"]) == (503, "Busy", "1")
    assert again.status == 200


async def test_a_hook_that_fails_is_a_mistake_of_ours_and_tells_nothing_of_the_request() -> None:
    def fails(_: Any) -> Any:
        raise RuntimeError("secret of the cluster")

    async with HookService([msgspec.structs.replace(TOY, sync=fails)], LOCAL).serving() as port:
        answer = await sent(f"http://127.0.0.1:{port}", request())
        assert (await sent(f"http://127.0.0.1:{port}", b"", "/healthz", method="GET")).status == 200
    assert (answer.status, answer.json()["reason"]) == (500, "HookFailed")
    assert b"secret" not in answer.body


async def test_the_service_describes_itself_and_counts() -> None:
    metrics = Metrics()
    async with service(metrics=metrics) as url:
        await sent(url, request())
        await sent(url, b"{")
        described = (await sent(url, b"", "/openapi.json", method="GET")).json()
        shown = (await sent(url, b"", "/metrics", method="GET")).body
        ready = await sent(url, b"", "/readyz", method="GET")
    assert described["openapi"] == "3.1.0"
    assert set(described["paths"]) == {"/sync/toy", "/finalize/toy"}
    body = described["paths"]["/sync/toy"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert body["properties"]["attachments"]["required"] == list(KINDS)
    assert (metrics.value(HOOK_CALLS, "toy", "200"), metrics.value(HOOK_CALLS, "toy", "400")) == (1.0, 1.0)
    assert b'quartermaster_hook_duration_seconds_count{hook="toy"} 1.0' in shown
    assert (ready.status, ready.body) == (200, b"ok\n")


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


def certificate_in(directory: Path, authority: trustme.CA) -> Certificate:
    issued = authority.issue_cert("127.0.0.1")
    issued.cert_chain_pems[0].write_to_path(directory / "tls.crt")
    issued.private_key_pem.write_to_path(directory / "tls.key")
    return Certificate(directory / "tls.crt", directory / "tls.key")


@pytest.mark.slow
async def test_over_tls_and_with_a_token_only_who_has_it_is_answered(tmp_path: Path, authority: trustme.CA) -> None:
    (tmp_path / "token").write_text("a-long-secret\n")
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    parts = {"token": TokenFile(tmp_path / "token"), "certificate": certificate_in(tmp_path, authority)}
    async with service(**parts) as url:
        made = cluster()
        await metac(url, token="a-long-secret", trust=trusting).settle(made)
        assert len(made.all(group_of(ConfigMap))) == 2
        for token in ("", "a-long-secre", "a-long-secret2", "b"):
            refused = await sent(url, request(), token=token, trust=trusting)
            assert (refused.status, refused.json()["reason"]) == (401, "Unauthorized")
            assert refused.headers["www-authenticate"] == "Bearer"
        for path in ("/openapi.json", "/metrics"):
            assert (await sent(url, b"", path, method="GET", trust=trusting)).status == 401
        assert (await sent(url, b"", "/healthz", method="GET", trust=trusting)).status == 200
        with pytest.raises(ssl.SSLCertVerificationError):
            await sent(url, request(), trust=ssl.create_default_context())


@pytest.mark.slow
async def test_a_caller_that_meets_the_wrong_kind_of_tls_is_told_so(tmp_path: Path, authority: trustme.CA) -> None:
    asked = decode_request(TOY, json.dumps(request()).encode(), now=clock.timestamp())

    async def said(url: str, trust: ssl.SSLContext | None = None) -> str:
        caller = OverHTTP(url, trust=trust)
        try:
            with pytest.raises(UnavailableError) as refused:
                await caller.call(TOY, asked)
        finally:
            await caller.close()
        return str(refused.value)

    async with service(certificate=certificate_in(tmp_path, authority)) as url:
        untrusted = await said(url, ssl.create_default_context())
        assert "its certificate is not trusted: unable to get local issuer certificate; --ca-file names" in untrusted
        assert "does it want https?" in await said(url.replace("https:", "http:"))
    async with service() as url:
        assert "no TLS: " in await said(url.replace("http:", "https:"), ssl.create_default_context())
    assert "is the hook service running?" in await said(url)


@pytest.mark.slow
async def test_a_renewed_certificate_is_used_and_half_of_one_is_not(tmp_path: Path, authority: trustme.CA) -> None:
    certificate = certificate_in(tmp_path, authority)
    other = trustme.CA()
    (tmp_path / "tls.crt").write_bytes(other.issue_cert("127.0.0.1").cert_chain_pems[0].bytes())
    certificate.renew()  # the key is still that of the old one
    trusting, trusting_other = ssl.create_default_context(), ssl.create_default_context()
    authority.configure_trust(trusting)
    other.configure_trust(trusting_other)
    async with service(certificate=certificate) as url:
        assert (await sent(url, request(), trust=trusting)).status == 200
        certificate_in(tmp_path, other)
        certificate.renew()
        assert (await sent(url, request(), trust=trusting_other)).status == 200


@pytest.mark.parametrize("content", ["", "\n", "two\nlines", "ä"])
def test_a_token_that_cannot_be_one_is_refused_at_the_start(tmp_path: Path, content: str) -> None:
    (tmp_path / "token").write_text(content)
    with pytest.raises(UsageError, match="cannot use the token"):
        TokenFile(tmp_path / "token")


async def test_a_port_that_is_taken_is_said_in_a_sentence() -> None:
    async with service() as url:
        taken = ServiceOptions(port=int(url.rpartition(":")[2]))
        with pytest.raises(UsageError, match="cannot serve hooks on"):
            async with HookService([TOY], taken).serving():
                pass


@pytest.mark.slow
async def test_an_end_waits_for_the_call_that_is_in_hand() -> None:
    body = json.dumps(request()).encode()
    serving = HookService([TOY], LOCAL).serving()
    port = await serving.__aenter__()
    assert (await sent(f"http://127.0.0.1:{port}", body)).status == 200
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST /sync/toy HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    writer.write(head.encode() + body[:100])
    await writer.drain()
    await asyncio.sleep(0.1)
    ending = asyncio.ensure_future(serving.__aexit__(None, None, None))
    await asyncio.sleep(0.1)
    writer.write(body[100:])
    answer = await reader.read()
    await ending
    writer.close()
    assert answer.startswith(b"HTTP/1.1 200 ")
