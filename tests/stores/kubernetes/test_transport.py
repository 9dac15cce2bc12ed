"""What is tried again and what is not, with a server that answers as a real one cannot be made to."""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest
from aiohttp import web

from quartermaster.resources.kubernetes.core import ConfigMap
from quartermaster.resources.model import ObjectMeta
from quartermaster.stores.kubernetes import Connection, KubernetesStore
from quartermaster.stores.kubernetes.transport import Transport
from quartermaster.support.errors import ConflictError, ExpiredError, StoreError, UnavailableError, UnreadableError
from quartermaster.testing.servers import Ports
from tests.stores.kubernetes.conftest import Handler, Opener, config_map

pytestmark = pytest.mark.slow

META = {"name": "a", "namespace": "default", "resourceVersion": "7", "uid": "u"}
FOUND = {"metadata": META, "data": {}}
STORED = ConfigMap(metadata=ObjectMeta(name="a", namespace="default", resource_version="7"))
Call = Callable[[KubernetesStore], Awaitable[object]]


def status(code: int, reason: str = "", **headers: str) -> web.Response:
    body = {"kind": "Status", "code": code, "reason": reason, "message": "no"}
    return web.json_response(
        body, status=code, headers={name.replace("_", "-"): text for name, text in headers.items()}
    )


def answers(*given: web.Response | None) -> tuple[Handler, list[tuple[float, str]]]:
    """A server that gives these answers in turn (None: it hangs up), then what it found; and what it was asked."""
    asked: list[tuple[float, str]] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        await request.read()
        asked.append((asyncio.get_running_loop().time(), request.method))
        if len(asked) > len(given):
            return web.json_response(FOUND)
        answer = given[len(asked) - 1]
        if answer is None:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        return answer

    return handle, asked


async def get(store: KubernetesStore) -> object:
    return await store.get(ConfigMap, "a")


async def listed(store: KubernetesStore) -> object:
    return await store.list(ConfigMap)


async def create(store: KubernetesStore) -> object:
    return await store.create(config_map("a", "default"))


async def update(store: KubernetesStore) -> object:
    return await store.update(STORED)


async def apply(store: KubernetesStore) -> object:
    return await store.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}})


async def test_the_server_says_when_to_come_back(misbehaving: Opener) -> None:
    async def come_back(code: int, call: Call) -> tuple[int, float]:
        handler, asked = answers(status(code, Retry_After="1"))
        await call(await misbehaving(handler))
        return len(asked), asked[1][0] - asked[0][0]

    # Side by side: each of them waits for a second.
    cases = [come_back(code, call) for code in (429, 503) for call in (get, create, update)]
    for attempts, waited_s in await asyncio.gather(*cases):
        assert attempts == 2
        assert waited_s >= 1.0


async def test_nobody_waits_for_a_time_that_is_past_the_bound(misbehaving: Opener) -> None:
    handler, asked = answers(status(429, Retry_After="60"))
    store = await misbehaving(handler, patience_s=5)
    async with asyncio.timeout(2):
        with pytest.raises(UnavailableError) as caught:
            await get(store)
    assert caught.value.retry_after_s == 60
    assert len(asked) == 1


@pytest.mark.parametrize("call", [get, update, apply])
async def test_a_broken_connection_is_latency_where_repeating_does_no_harm(misbehaving: Opener, call: Call) -> None:
    handler, asked = answers(None, None)
    await call(await misbehaving(handler))
    assert len(asked) == 3


async def test_a_create_is_not_repeated_when_it_may_have_happened(misbehaving: Opener) -> None:
    handler, asked = answers(None)
    store = await misbehaving(handler)
    with pytest.raises(UnavailableError, match="the write may have happened; read it before"):
        await create(store)
    assert len(asked) == 1


async def test_a_kept_connection_that_breaks_is_met_by_the_same_rules(misbehaving: Opener) -> None:
    found = web.json_response(FOUND)
    handler, asked = answers(found, None)
    store = await misbehaving(handler)
    await get(store)
    with pytest.raises(UnavailableError, match="the write may have happened"):
        await create(store)
    assert [method for _, method in asked] == ["GET", "POST"]


async def test_nobody_repeats_a_write_behind_our_back(misbehaving: Opener) -> None:
    """A client that sends a PUT again by itself hides that the first one may have been done."""
    handler, asked = answers(web.json_response(FOUND), None, status(409, "Conflict"))
    store = await misbehaving(handler)
    await get(store)
    with pytest.raises(ConflictError, match="perhaps by our own attempt"):
        await update(store)
    assert [method for _, method in asked] == ["GET", "PUT", "PUT"]


async def test_requests_at_once_are_bounded_and_who_is_cancelled_makes_room(misbehaving: Opener) -> None:
    release = asyncio.Event()
    now, most, peers = 0, 0, set()

    async def handle(request: web.Request) -> web.StreamResponse:
        nonlocal now, most
        assert request.transport is not None
        peers.add(request.transport.get_extra_info("peername"))
        now, most = now + 1, max(most, now + 1)
        try:
            await release.wait()
        finally:
            now -= 1
        return web.json_response(FOUND)

    store = await misbehaving(handle)
    store.transport = Transport(store.connection, connections=2)
    waiting = [asyncio.ensure_future(get(store)) for _ in range(6)]
    async with asyncio.timeout(5):
        while now < 2:
            await asyncio.sleep(0.005)
        waiting[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting[0]
        while len(peers) < 3:  # the one that was cancelled has taken its connection with it
            await asyncio.sleep(0.005)
        release.set()
        assert len(await asyncio.gather(*waiting[1:])) == 5
    assert len(peers) == 3
    assert most <= 3  # the server may learn of the cancelled one after it has met the next


async def test_a_delete_whose_object_is_gone_after_a_broken_connection_was_done(misbehaving: Opener) -> None:
    gone = web.json_response({"kind": "Status", "code": 404, "details": {"name": "a"}}, status=404)
    handler, asked = answers(web.json_response(FOUND), None, gone)
    deleted = await (await misbehaving(handler)).delete(ConfigMap, "a")
    assert deleted.metadata.uid == "u"
    assert [method for _, method in asked] == ["GET", "DELETE", "DELETE"]


@pytest.mark.parametrize("preconditions", [{}, {"uid": "u"}, {"revision": "7"}], ids=["none", "uid", "revision"])
async def test_a_delete_after_a_broken_connection_spares_what_took_the_name(
    misbehaving: Opener, preconditions: dict[str, str]
) -> None:
    other = web.json_response({**FOUND, "metadata": {**META, "uid": "other"}})
    handler, asked = answers(web.json_response(FOUND), None, status(409, "Conflict"), other)
    deleted = await (await misbehaving(handler)).delete(ConfigMap, "a", **preconditions)
    assert deleted.metadata.uid == "u"
    assert [method for _, method in asked] == ["GET", "DELETE", "DELETE", "GET"]


async def test_a_conflict_of_a_delete_that_was_sent_once_is_about_another_object(misbehaving: Opener) -> None:
    handler, asked = answers(web.json_response(FOUND), status(409, "Conflict"))
    assert await (await misbehaving(handler)).delete(ConfigMap, "a")
    assert [method for _, method in asked] == ["GET", "DELETE", "GET", "DELETE"]


async def test_what_does_not_fit_its_type_is_left_out_of_a_list_named_by_a_read_and_deleted(
    misbehaving: Opener,
) -> None:
    bad = {"metadata": {"name": "a", "namespace": "default", "uid": "u"}, "data": ["not", "a", "map"]}

    async def handle(request: web.Request) -> web.StreamResponse:
        if request.method == "GET" and not request.path.endswith("/a"):
            return web.json_response({"metadata": {"resourceVersion": "9"}, "items": [bad, FOUND]})
        return web.json_response(bad)

    store = await misbehaving(handle)
    page = await store.list(ConfigMap, "default")
    assert ([item.metadata.uid for item in page.items], page.skipped) == (["u"], 1)
    with pytest.raises(UnreadableError, match=r'cannot read configmap "default/a": Expected `object`.*\$\.data'):
        await store.get(ConfigMap, "a")
    assert (await store.delete(ConfigMap, "a")).metadata.uid == "u"


async def test_a_list_whose_moment_is_forgotten_on_the_way_is_read_in_one(misbehaving: Opener) -> None:
    asked: list[tuple[str, str]] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        asked.append((request.query.get("limit", ""), request.query.get("continue", "")))
        if "continue" in request.query:
            return status(410, "Expired")
        more = "next" if "limit" in request.query else ""
        return web.json_response({"metadata": {"resourceVersion": "9", "continue": more}, "items": [FOUND]})

    store = await misbehaving(handle)
    assert len((await store.list(ConfigMap, "default")).items) == 1
    assert asked == [("500", ""), ("500", "next"), ("", "")]
    with pytest.raises(ExpiredError):
        await store.list(ConfigMap, "default", limit=1, continues="next")


async def test_a_conflict_after_a_broken_connection_admits_that_it_may_be_our_own(misbehaving: Opener) -> None:
    handler, _ = answers(None, status(409, "Conflict"))
    store = await misbehaving(handler)
    with pytest.raises(ConflictError, match="perhaps by our own attempt"):
        await update(store)


@pytest.mark.parametrize("code", [502, 503, 504])
async def test_a_gateway_in_trouble_is_asked_again(misbehaving: Opener, code: int) -> None:
    handler, asked = answers(status(code), status(code))
    await get(await misbehaving(handler))
    assert len(asked) == 3


@pytest.mark.parametrize("code", [500, 502, 503, 504])
async def test_a_create_that_a_gateway_lost_may_have_happened(misbehaving: Opener, code: int) -> None:
    handler, asked = answers(status(code))
    store = await misbehaving(handler)
    with pytest.raises(UnavailableError, match=rf"code {code}: no; the write may have happened"):
        await create(store)
    assert len(asked) == 1


async def test_an_error_of_the_server_itself_is_told_at_once(misbehaving: Opener) -> None:
    handler, asked = answers(status(500, "InternalError"))
    store = await misbehaving(handler)
    with pytest.raises(UnavailableError, match=r"cannot get configmap \"default/a\": the server answers with code 500"):
        await get(store)
    assert len(asked) == 1


@pytest.mark.parametrize("text", ["<html>Welcome</html>", "[]"])
async def test_an_answer_that_is_no_api_servers_is_told(misbehaving: Opener, text: str) -> None:
    async def welcome(_: web.Request) -> web.StreamResponse:
        return web.Response(text=text)

    store = await misbehaving(welcome)
    for call in (get, create, listed):
        with pytest.raises(StoreError, match="the answer is not an API server's"):
            await call(store)


async def test_a_redirect_is_not_followed(misbehaving: Opener) -> None:
    handler, asked = answers(web.Response(status=302, headers={"Location": "http://127.0.0.1:9/"}))
    store = await misbehaving(handler)
    with pytest.raises(Exception, match="code 302"):
        await get(store)
    assert len(asked) == 1


async def test_a_server_that_never_answers_is_given_up_after_the_bound(misbehaving: Opener) -> None:
    async def hang(_: web.Request) -> web.StreamResponse:
        await asyncio.sleep(30)
        return web.Response()

    store = await misbehaving(hang, patience_s=1.0)
    async with asyncio.timeout(10):
        with pytest.raises(UnavailableError, match="did not answer: no answer in time; the write may have happened"):
            await create(store)


async def test_nobody_listening_is_waited_for_until_the_bound(
    opened: list[KubernetesStore], connection_to: Callable[[str], Connection]
) -> None:
    ports = Ports()
    try:
        connection = connection_to(f"http://127.0.0.1:{ports.reserve()}")
        opened.append(store := KubernetesStore(connection, patience_s=0.5))
        began = asyncio.get_running_loop().time()
        complaint = rf"cannot reach {connection.address}: .*; is the API server running"
        with pytest.raises(UnavailableError, match=complaint):
            await create(store)
        assert asyncio.get_running_loop().time() - began < 10
    finally:
        ports.release()


async def test_a_server_that_does_not_speak_tls_is_told_so(misbehaving: Opener, opened: list[KubernetesStore]) -> None:
    handler, asked = answers()
    plain = await misbehaving(handler)
    server = (plain.connection.proxy or plain.connection.server).replace("http:", "https:")
    opened.append(store := KubernetesStore(Connection(name="x", server=server), patience_s=2.0))
    with pytest.raises(UnavailableError, match="no TLS: WRONG_VERSION_NUMBER"):
        await get(store)
    assert asked == []


async def test_even_a_create_waits_for_a_server_that_comes_late(
    opened: list[KubernetesStore], connection_to: Callable[[str], Connection]
) -> None:
    ports = Ports()
    handler, asked = answers()
    port = ports.reserve()
    opened.append(store := KubernetesStore(connection_to(f"http://127.0.0.1:{port}")))
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(application)
    try:
        waiting = asyncio.ensure_future(create(store))
        await asyncio.sleep(0.2)
        assert not waiting.done()
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        await asyncio.wait_for(waiting, 10)
        assert len(asked) == 1
    finally:
        await runner.cleanup()
        ports.release()


async def test_requests_use_few_connections_again_and_again(misbehaving: Opener) -> None:
    peers: set[object] = set()

    async def handle(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        peers.add(request.transport.get_extra_info("peername"))
        return web.json_response(FOUND)

    store = await misbehaving(handle)
    for _ in range(20):
        await get(store)
    assert len(peers) == 1


async def test_what_is_sent_names_no_managers_and_has_its_namespace(misbehaving: Opener) -> None:
    bodies: list[object] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        bodies.append((request.query_string, msgspec.json.decode(await request.read())))
        return web.json_response(FOUND)

    store = await misbehaving(handle, manager="tester")
    await store.create(ConfigMap(metadata=ObjectMeta(name="a"), data={"k": "v"}))
    document = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a", "namespace": "default"},
        "data": {"k": "v"},
    }
    assert bodies == [("fieldManager=tester&fieldValidation=Strict", document)]
