"""Which member of etcd serves: the one of this host where there is one, and none that cannot be reached."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterator
from typing import Self

import grpc
import msgspec
import pytest

from quartermaster.stores.kv.etcd import EtcdKeyValue, Settings, connect, keyvalue
from quartermaster.stores.kv.etcd import members as client
from quartermaster.stores.kv.etcd import rpc_pb2 as rpc
from quartermaster.stores.kv.etcd.members import Members, Method, is_here
from quartermaster.testing.servers import EtcdAccess

LIST = Method("/etcdserverpb.Cluster/MemberList", rpc.MemberListResponse)
READS: dict[str, Callable[[EtcdKeyValue], Awaitable[object]]] = {
    "get": lambda store: store.get("/a"),
    "range": lambda store: store.range("/a", "/b"),
    "written": lambda store: store.written("/a", "/b"),
    "revision": lambda store: store.revision(),
}
# Reserved: no host has them.
ELSEWHERE = ("240.0.0.1:2379", "240.0.0.2:2379", "[100::1]:2379")


@pytest.fixture
def silent() -> Iterator[str]:
    """Somebody takes connections there and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def only_here(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    """Servers of tests all are on this host: by this one of them is, and the others are not."""
    monkeypatch.setattr(client, "is_here", lambda other: other == address)


def addresses(etcd: EtcdAccess) -> list[str]:
    return sorted(endpoint.partition("://")[2] for endpoint in etcd.endpoints)


async def ask(members: Members) -> None:
    await members.call(LIST, rpc.MemberListRequest(), "list the members")


@pytest.mark.parametrize(
    ("address", "here"),
    [("127.0.0.1:1", True), ("localhost:1", False), *((address, False) for address in ELSEWHERE)],
)
def test_an_address_is_here_if_the_kernel_says_so(address: str, here: bool) -> None:
    assert is_here(address) is here


@pytest.mark.parametrize("place", range(4))
async def test_the_member_of_this_host_serves_first(place: int) -> None:
    endpoints = [*ELSEWHERE]
    endpoints.insert(place, "127.0.0.1:2379")
    members = Members(Settings(endpoints=tuple(endpoints)))
    assert members.serving.address == "127.0.0.1:2379"
    await members.close()


async def test_where_the_one_that_served_is_gone_the_one_of_this_host_takes_over() -> None:
    members = Members(Settings(endpoints=ELSEWHERE[:1]))
    members.follow([*ELSEWHERE[1:], "127.0.0.1:2379"])
    assert members.serving.address == "127.0.0.1:2379"
    await members.close()


async def test_a_member_that_cannot_be_reached_is_left_before_its_time_is_up(silent: str) -> None:
    members = Members(Settings(endpoints=(silent,)))
    with pytest.raises(grpc.aio.AioRpcError, match=r"no connection within 0\.1 s") as caught:
        await members.serving.unary(LIST, rpc.MemberListRequest(), timeout_s=60.0, connect_s=0.1)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    await members.close()


async def test_a_member_that_was_reached_has_all_its_time(etcd_servers: EtcdAccess) -> None:
    members = Members(Settings(endpoints=(addresses(etcd_servers)[0],)))
    await ask(members)
    answer = await members.serving.unary(LIST, rpc.MemberListRequest(), timeout_s=60.0, connect_s=0.0)
    assert len(answer.members) == 3
    await members.close()


async def test_who_cannot_be_reached_is_no_more_than_a_delay(etcd_servers: EtcdAccess, silent: str) -> None:
    members = Members(Settings(endpoints=(silent, addresses(etcd_servers)[0]), sync=True))
    members._serving = 0
    await ask(members)
    assert members.serving.address != silent
    await members.close()


async def test_a_member_that_is_new_on_this_host_serves_from_the_next_look_on(
    etcd_servers: EtcdAccess, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _, last = addresses(etcd_servers)
    only_here(monkeypatch, last)
    members = Members(Settings(endpoints=(first,), sync=True))
    await ask(members)
    assert list(members.endpoints) == addresses(etcd_servers)
    members._sync_at = 0.0  # as if the time had passed
    await ask(members)
    assert members.serving.address == last
    await members.close()


async def test_a_member_of_this_host_that_failed_is_left_alone_for_a_while(
    etcd_servers: EtcdAccess, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _, last = addresses(etcd_servers)
    only_here(monkeypatch, last)
    members = Members(Settings(endpoints=(first, last), sync=True))
    assert members.serving.address == last
    members.leave(members.serving)
    for _ in range(3):
        members._sync_at = 0.0
        await ask(members)
        assert members.serving.address != last
    members._home_at = 0.0  # as if the time had passed
    members._sync_at = 0.0
    await ask(members)
    assert members.serving.address == last
    await members.close()


class Held(grpc.GenericRpcHandler):  # type: ignore[misc]
    """A member that keeps each answer until it is told to give it, and puts its name down when it is asked."""

    def __init__(self, name: str, asked: list[str]) -> None:
        self.name = name
        self.given = asyncio.Event()
        self._asked = asked
        self._server = grpc.aio.server(handlers=[self])
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"

    async def __aenter__(self) -> Self:
        await self._server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.stop(None)

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        async def answer(request: bytes, context: object) -> bytes:
            self._asked.append(self.name)
            await self.given.wait()
            return b""  # on the wire every message of which nothing is said

        return grpc.unary_unary_rpc_method_handler(answer)


@pytest.mark.parametrize("read", ["get", "range", "written", "revision"])
async def test_a_read_that_is_late_is_not_taken_back_when_the_next_member_is_asked(
    monkeypatch: pytest.MonkeyPatch, read: str
) -> None:
    """Where every member is slow, who is asked anew has all of the waiting before it again."""
    monkeypatch.setattr(keyvalue, "_RANGE", msgspec.structs.replace(keyvalue._RANGE, attempt_s=0.5))
    asked: list[str] = []
    async with Held("first", asked) as first, Held("second", asked) as second:
        only_here(monkeypatch, first.address)
        store = connect(Settings(endpoints=(second.address, first.address)))
        reading = asyncio.ensure_future(READS[read](store))
        async with asyncio.timeout(10):
            while asked != ["first", "second"]:
                await asyncio.sleep(0.01)
        first.given.set()
        await reading
        await store.close()
    assert asked == ["first", "second"]


async def answering(after_s: float, answer: str) -> str:
    await asyncio.sleep(after_s)
    return answer


async def refusing(after_s: float) -> str:
    await asyncio.sleep(after_s)
    raise client._failed(grpc.StatusCode.UNAUTHENTICATED, "no")


async def test_a_late_attempt_that_fails_changes_nothing_for_the_next_one() -> None:
    late = client._Late[str]()
    with pytest.raises(grpc.aio.AioRpcError, match="no answer within"):
        await late.first_of(refusing(0.2), 0.05)
    assert await late.first_of(answering(0.4, "second"), 10) == "second"
    await late.end()


async def test_a_read_that_is_cancelled_leaves_no_attempt_behind() -> None:
    late = client._Late[str]()

    async def read() -> None:
        try:
            with pytest.raises(grpc.aio.AioRpcError):
                await late.first_of(answering(60, "first"), 0.05)
            await late.first_of(answering(60, "second"), 60)
        finally:
            await late.end()

    reading = asyncio.ensure_future(read())
    await asyncio.sleep(0.2)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert asyncio.all_tasks() == {asyncio.current_task()}
