"""Requests over a few connections that are kept: HTTP/1.1 with as little between the caller and the socket as it takes.

A controller that writes a status for each of ten thousand objects spends its time here; a client for everything costs
it half as much again (docs/design/kubernetes-client.md). So this knows no redirects, cookies, compression, proxies or
streams.

- At most `limit` connections; who finds none free waits in turn, until its deadline. How many wait is for the callers
  to bound: a controller does by its number of workers.
- A request that fails says whether it was sent. On a connection that was kept, the server may hang up in the moment
  of sending: it cannot be told from one that did the work and died, so that counts as sent.
- Whatever else than a whole answer ends a request (an error, a timeout, being cancelled) ends its connection too.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable
from typing import Any, cast
from urllib.parse import quote, urlsplit
from weakref import WeakSet

import aiohappyeyeballs

from quartermaster.stores.kubernetes.answer import Answer, AnswerReader, MalformedAnswerError
from quartermaster.stores.kubernetes.request import InterruptedRequestError, NotSentError, Request
from quartermaster.support.deadlines import until

CONNECT_TIMEOUT_S = 10.0
IDLE_CONNECTION_S = 60.0  # shorter than the server's 90 s: a connection is not used in the moment it is closed
_NEXT_ADDRESS_S = 0.25  # of a host with several addresses, when the one before does not answer (RFC 8305)
_CLOSE_TURNS = 1000
_SENT_AT_ONCE = 16 << 10  # fits into any socket's buffer, so that a refusal cannot have come before the end of it
# A peer that vanished without a word is noticed: after 15 + 3 x 5 s of silence, or 20 s after something was sent.
_SOCKET_OPTIONS = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 20_000),
)


class Sockets:
    """Makes sockets with our options, and knows when all of them are closed."""

    def __init__(self) -> None:
        self._made: WeakSet[socket.socket] = WeakSet()

    def make(self, address: Any) -> socket.socket:
        family, kind, protocol, _, _ = address
        made = socket.socket(family, kind, protocol)
        made.setblocking(False)
        for level, option, value in _SOCKET_OPTIONS:
            made.setsockopt(level, option, value)
        self._made.add(made)
        return made

    async def closed(self) -> bool:
        """Whether all are: connections that were given up end within a few turns of the loop."""
        for _ in range(_CLOSE_TURNS):
            if not any(made.fileno() >= 0 for made in self._made):
                return True
            await asyncio.sleep(0.002)
        return False


class Connections:
    """Those to one server. Made and used in one loop."""

    def __init__(
        self, server: str, sockets: Sockets, *, limit: int, server_name: str = "", idle_s: float = IDLE_CONNECTION_S
    ) -> None:
        parts = urlsplit(server)
        name = parts.hostname or ""
        self._host = name if name.isascii() else name.encode("idna").decode("ascii")
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._server_name = server_name or self._host.rstrip(".")
        self._before = quote(parts.path, safe="/%~!$&'()*+,;=:@")
        host = f"[{self._host}]" if ":" in self._host else self._host
        self._after = f" HTTP/1.1\r\nHost: {host}{f':{parts.port}' if parts.port else ''}\r\n"
        self._sockets = sockets
        self._idle_s = idle_s
        self._slots = asyncio.Semaphore(limit)
        self._open: dict[_Connection, None] = {}
        # The one that was used last is used next, so that those which are too many grow old.
        self._idle: list[_Connection] = []
        self._sweep: asyncio.TimerHandle | None = None
        self._closed = False
        self._loop = asyncio.get_running_loop()

    async def ask(
        self, request: Request, fields: bytes, tls: ssl.SSLContext | None, *, deadline: float, silence_s: float
    ) -> Answer:
        """The answer, whatever it says, by `deadline` (in the loop's time) and never silent for `silence_s`.

        SSLCertVerificationError, NotSentError, InterruptedRequestError. `fields` are the lines that say who we are.
        """
        message = self._message(request, fields)
        await self._slot(deadline)
        try:
            if self._closed:
                raise NotSentError("the connections were closed")
            connection = self._kept(tls) or await self._connect(tls, deadline)
            if request.check is not None:
                _ask_leave(request.check, connection)
            answer = await connection.ask(message, deadline, silence_s)
            if answer.keeps and connection.is_free() and (answer.code < 300 or len(message) <= _SENT_AT_ONCE):
                self._keep(connection)
            else:
                connection.abort()
            return answer
        finally:
            self._slots.release()

    def close(self) -> None:
        """For good; who waits for an answer is interrupted."""
        self._closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        for connection in list(self._open):
            connection.abort()

    def _message(self, request: Request, fields: bytes) -> bytes:
        line = f"{request.method} {self._before}{request.path}{self._after}".encode("ascii")
        if request.body is None:
            return b"%b%b\r\n" % (line, fields)
        kind, length = request.content_type.encode("ascii"), len(request.body)
        return b"%b%bContent-Type: %b\r\nContent-Length: %d\r\n\r\n%b" % (line, fields, kind, length, request.body)

    async def _slot(self, deadline: float) -> None:
        if not self._slots.locked():
            await self._slots.acquire()
            return
        try:
            async with until(deadline):
                await self._slots.acquire()
        except TimeoutError:
            raise NotSentError("no connection became free in time") from None

    def _kept(self, tls: ssl.SSLContext | None) -> _Connection | None:
        while self._idle:
            connection = self._idle.pop()
            # Another context means other credentials: what was opened with the old ones must not carry the new request.
            if connection.tls is tls and connection.is_free():
                return connection
            connection.abort()
        return None

    def _keep(self, connection: _Connection) -> None:
        connection.used_at = self._loop.time()
        self._idle.append(connection)
        if self._sweep is None:
            self._sweep = self._loop.call_later(self._idle_s, self._sweep_idle)

    def _sweep_idle(self) -> None:
        """Close what nobody has used for so long that the server may be about to."""
        self._sweep = None
        since = self._loop.time() - self._idle_s
        old = [connection for connection in self._idle if connection.used_at <= since]
        self._idle = [connection for connection in self._idle if connection.used_at > since]
        for connection in old:
            connection.abort()
        if self._idle:
            oldest_s = self._idle[0].used_at - since
            self._sweep = self._loop.call_later(oldest_s, self._sweep_idle)

    async def _connect(self, tls: ssl.SSLContext | None, deadline: float) -> _Connection:
        made: socket.socket | None = None
        taken: list[_Connection] = []

        def take() -> _Connection:
            taken.append(_Connection(self, tls))
            return taken[0]

        try:
            async with until(min(deadline, self._loop.time() + CONNECT_TIMEOUT_S)):
                addresses = await self._loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
                made = await aiohappyeyeballs.start_connection(
                    addresses,
                    happy_eyeballs_delay=_NEXT_ADDRESS_S,
                    interleave=1,
                    loop=self._loop,
                    socket_factory=self._sockets.make,
                )
                _, connection = await self._loop.create_connection(
                    take,
                    sock=made,
                    ssl=tls,
                    server_hostname=self._server_name if tls is not None else None,
                )
                if self._closed:
                    connection.abort()
                return connection
        except ssl.SSLCertVerificationError:
            raise
        except (OSError, UnicodeError) as error:
            raise NotSentError(explain(error)) from error
        finally:
            if not taken and made is not None:
                made.close()  # else it is the loop's, and another may get its number while the loop still listens to it

    def opened(self, connection: _Connection) -> None:
        self._open[connection] = None

    def lost(self, connection: _Connection) -> None:
        self._open.pop(connection, None)
        if connection in self._idle:
            self._idle.remove(connection)


class _Connection(asyncio.Protocol):
    """One connection, with one request on it at a time."""

    def __init__(self, owner: Connections, tls: ssl.SSLContext | None) -> None:
        self.tls = tls
        self.used_at = 0.0
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._reader: AnswerReader | None = None
        self._answer: asyncio.Future[Answer] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._deadline = self._silence_s = self._heard_at = 0.0
        self._is_aborted = False

    async def ask(self, request: bytes, deadline: float, silence_s: float) -> Answer:
        if self._transport is None or self._transport.is_closing():
            raise NotSentError("the connection was closed")
        self._reader = AnswerReader()
        self._answer = self._loop.create_future()
        self._deadline, self._silence_s, self._heard_at = deadline, silence_s, self._loop.time()
        self._timer = self._loop.call_at(min(deadline, self._heard_at + silence_s), self._look_at_the_clock)
        self._transport.write(request)
        try:
            return await self._answer
        except BaseException:
            self.abort()
            raise
        finally:
            if self._timer is not None:
                self._timer.cancel()
            self._reader = self._answer = None

    def is_free(self) -> bool:
        """Whether it is open and everything was sent (a server may answer before it has read all)."""
        transport = self._transport
        return transport is not None and not transport.is_closing() and not transport.get_write_buffer_size()

    def abort(self) -> None:
        self._is_aborted = True
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._owner.opened(self)

    def data_received(self, data: bytes) -> None:
        if self._reader is None or self._answer is None or self._answer.done():
            self.abort()  # nobody asked: the next answer could not be told from it
            return
        self._heard_at = self._loop.time()
        try:
            answer = self._reader.feed(data)
        except MalformedAnswerError as error:
            self._fail(error)
        else:
            if answer is not None:
                self._answer.set_result(answer)

    def connection_lost(self, error: Exception | None) -> None:
        self._owner.lost(self)
        # TLS ends with a word of its own, and not every loop tells whether it came: only a plain end is one.
        is_end = error is None and self.tls is None and not self._is_aborted
        answer = self._reader.end() if self._reader is not None and is_end else None
        if answer is not None and self._answer is not None and not self._answer.done():
            self._answer.set_result(answer)
        self._fail(error or EOFError("the server hung up"))
        self._transport = None

    def _look_at_the_clock(self) -> None:
        now = self._loop.time()
        limit = min(self._deadline, self._heard_at + self._silence_s)
        if now < limit:
            self._timer = self._loop.call_at(limit, self._look_at_the_clock)
        else:
            self._fail(TimeoutError())

    def _fail(self, error: Exception) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(InterruptedRequestError(explain(error)))


def _ask_leave(check: Callable[[], None], connection: _Connection) -> None:
    try:
        check()
    except BaseException:
        connection.abort()
        raise


def explain(error: BaseException) -> str:
    """What went wrong, in a few words for a person."""
    if isinstance(error, ssl.SSLError):
        return f"no TLS: {error.reason or error}"
    if isinstance(error, TimeoutError) and not error.errno:
        return "no answer in time"
    if isinstance(error, OSError):
        # asyncio writes its own words for "connection refused"; resolvers use numbers below zero.
        number = error.errno or 0
        return os.strerror(number) if number > 0 else error.strerror or str(error) or type(error).__name__
    return str(error) or type(error).__name__
