"""What is left to aiohttp: streams, which last for minutes, and everything that goes through a proxy.

Watches have a session of their own: they keep connections for minutes, and must not starve requests.
aiohttp would repeat PUT and DELETE of its own accord; a middleware hides the failure from it: one place decides.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Literal, cast

import aiohttp
from aiohttp import hdrs
from yarl import URL

from quartermaster.stores.kubernetes.answer import Answer
from quartermaster.stores.kubernetes.connection import Connection
from quartermaster.stores.kubernetes.credentials import Identity
from quartermaster.stores.kubernetes.http1 import CONNECT_TIMEOUT_S, IDLE_CONNECTION_S, Sockets, explain
from quartermaster.stores.kubernetes.request import InterruptedRequestError, NotSentError, Request

Purpose = Literal["request", "watch"]


class Sessions:
    """Sessions to one server, made on first use, in the loop that uses them."""

    def __init__(self, connection: Connection, sockets: Sockets, *, limit: int) -> None:
        self._connection = connection
        self._sockets = sockets
        self._limit = limit
        self._sessions: dict[Purpose, aiohttp.ClientSession] = {}
        self._streams: dict[aiohttp.ClientResponse, None] = {}

    async def ask(self, request: Request, identity: Identity, *, total_s: float, silence_s: float | None) -> Answer:
        """As `Connections.ask`."""
        timeout = aiohttp.ClientTimeout(total=total_s, sock_connect=CONNECT_TIMEOUT_S, sock_read=silence_s)
        response = await self._open("request", request, identity, timeout)
        try:
            return await whole(response)
        finally:
            response.release()

    @asynccontextmanager
    async def stream(
        self, request: Request, identity: Identity, *, silence_s: float
    ) -> AsyncGenerator[aiohttp.ClientResponse, None]:
        """An answer whose body is read as it comes; `silence_s` without a byte ends it."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S, sock_read=silence_s)
        response = await self._open("watch", request, identity, timeout)
        self._streams[response] = None
        try:
            yield response
        finally:
            self._streams.pop(response, None)
            response.close()

    async def close(self) -> None:
        for response in list(self._streams):
            response.close()  # this wakes the reader; closing the session alone would not
        for session in self._sessions.values():
            await session.close()
        self._sessions.clear()

    async def _open(
        self, purpose: Purpose, request: Request, identity: Identity, timeout: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        session = self._sessions.get(purpose) or self._open_session(purpose)
        headers = identity.headers
        if request.body is not None:
            headers = headers.copy()
            headers[hdrs.CONTENT_TYPE] = request.content_type
        if request.check is not None:
            request.check()
        try:
            return await session.request(
                request.method,
                URL(self._connection.server + request.path, encoded=True),
                data=request.body,
                headers=headers,
                ssl=identity.tls if identity.tls is not None else True,
                server_hostname=self._connection.server_name or None,
                proxy=self._connection.proxy or None,
                timeout=timeout,
                allow_redirects=False,
            )
        except aiohttp.ClientConnectorCertificateError as error:
            raise cast(ssl.SSLCertVerificationError, error.certificate_error) from error
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.ClientHttpProxyError) as error:
            raise NotSentError(_cause(error)) from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise InterruptedRequestError(_cause(error)) from error

    def _open_session(self, purpose: Purpose) -> aiohttp.ClientSession:
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=self._limit if purpose == "request" else 0,
                keepalive_timeout=IDLE_CONNECTION_S,
                socket_factory=self._sockets.make,
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            middlewares=(_report_broken_connections,),
        )
        self._sessions[purpose] = session
        return session


async def whole(response: aiohttp.ClientResponse) -> Answer:
    """The answer, read to its end."""
    try:
        body = await response.read()
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise InterruptedRequestError(_cause(error)) from error
    fields = {name.lower().encode(): value.encode() for name, value in response.headers.items()}
    return Answer(response.status, fields, body, keeps=True)


async def _report_broken_connections(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    try:
        return await handler(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise aiohttp.ClientConnectionError(_cause(error)) from error


def _cause(error: BaseException) -> str:
    if isinstance(error, aiohttp.ClientConnectorError):
        return explain(error.os_error)
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return f"the proxy answers with code {error.status}"
    return explain(error)
