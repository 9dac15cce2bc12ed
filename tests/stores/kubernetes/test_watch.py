"""Watches over connections that end, fall silent or talk nonsense."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

import msgspec
import pytest
from aiohttp import web

from quartermaster.resources.kubernetes.core import ConfigMap
from quartermaster.stores.base import Event
from quartermaster.stores.kubernetes import KubernetesStore
from quartermaster.stores.kubernetes.watch import Lines
from quartermaster.support.errors import ExpiredError, ForbiddenError, RefusedError, StoreError, UnavailableError
from tests.stores.kubernetes.conftest import Handler, Opener

Seen = list[tuple[str, str]]


def line(type: str, revision: int, **metadata: object) -> bytes:
    meta = {"name": "a", "namespace": "default", "resourceVersion": str(revision), **metadata}
    return msgspec.json.encode({"type": type, "object": {"kind": "ConfigMap", "metadata": meta}}) + b"\n"


def failure(code: int, reason: str) -> bytes:
    status = {"kind": "Status", "code": code, "reason": reason, "message": "too old resource version: 1 (9)"}
    return msgspec.json.encode({"type": "ERROR", "object": status}) + b"\n"


INITIAL_END = {"annotations": {"k8s.io/initial-events-end": "true"}}


def streams(*connections: list[bytes], silent: bool = True) -> tuple[Handler, list[dict[str, str]]]:
    """A server that sends these chunks, connection by connection, ending all but the last; and how it was asked."""
    asked: list[dict[str, str]] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        number = len(asked)
        asked.append(dict(request.query))
        response = web.StreamResponse()
        await response.prepare(request)
        for chunk in connections[min(number, len(connections) - 1)]:
            await response.write(chunk)
            await asyncio.sleep(0)
        if number >= len(connections) - 1 and silent:
            await asyncio.sleep(30)
        return response

    return handle, asked


async def take(store: KubernetesStore, count: int, since: str = "1") -> Seen:
    seen: Seen = []
    async with asyncio.timeout(10), aclosing(store.watch(ConfigMap, "default", since=since)) as events:
        async for event in events:
            seen.append((event.type, event.revision))
            if len(seen) == count:
                break
    return seen


def test_lines_are_cut_wherever_chunks_end() -> None:
    text = b"".join(b"%d" % number * number + b"\n" for number in range(1, 40)) + b"unfinished"
    for size in (1, 2, 3, 7, 64, 1000):
        lines = Lines()
        found = [line for start in range(0, len(text), size) for line in lines.feed(text[start : start + size])]
        assert found == text.split(b"\n")[:-1]


async def test_a_watch_asks_for_bookmarks_and_an_end(misbehaving: Opener) -> None:
    handler, asked = streams([line("ADDED", 5)])
    await take(await misbehaving(handler), 1)
    assert asked[0]["allowWatchBookmarks"] == "true"
    assert 300 <= int(asked[0]["timeoutSeconds"]) <= 600
    assert asked[0]["resourceVersion"] == "1"


async def test_a_watch_that_the_server_ends_goes_on_from_the_last_revision(misbehaving: Opener) -> None:
    handler, asked = streams([line("ADDED", 5), line("BOOKMARK", 8)], [line("MODIFIED", 9)])
    assert await take(await misbehaving(handler), 3) == [("ADDED", "5"), ("BOOKMARK", "8"), ("MODIFIED", "9")]
    assert [query["resourceVersion"] for query in asked] == ["1", "8"]


async def test_half_a_line_at_the_end_of_a_connection_is_no_event(misbehaving: Opener) -> None:
    handler, asked = streams([line("ADDED", 5), line("MODIFIED", 6)[:-20]], [line("MODIFIED", 6)])
    assert await take(await misbehaving(handler), 2) == [("ADDED", "5"), ("MODIFIED", "6")]
    assert [query["resourceVersion"] for query in asked] == ["1", "5"]


async def test_an_event_may_be_larger_than_any_buffer(misbehaving: Opener) -> None:
    large = line("ADDED", 5, annotations={"x": "y" * 1_500_000})
    handler, _ = streams([large[:700_000], large[700_000:]])
    assert await take(await misbehaving(handler), 1) == [("ADDED", "5")]


@pytest.mark.slow
async def test_silence_is_taken_for_death(misbehaving: Opener) -> None:
    chunks = [line("ADDED", 5)]
    asked: list[str] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        asked.append(request.query["resourceVersion"])
        response = web.StreamResponse()
        await response.prepare(request)
        if len(asked) == 1:
            await response.write(chunks[0])
            await asyncio.sleep(30)
        await response.write(line("MODIFIED", 6))
        return response

    store = await misbehaving(handle, silence_s=0.2)
    assert await take(store, 2) == [("ADDED", "5"), ("MODIFIED", "6")]
    assert asked == ["1", "5"]


async def test_an_old_revision_is_told_whether_before_or_in_the_stream(misbehaving: Opener) -> None:
    handler, _ = streams([failure(410, "Expired")])
    with pytest.raises(ExpiredError, match=r"too old resource version.*list again"):
        await take(await misbehaving(handler), 1)

    async def refuse(_: web.Request) -> web.StreamResponse:
        return web.json_response({"kind": "Status", "code": 410, "reason": "Gone"}, status=410)

    with pytest.raises(ExpiredError):
        await take(await misbehaving(refuse), 1)


async def test_another_error_in_the_stream_is_a_lost_connection(misbehaving: Opener) -> None:
    handler, asked = streams([line("ADDED", 5), failure(500, "InternalError")], [line("MODIFIED", 6)])
    assert await take(await misbehaving(handler), 2) == [("ADDED", "5"), ("MODIFIED", "6")]
    assert asked[1]["resourceVersion"] == "5"


async def test_what_a_pause_does_not_mend_is_told(misbehaving: Opener) -> None:
    async def refuse(_: web.Request) -> web.StreamResponse:
        return web.json_response({"kind": "Status", "code": 403, "message": "no"}, status=403)

    with pytest.raises(ForbiddenError, match="cannot watch configmaps"):
        await take(await misbehaving(refuse), 1)


@pytest.mark.slow
async def test_nonsense_is_asked_for_again_and_then_told(misbehaving: Opener) -> None:
    handler, asked = streams([b"<html>\n"], [line("ADDED", 5)])
    assert await take(await misbehaving(handler), 1) == [("ADDED", "5")]
    assert len(asked) == 2
    handler, asked = streams([b"<html>\n"], silent=False)
    with pytest.raises(StoreError, match="sends what is no event"):
        await take(await misbehaving(handler), 1)
    assert len(asked) == 5


BAD = {"labels": ["not", "a", "map"], "uid": "bad"}
GOOD = {"uid": "bad"}


async def test_an_object_that_does_not_fit_is_left_out_with_a_warning(
    misbehaving: Opener, capsys: pytest.CaptureFixture[str]
) -> None:
    first = [line("ADDED", 5, **BAD), line("MODIFIED", 6, **BAD), line("DELETED", 7, **BAD), line("ADDED", 8)]
    handler, asked = streams(first[:1], first[1:])
    assert await take(await misbehaving(handler), 1) == [("ADDED", "8")]
    assert asked[1]["resourceVersion"] == "5"
    warned = capsys.readouterr().err
    assert warned.count('cannot read configmap "default/a": Expected `object`, got `array`') == 1


@pytest.mark.parametrize("type_", ["MODIFIED", "DELETED"])
async def test_one_that_the_watcher_may_know_from_before_has_to_be_listed_again(
    misbehaving: Opener, type_: str
) -> None:
    handler, _ = streams([line("ADDED", 5, **GOOD), line(type_, 6, **BAD)])
    with pytest.raises(ExpiredError, match=r'cannot watch configmaps: cannot read configmap "default/a"'):
        await take(await misbehaving(handler), 2)


async def test_one_that_is_mended_is_seen_again(misbehaving: Opener) -> None:
    handler, _ = streams([line("ADDED", 5, **BAD), line("MODIFIED", 6, **GOOD), line("DELETED", 7, **GOOD)])
    assert await take(await misbehaving(handler), 2) == [("MODIFIED", "6"), ("DELETED", "7")]


async def test_a_streamed_state_knows_what_it_left_out(misbehaving: Opener) -> None:
    first = [line("ADDED", 3, **BAD), line("BOOKMARK", 9, **INITIAL_END), line("MODIFIED", 10, **BAD)]
    handler, _ = streams([*first, line("MODIFIED", 11)])
    async with from_start(await misbehaving(handler)) as seen:
        pass
    assert [(event.type, event.revision) for event in seen] == [("BOOKMARK", "9"), ("MODIFIED", "11")]


def test_a_line_without_end_is_not_kept_for_ever() -> None:
    lines = Lines(limit=10)
    assert lines.feed(b"12345\n123456") == [b"12345"]
    assert lines.feed(b"7890\n1") == [b"1234567890"]
    lines.feed(b"234567890")
    with pytest.raises(ValueError, match="a line of more than 10 bytes"):
        lines.feed(b"x")


@pytest.mark.slow
async def test_a_server_that_ends_every_watch_at_once_is_not_asked_in_a_loop(misbehaving: Opener) -> None:
    handler, asked = streams([], silent=False)
    store = await misbehaving(handler)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await anext(store.watch(ConfigMap, since="1"))
    assert 3 <= len(asked) <= 6


@asynccontextmanager
async def from_start(store: KubernetesStore) -> AsyncIterator[list[Event[ConfigMap]]]:
    seen: list[Event[ConfigMap]] = []
    yield seen
    async with asyncio.timeout(10), aclosing(store.watch_from_start(ConfigMap, "default")) as events:
        async for event in events:
            seen.append(event)
            if event.type == "MODIFIED":
                break


async def test_a_streamed_state_ends_with_a_bookmark_and_goes_on(misbehaving: Opener) -> None:
    first = [line("ADDED", 3), line("BOOKMARK", 4), line("ADDED", 2), line("BOOKMARK", 9, **INITIAL_END)]
    handler, asked = streams(first, [line("MODIFIED", 10)])
    async with from_start(await misbehaving(handler)) as seen:
        pass
    expected = [("ADDED", "3"), ("ADDED", "2"), ("BOOKMARK", "9"), ("MODIFIED", "10")]
    assert [(event.type, event.revision) for event in seen] == expected
    assert (asked[0]["sendInitialEvents"], asked[0]["resourceVersionMatch"]) == ("true", "NotOlderThan")
    assert "sendInitialEvents" not in asked[1]
    assert asked[1]["resourceVersion"] == "9"


async def test_a_streamed_state_that_breaks_off_is_told(misbehaving: Opener) -> None:
    handler, _ = streams([line("ADDED", 3)], [line("BOOKMARK", 9, **INITIAL_END)])
    with pytest.raises(UnavailableError, match="the initial state broke off"):
        async with from_start(await misbehaving(handler)):
            pass


async def test_a_server_without_streamed_state_is_told_from_a_mistake(misbehaving: Opener) -> None:
    async def refuse(_: web.Request) -> web.StreamResponse:
        causes = [{"field": "sendInitialEvents", "message": "Forbidden: sendInitialEvents is forbidden for watch"}]
        body = {"kind": "Status", "code": 422, "reason": "Invalid", "details": {"causes": causes}}
        return web.json_response(body, status=422)

    with pytest.raises(RefusedError, match="does not offer it; list, then watch"):
        async with from_start(await misbehaving(refuse)):
            pass
