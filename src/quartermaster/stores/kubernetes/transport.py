"""Requests over connections that break: what is tried again, for how long, and what the caller then learns.

- Nobody listens, or the connection cannot be made: the request was not processed, so it is tried again, whatever it is.
- The connection broke after the request was sent, or no answer came in time: tried again if it is repeatable (see
  `Request`); else UnavailableError, which says that the write may have happened.
- 429, and 503 with Retry-After: the server did not process it and says when to come back. That is obeyed.
- 502, 503, 504: somebody on the way answered; tried again if it is repeatable.
- 401: credentials are renewed once (a token file, an exec plugin).
- A certificate that is not trusted is told at once: waiting does not mend it.

All of it ends `patience_s` after the call began, without the time that somebody takes to log in. A restarted API
server is therefore latency to its callers.
Requests go over connections of our own (http1.py); watches, and what goes through a proxy, over aiohttp (sessions.py).
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from urllib.parse import urlsplit

import aiohttp

from quartermaster.stores.kubernetes.answer import Answer
from quartermaster.stores.kubernetes.connection import Connection
from quartermaster.stores.kubernetes.credentials import Credentials, Identity
from quartermaster.stores.kubernetes.errors import error_of, read_status, was_turned_away
from quartermaster.stores.kubernetes.http1 import Connections, Sockets
from quartermaster.stores.kubernetes.request import InterruptedRequestError, NotSentError, Request
from quartermaster.stores.kubernetes.sessions import Sessions, whole
from quartermaster.support.backoff import Backoff
from quartermaster.support.errors import QuartermasterError, StoreError, UnauthorizedError, UnavailableError

PATIENCE_S = 30.0
_READ_SILENCE_S = 15.0  # a write may take as long as the patience lasts: its admission may be slow
_CONNECTIONS = 64
_BACKOFF = Backoff(first_s=0.05, factor=2.0, limit_s=3.0)
_GATEWAY_CODES = (502, 503, 504)


class UntrustedError(UnavailableError):
    """The server shows a certificate that is not trusted: somebody has to mend the settings."""


class Transport:
    """The way to one API server. Connections are made on first use, in the loop that uses them."""

    def __init__(
        self, connection: Connection, *, patience_s: float = PATIENCE_S, connections: int = _CONNECTIONS
    ) -> None:
        self.connection = connection
        self.credentials = Credentials(connection)
        self._patience_s = patience_s
        self._limit = connections
        # A name and password in the address are rare enough to leave them to aiohttp as well.
        self._is_plain = not connection.proxy and "@" not in urlsplit(connection.server).netloc
        self._sockets = Sockets()
        self._sessions = Sessions(connection, self._sockets, limit=connections)
        self._connections: Connections | None = None
        self._closed = False

    async def send(self, request: Request) -> bytes:
        """The body of the answer; an error of ours for everything else."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._patience_s
        failures, renewed = 0, False
        error: QuartermasterError
        while True:
            asked = loop.time()
            identity = await self.credentials.identity()
            deadline += loop.time() - asked
            try:
                answer = await self._ask(request, identity, deadline)
            except NotSentError as cause:
                error, wait_s = self._unreachable(request, cause), _BACKOFF.delay_s(failures)
            except InterruptedRequestError as cause:
                error, wait_s = self._interrupted(request, cause), _BACKOFF.delay_s(failures)
                if not request.repeatable:
                    raise error from cause
                request.repeated = True
            else:
                code = answer.code
                if code < 300:
                    return answer.body
                asked = loop.time()
                if code == 401 and not renewed and await self.credentials.renew(identity):
                    renewed = True
                    deadline += loop.time() - asked
                    continue
                retry_after_s = _retry_after(answer)
                error = self._refused(request, answer)
                if not _comes_back(request, code, retry_after_s):
                    raise error
                wait_s = retry_after_s or _BACKOFF.delay_s(failures)
                request.repeated = request.repeated or not was_turned_away(code, retry_after_s)
            failures += 1
            if loop.time() + wait_s >= deadline:
                raise error
            await asyncio.sleep(wait_s)

    @asynccontextmanager
    async def stream(self, request: Request, *, silence_s: float) -> AsyncGenerator[aiohttp.StreamReader, None]:
        """The body as it comes; `silence_s` without a byte ends it. No attempt is repeated, save one after a 401."""
        self._check_open(request)
        identity = await self.credentials.identity()
        async with AsyncExitStack() as stack:
            try:
                response = await stack.enter_async_context(
                    self._sessions.stream(request, identity, silence_s=silence_s)
                )
                if response.status == 401 and await self.credentials.renew(identity):
                    response.close()
                    identity = await self.credentials.identity()
                    response = await stack.enter_async_context(
                        self._sessions.stream(request, identity, silence_s=silence_s)
                    )
            except ssl.SSLCertVerificationError as error:
                raise self._untrusted(request, error) from error
            if response.status >= 300:
                raise self._refused(request, await whole(response))
            yield response.content

    async def close(self) -> None:
        """End all connections; whoever still waits for an answer, or watches, gets an error."""
        self._closed = True
        if self._connections is not None:
            self._connections.close()
        await self._sessions.close()
        await self._sockets.closed()

    async def _ask(self, request: Request, identity: Identity, deadline: float) -> Answer:
        self._check_open(request)
        silence_s = None if request.writes else _READ_SILENCE_S
        try:
            if self._is_plain:
                connections = self._connections or self._open_connections()
                return await connections.ask(
                    request, identity.lines, identity.tls, deadline=deadline, silence_s=silence_s or self._patience_s
                )
            total_s = deadline - asyncio.get_running_loop().time()
            return await self._sessions.ask(request, identity, total_s=total_s, silence_s=silence_s)
        except ssl.SSLCertVerificationError as error:
            raise self._untrusted(request, error) from error

    def _open_connections(self) -> Connections:
        self._connections = Connections(
            self.connection.server, self._sockets, limit=self._limit, server_name=self.connection.server_name
        )
        return self._connections

    def _check_open(self, request: Request) -> None:
        if self._closed:
            raise StoreError(f"cannot {request.describe()}: the store is closed")

    def _refused(self, request: Request, answer: Answer) -> QuartermasterError:
        status = read_status(answer.code, answer.body)
        error = error_of(request, answer.code, status, retry_after_s=_retry_after(answer))
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

    def _untrusted(self, request: Request, cause: ssl.SSLCertVerificationError) -> UntrustedError:
        text = getattr(cause, "verify_message", "") or str(cause)
        return UntrustedError(
            f"cannot {request.describe()}: the certificate of {self.connection.address} is not trusted: {text}",
            hint=f'look at certificate-authority and tls-server-name of context "{self.connection.name}"',
        )


def _comes_back(request: Request, code: int, retry_after_s: float) -> bool:
    return was_turned_away(code, retry_after_s) or (code in _GATEWAY_CODES and request.repeatable)


def _retry_after(answer: Answer) -> float:
    """Seconds; 0 when the server does not say (a date is not worth a parser: no API server sends one)."""
    text = answer.fields.get(b"retry-after", b"")
    return float(text) if text.isdigit() else 0.0
