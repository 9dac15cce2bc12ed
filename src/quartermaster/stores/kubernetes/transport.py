"""Requests over connections that break: what is tried again, for how long, and what the caller then learns.

- Nobody listens, or the connection cannot be made: the request was not processed, so it is tried again, whatever it is.
- The connection broke after the request was sent, or no answer came in time: tried again if it is repeatable (see
  `Request`); else UnavailableError, which says that the write may have happened.
- 429, and 503 with Retry-After: the server did not process it and says when to come back. That is obeyed.
- 502, 503, 504: somebody on the way answered; tried again if it is repeatable.
- 401: credentials are renewed once (a token file, an exec plugin).
- A certificate that is not trusted is told at once: waiting does not mend it.

All of it ends `patience_s` after the call began. A restarted API server is therefore latency to its callers.
aiohttp would repeat PUT and DELETE of its own accord; a middleware hides the failure from it: one place decides.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any
from weakref import WeakSet

import aiohttp
from aiohttp import hdrs
from yarl import URL

from quartermaster.stores.kubernetes.connection import Connection
from quartermaster.stores.kubernetes.credentials import Credentials, Identity
from quartermaster.stores.kubernetes.errors import error_of, read_status, was_turned_away
from quartermaster.stores.kubernetes.request import Request
from quartermaster.support.backoff import Backoff
from quartermaster.support.errors import QuartermasterError, StoreError, UnauthorizedError, UnavailableError

PATIENCE_S = 30.0
_CONNECT_TIMEOUT_S = 10.0
_READ_SILENCE_S = 15.0  # a write may take as long as the patience lasts: its admission may be slow
_IDLE_CONNECTION_S = 60.0  # shorter than the server's 90 s: a connection is not used in the moment it is closed
_CLOSE_TURNS = 1000
_CONNECTIONS = 64
_BACKOFF = Backoff(first_s=0.05, factor=2.0, limit_s=3.0)
_GATEWAY_CODES = (502, 503, 504)
# A peer that vanished without a word is noticed: after 15 + 3 x 5 s of silence, or 20 s after something was sent.
_SOCKET_OPTIONS = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 20_000),
)


class NotSentError(Exception):
    """The request did not reach a server."""


class InterruptedRequestError(Exception):
    """The request was sent, and no whole answer came."""


class UntrustedError(UnavailableError):
    """The server shows a certificate that is not trusted: somebody has to mend the settings."""


class Transport:
    """The way to one API server. Sessions are made on first use, in the loop that uses them."""

    def __init__(
        self, connection: Connection, *, patience_s: float = PATIENCE_S, connections: int = _CONNECTIONS
    ) -> None:
        self.connection = connection
        self.credentials = Credentials(connection)
        self._patience_s = patience_s
        self._connections = connections
        self._timeouts = {writes: _timeout(patience_s, writes=writes) for writes in (False, True)}
        self._sessions: dict[str, aiohttp.ClientSession] = {}
        self._sockets: WeakSet[socket.socket] = WeakSet()
        self._streams: dict[aiohttp.ClientResponse, None] = {}
        self._closed = False

    async def send(self, request: Request) -> bytes:
        """The body of the answer; an error of ours for everything else."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._patience_s
        timeout = self._timeouts[request.writes]
        failures, renewed = 0, False
        error: QuartermasterError
        while True:
            identity = await self.credentials.identity()
            try:
                code, retry_after_s, body = await self._attempt(request, identity, timeout)
            except NotSentError as cause:
                error, wait_s = self._unreachable(request, cause), _BACKOFF.delay_s(failures)
            except InterruptedRequestError as cause:
                error, wait_s = self._interrupted(request, cause), _BACKOFF.delay_s(failures)
                if not request.repeatable:
                    raise error from cause
                request.repeated = True
            else:
                if code < 300:
                    return body
                if code == 401 and not renewed and await self.credentials.renew(identity):
                    renewed = True
                    continue
                error = self._refused(request, code, body, retry_after_s)
                if not _comes_back(request, code, retry_after_s):
                    raise error
                wait_s = retry_after_s or _BACKOFF.delay_s(failures)
                request.repeated = request.repeated or not was_turned_away(code, retry_after_s)
            failures += 1
            if loop.time() + wait_s >= deadline:
                raise error
            await asyncio.sleep(wait_s)
            timeout = _timeout(deadline - loop.time(), writes=request.writes)

    @asynccontextmanager
    async def stream(self, request: Request, *, silence_s: float) -> AsyncGenerator[aiohttp.StreamReader, None]:
        """The body as it comes; `silence_s` without a byte ends it. No attempt is repeated, save one after a 401."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_TIMEOUT_S, sock_read=silence_s)
        identity = await self.credentials.identity()
        response = await self._open("watch", request, identity, timeout)
        try:
            if response.status == 401 and await self.credentials.renew(identity):
                response.close()
                response = await self._open("watch", request, await self.credentials.identity(), timeout)
            if response.status >= 300:
                raise self._refused(request, response.status, await _read(response), _retry_after(response))
            self._streams[response] = None
            yield response.content
        finally:
            self._streams.pop(response, None)
            response.close()

    async def close(self) -> None:
        """End all connections; whoever still waits for an answer, or watches, gets an error."""
        self._closed = True
        for response in list(self._streams):
            response.close()  # this wakes the reader; closing the session alone would not
        for session in self._sessions.values():
            await session.close()
        self._sessions.clear()
        # aiohttp does not wait for connections that were given up on the way; they end within a few turns of the loop.
        for _ in range(_CLOSE_TURNS):
            if not any(made.fileno() >= 0 for made in self._sockets):
                break
            await asyncio.sleep(0.002)

    async def _attempt(
        self, request: Request, identity: Identity, timeout: aiohttp.ClientTimeout
    ) -> tuple[int, float, bytes]:
        response = await self._open("request", request, identity, timeout)
        try:
            return response.status, _retry_after(response) if response.status >= 300 else 0.0, await _read(response)
        finally:
            response.release()

    async def _open(
        self, purpose: str, request: Request, identity: Identity, timeout: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        if self._closed:
            raise StoreError(f"cannot {request.describe()}: the store is closed")
        session = self._sessions.get(purpose) or self._open_session(purpose)
        headers = identity.headers
        if request.body is not None:
            headers = headers.copy()
            headers[hdrs.CONTENT_TYPE] = request.content_type
        try:
            return await session.request(
                request.method,
                URL(self.connection.server + request.path, encoded=True),
                data=request.body,
                headers=headers,
                ssl=identity.tls if identity.tls is not None else True,
                server_hostname=self.connection.server_name or None,
                proxy=self.connection.proxy or None,
                timeout=timeout,
                allow_redirects=False,
            )
        except aiohttp.ClientConnectorCertificateError as error:
            raise self._untrusted(request, error.certificate_error) from error
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.ClientHttpProxyError) as error:
            raise NotSentError(_cause(error)) from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise InterruptedRequestError(_cause(error)) from error

    def _open_session(self, purpose: str) -> aiohttp.ClientSession:
        """Watches have a session of their own: they keep connections for minutes, and must not starve requests."""
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=self._connections if purpose == "request" else 0,
                keepalive_timeout=_IDLE_CONNECTION_S,
                socket_factory=self._open_socket,
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            middlewares=(_report_broken_connections,),
        )
        self._sessions[purpose] = session
        return session

    def _open_socket(self, address: Any) -> socket.socket:
        family, kind, protocol, _, _ = address
        made = socket.socket(family, kind, protocol)
        made.setblocking(False)
        for level, option, value in _SOCKET_OPTIONS:
            made.setsockopt(level, option, value)
        self._sockets.add(made)
        return made

    def _refused(self, request: Request, code: int, body: bytes, retry_after_s: float) -> QuartermasterError:
        error = error_of(request, code, read_status(code, body), retry_after_s=retry_after_s)
        if isinstance(error, UnauthorizedError):
            error.hint = self._login_hint()
        return error

    def _login_hint(self) -> str:
        user = self.connection.user
        if user.plugin is not None:
            return f'what {user.plugin.command} issued for user "{user.name}" was refused; log in again'
        if user.token_file:
            return f"the token in {user.token_file} is expired or not valid here"
        if user.token or user.username:
            return f'the credentials of user "{user.name}" in {self.connection.origin} are expired or not valid here'
        if user.certificate:
            return f'the certificate of user "{user.name}" is expired or not trusted there; renew it'
        return f'context "{self.connection.name}" has no credentials; add a user to it'

    def _unreachable(self, request: Request, cause: Exception) -> UnavailableError:
        doubt = "; an earlier attempt may have been processed" if request.repeated and request.writes else ""
        return UnavailableError(
            f"cannot {request.describe()}: cannot reach {self.connection.address}: {cause}{doubt}",
            hint="is the API server running, and is this its address?",
        )

    def _interrupted(self, request: Request, cause: Exception) -> UnavailableError:
        doubt = "; the write may have happened" if request.writes else ""
        return UnavailableError(
            f"cannot {request.describe()}: {self.connection.address} did not answer: {cause}{doubt}",
            hint="read it before repeating the write" if doubt else "try again",
        )

    def _untrusted(self, request: Request, cause: Exception) -> UntrustedError:
        text = getattr(cause, "verify_message", "") or str(cause)
        return UntrustedError(
            f"cannot {request.describe()}: the certificate of {self.connection.address} is not trusted: {text}",
            hint=f'look at certificate-authority and tls-server-name of context "{self.connection.name}"',
        )


async def _report_broken_connections(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    try:
        return await handler(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise aiohttp.ClientConnectionError(_cause(error)) from error


async def _read(response: aiohttp.ClientResponse) -> bytes:
    try:
        return await response.read()
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise InterruptedRequestError(_cause(error)) from error


def _comes_back(request: Request, code: int, retry_after_s: float) -> bool:
    return was_turned_away(code, retry_after_s) or (code in _GATEWAY_CODES and request.repeatable)


def _retry_after(response: aiohttp.ClientResponse) -> float:
    """Seconds; 0 when the server does not say (a date is not worth a parser: no API server sends one)."""
    text = response.headers.get(hdrs.RETRY_AFTER, "")
    return float(text) if text.isdecimal() else 0.0


def _cause(error: BaseException) -> str:
    if isinstance(error, aiohttp.ClientConnectorError):
        if isinstance(error.os_error, ssl.SSLError):
            return f"no TLS: {error.os_error.reason or error.os_error}"
        number = error.os_error.errno or 0
        # asyncio writes its own words for "connection refused"; resolvers use numbers below zero.
        return os.strerror(number) if number > 0 else error.os_error.strerror or str(error.os_error)
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return f"the proxy answers with code {error.status}"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return str(error) or type(error).__name__


def _timeout(total_s: float, *, writes: bool) -> aiohttp.ClientTimeout:
    silence_s = None if writes else _READ_SILENCE_S
    return aiohttp.ClientTimeout(total=total_s, sock_connect=_CONNECT_TIMEOUT_S, sock_read=silence_s)
