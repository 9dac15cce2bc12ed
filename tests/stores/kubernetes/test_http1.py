"""Connections that are kept, bounded and given up, with a server that does what it is told byte by byte.

Each test runs on asyncio's own loop and on uvloop (conftest.py): they differ in how a connection ends.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import pytest
import trustme

from quartermaster.stores.kubernetes.answer import Answer
from quartermaster.stores.kubernetes.http1 import Connections, Sockets
from quartermaster.stores.kubernetes.request import APPLY, InterruptedRequestError, NotSentError, Request
from quartermaster.testing.servers import Ports

pytestmark = pytest.mark.slow

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
GET = Request("GET", "/a?b=c", "get", "thing", repeatable=True)


class Peer:
    """What one client connection said, and the means to say something to it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def request(self) -> bytes:
        """The head and the body of the next request."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = next((int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"Content-Length:")), 0)
        return head + await self.reader.readexactly(length)

    async def gone(self) -> bool:
        """Whether the client hangs up, with no more said."""
        async with asyncio.timeout(5):
            try:
                return await self.reader.read() == b""
            except ConnectionError:
                return True


class Server:
    def __init__(self, scheme: str = "http") -> None:
        self.scheme = scheme
        self.peers: asyncio.Queue[Peer] = asyncio.Queue()
        self.seen: list[Peer] = []
        self.url = ""

    async def next(self) -> Peer:
        async with asyncio.timeout(5):
            return await self.peers.get()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.seen.append(Peer(reader, writer))
        self.peers.put_nowait(self.seen[-1])


@asynccontextmanager
async def serving(tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    server = Server("https" if tls else "http")
    listener = await asyncio.start_server(server.accept, "127.0.0.1", 0, ssl=tls)
    server.url = f"{server.scheme}://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    try:
        yield server
    finally:
        listener.close()
        for peer in server.seen:
            peer.writer.transport.abort()
            with suppress(OSError):
                await peer.writer.wait_closed()


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with serving() as made:
        yield made


@pytest.fixture
async def connect() -> AsyncIterator[Callable[..., Connections]]:
    """`connect(url, limit=2)`: connections that are closed when the test ends, every socket of them."""
    sockets = Sockets()
    made: list[Connections] = []

    def start(url: str, *, limit: int = 4, **options: float) -> Connections:
        made.append(Connections(url, sockets, limit=limit, **options))
        return made[-1]

    yield start
    for connections in made:
        connections.close()
    assert await sockets.closed()


async def ask(
    connections: Connections,
    request: Request = GET,
    *,
    tls: ssl.SSLContext | None = None,
    within_s: float = 5.0,
    silence_s: float = 5.0,
) -> Answer:
    deadline = asyncio.get_running_loop().time() + within_s
    return await connections.ask(request, b"Accept: all\r\n", tls, deadline=deadline, silence_s=silence_s)


async def test_what_is_sent_is_what_was_given(server: Server, connect: Callable[..., Connections]) -> None:
    connections = connect(server.url + "/some prefix%20")
    waiting = asyncio.ensure_future(ask(connections))
    peer = await server.next()
    host = server.url.removeprefix("http://").encode()
    assert await peer.request() == (
        b"GET /some%20prefix%20/a?b=c HTTP/1.1\r\nHost: " + host + b"\r\nAccept: all\r\n\r\n"
    )
    peer.writer.write(OK)
    assert (await waiting).body == b"ok"
    waiting = asyncio.ensure_future(
        ask(connections, Request("PATCH", "/a", "apply", "thing", body=b"{}", content_type=APPLY))
    )
    assert (await peer.request()).endswith(
        b"\r\nAccept: all\r\nContent-Type: application/apply-patch+yaml\r\nContent-Length: 2\r\n\r\n{}"
    )
    peer.writer.write(OK)
    await waiting


async def test_a_connection_is_used_again_and_again(server: Server, connect: Callable[..., Connections]) -> None:
    connections = connect(server.url)
    waiting = asyncio.ensure_future(ask(connections))
    peer = await server.next()
    for _ in range(5):
        await peer.request()
        peer.writer.write(OK)
        assert (await waiting).code == 200
        waiting = asyncio.ensure_future(ask(connections))
    assert server.peers.empty()
    waiting.cancel()


async def test_who_finds_no_free_connection_waits_in_turn(server: Server, connect: Callable[..., Connections]) -> None:
    connections = connect(server.url, limit=2)
    order: list[int] = []

    async def one(number: int) -> None:
        await ask(connections)
        order.append(number)

    waiting, peers = [], []
    for number in range(2):  # one after the other: two that connect at once may be accepted in either order
        waiting.append(asyncio.ensure_future(one(number)))
        peers.append(await server.next())
    waiting += [asyncio.ensure_future(one(number)) for number in range(2, 6)]
    for number in range(6):
        peer = peers[number % 2]
        await peer.request()
        peer.writer.write(OK)
        await asyncio.wait([waiting[number]], timeout=5)
    assert order == list(range(6))
    assert server.peers.empty()


async def test_no_connection_in_time_means_not_sent(server: Server, connect: Callable[..., Connections]) -> None:
    connections = connect(server.url, limit=1)
    first = asyncio.ensure_future(ask(connections))
    peer = await server.next()
    with pytest.raises(NotSentError, match="no connection became free in time"):
        await ask(connections, within_s=0.05)
    await peer.request()
    peer.writer.write(OK)
    assert (await first).body == b"ok"


async def test_a_cancelled_request_ends_its_connection_and_frees_its_place(
    server: Server, connect: Callable[..., Connections]
) -> None:
    connections = connect(server.url, limit=1)
    first = asyncio.ensure_future(ask(connections))
    peer = await server.next()
    await peer.request()
    peer.writer.write(OK[:-1])
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert await peer.gone()
    second = asyncio.ensure_future(ask(connections))
    peer = await server.next()
    await peer.request()
    peer.writer.write(OK)
    assert (await second).body == b"ok"


@pytest.mark.parametrize("cut", range(len(OK)))
async def test_a_server_that_hangs_up_on_the_way_interrupts(
    server: Server, connect: Callable[..., Connections], cut: int
) -> None:
    waiting = asyncio.ensure_future(ask(connect(server.url)))
    peer = await server.next()
    await peer.request()
    peer.writer.write(OK[:cut])
    peer.writer.close()
    with pytest.raises(InterruptedRequestError, match="the server hung up"):
        await waiting


async def test_a_connection_that_is_reset_interrupts(server: Server, connect: Callable[..., Connections]) -> None:
    waiting = asyncio.ensure_future(ask(connect(server.url)))
    peer = await server.next()
    await peer.request()
    linger = b"\x01\0\0\0\0\0\0\0"
    peer.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    peer.writer.transport.abort()
    with pytest.raises(InterruptedRequestError, match="Connection reset by peer"):
        await waiting


async def test_a_kept_connection_that_the_server_closed_is_not_used(
    server: Server, connect: Callable[..., Connections]
) -> None:
    connections = connect(server.url)
    waiting = asyncio.ensure_future(ask(connections))
    peer = await server.next()
    await peer.request()
    peer.writer.write(OK)
    await waiting
    peer.writer.close()
    await peer.gone()
    waiting = asyncio.ensure_future(ask(connections))
    peer = await server.next()
    await peer.request()
    peer.writer.write(OK)
    assert (await waiting).code == 200


async def test_a_kept_connection_closed_in_the_moment_of_sending_may_have_taken_the_request(
    server: Server, connect: Callable[..., Connections]
) -> None:
    connections = connect(server.url)
    waiting = asyncio.ensure_future(ask(connections))
    peer = await server.next()
    await peer.request()
    peer.writer.write(OK)
    await waiting
    waiting = asyncio.ensure_future(ask(connections))
    await asyncio.sleep(0)  # it is written, and whether it is read nobody can tell
    peer.writer.transport.abort()
    with pytest.raises(InterruptedRequestError):
        await waiting


@pytest.mark.parametrize(
    "answer",
    [OK + b"HTTP/1.1 200 OK\r\n", OK.replace(b"\r\n", b"\r\nConnection: close\r\n", 1)],
    ids=["says too much", "says close"],
)
async def test_a_connection_that_says_so_is_not_kept(
    server: Server, connect: Callable[..., Connections], answer: bytes
) -> None:
    connections = connect(server.url)
    waiting = asyncio.ensure_future(ask(connections))
    peer = await server.next()
    await peer.request()
    peer.writer.write(answer)
    assert (await waiting).body == b"ok"
    assert await peer.gone()
    waiting = asyncio.ensure_future(ask(connections))
    await (await server.next()).request()
    waiting.cancel()


async def test_what_nobody_asked_for_ends_the_connection(server: Server, connect: Callable[..., Connections]) -> None:
    connections = connect(server.url)
    waiting = asyncio.ensure_future(ask(connections))
    peer = await server.next()
    await peer.request()
    peer.writer.write(OK)
    await waiting
    peer.writer.write(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
    assert await peer.gone()


async def test_an_answer_before_everything_is_sent_ends_the_connection(
    server: Server, connect: Callable[..., Connections]
) -> None:
    large = Request("POST", "/a", "create", "thing", body=b"x" * (64 << 20))
    waiting = asyncio.ensure_future(ask(connect(server.url), large))
    peer = await server.next()
    await peer.reader.readuntil(b"\r\n\r\n")
    peer.writer.write(OK.replace(b"200 OK", b"413 Too Large"))
    assert (await waiting).code == 413
    with pytest.raises(asyncio.IncompleteReadError):
        async with asyncio.timeout(10):
            await peer.reader.readexactly(64 << 20)


async def test_an_answer_that_is_not_http_interrupts(server: Server, connect: Callable[..., Connections]) -> None:
    waiting = asyncio.ensure_future(ask(connect(server.url)))
    peer = await server.next()
    peer.writer.write(b"220 smtp.example.com\r\n\r\n")
    with pytest.raises(InterruptedRequestError, match=r"not HTTP/1\.1"):
        await waiting
    await peer.request()
    assert await peer.gone()


async def test_an_answer_without_a_length_ends_with_the_connection(
    server: Server, connect: Callable[..., Connections]
) -> None:
    waiting = asyncio.ensure_future(ask(connect(server.url)))
    peer = await server.next()
    await peer.request()
    peer.writer.write(b"HTTP/1.0 503 X\r\nRetry-After: 1\r\n\r\nlater")
    peer.writer.close()
    answer = await waiting
    assert (answer.code, answer.body, answer.fields[b"retry-after"]) == (503, b"later", b"1")


async def test_silence_is_not_waited_for_and_a_slow_answer_is(
    server: Server, connect: Callable[..., Connections]
) -> None:
    connections = connect(server.url)
    waiting = asyncio.ensure_future(ask(connections, silence_s=0.4))
    peer = await server.next()
    await peer.request()
    for at in range(0, len(OK), 4):
        peer.writer.write(OK[at : at + 4])
        await asyncio.sleep(0.045)
    assert (await waiting).body == b"ok"
    waiting = asyncio.ensure_future(ask(connections, silence_s=0.05))
    await peer.request()
    with pytest.raises(InterruptedRequestError, match="no answer in time"):
        await waiting
    assert await peer.gone()


async def test_the_deadline_ends_even_an_answer_that_trickles(
    server: Server, connect: Callable[..., Connections]
) -> None:
    waiting = asyncio.ensure_future(ask(connect(server.url), within_s=0.2))
    peer = await server.next()
    await peer.request()
    peer.writer.write(b"HTTP/1.1 200 OK\r\n")
    while not waiting.done():
        peer.writer.write(b"A: b\r\n")
        await asyncio.sleep(0.01)
    with pytest.raises(InterruptedRequestError, match="no answer in time"):
        await waiting


async def test_nobody_there_means_not_sent(connect: Callable[..., Connections]) -> None:
    ports = Ports()
    try:
        with pytest.raises(NotSentError, match="Connection refused"):
            await ask(connect(f"http://127.0.0.1:{ports.reserve()}"))
    finally:
        ports.release()


async def test_a_host_without_an_address_means_not_sent(connect: Callable[..., Connections]) -> None:
    for host in ("nowhere.invalid", "a..b"):
        with pytest.raises(NotSentError):
            await ask(connect(f"http://{host}"))


async def test_what_is_not_used_for_long_is_closed(server: Server, connect: Callable[..., Connections]) -> None:
    connections = connect(server.url, idle_s=0.1)
    both = [asyncio.ensure_future(ask(connections)) for _ in range(2)]
    peers = [await server.next(), await server.next()]
    for peer in peers:
        await peer.request()
        peer.writer.write(OK)
    await asyncio.gather(*both)
    assert [await peer.gone() for peer in peers] == [True, True]


async def test_closing_interrupts_who_waits_and_leaves_no_socket(server: Server) -> None:
    sockets = Sockets()
    connections = Connections(server.url, sockets, limit=4)
    waiting = asyncio.ensure_future(ask(connections))
    peer = await server.next()
    await peer.request()
    connections.close()
    with pytest.raises(InterruptedRequestError):
        await waiting
    assert await sockets.closed()
    assert await peer.gone()


async def test_closing_while_connecting_sends_nothing(server: Server) -> None:
    sockets = Sockets()
    connections = Connections(server.url, sockets, limit=1)
    waiting = [asyncio.ensure_future(ask(connections)) for _ in range(2)]
    await asyncio.sleep(0)
    connections.close()
    for one in waiting:
        with pytest.raises(NotSentError, match="closed"):
            await one
    assert await sockets.closed()
    assert await (await server.next()).gone()
    assert server.peers.empty()


class Authority:
    def __init__(self) -> None:
        self.authority = trustme.CA()
        self.server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.authority.issue_cert("storage.example.com").configure_cert(self.server)

    def client(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.authority.configure_trust(context)
        return context


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


async def test_another_context_does_not_use_the_connections_of_the_last(
    authority: Authority, connect: Callable[..., Connections]
) -> None:
    async with serving(authority.server) as server:
        connections = Connections(server.url, Sockets(), limit=4, server_name="storage.example.com")
        one, other = authority.client(), authority.client()
        waiting = asyncio.ensure_future(ask(connections, tls=one))
        first = await server.next()
        await first.request()
        first.writer.write(OK)
        assert (await waiting).body == b"ok"
        waiting = asyncio.ensure_future(ask(connections, tls=other))
        second = await server.next()
        assert await first.gone()
        await second.request()
        second.writer.write(OK)
        assert (await waiting).body == b"ok"
        connections.close()
        assert await second.gone()


async def test_a_certificate_for_another_name_is_told_as_such(
    authority: Authority, connect: Callable[..., Connections]
) -> None:
    async with serving(authority.server) as server:
        with pytest.raises(ssl.SSLCertVerificationError):
            await ask(connect(server.url), tls=authority.client())


async def test_a_server_that_never_shakes_hands_means_not_sent(
    server: Server, authority: Authority, connect: Callable[..., Connections]
) -> None:
    with pytest.raises(NotSentError, match="no answer in time"):
        await ask(connect(server.url), tls=authority.client(), within_s=0.1)
    assert (await (await server.next()).reader.read(1)) == b"\x16"  # it was a handshake
