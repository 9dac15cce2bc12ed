"""The one door for hosts that have no certificate yet: token and request in, certificate and endpoints out.

It is open on the leader only. Whoever knocks without a good token learns the authority's certificate, which is public,
and nothing else; connections are few at a time, short and small.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Protocol

import msgspec

from quartermaster.backends.etcd.files import AUTHORITY_FILE, LEADER, certificate_file, key_file
from quartermaster.backends.etcd.users import EtcdUsers
from quartermaster.engine.cache import Caches
from quartermaster.engine.controller import Scope
from quartermaster.engine.waiting import first_of
from quartermaster.orchestration.joining.admitting import Admission
from quartermaster.orchestration.joining.wire import (
    ANSWER_S,
    AUTHORITY_PATH,
    JOIN_PATH,
    LARGEST_BYTES,
    Greeting,
    Message,
    Refusal,
    Request,
    Welcome,
    read_message,
    response_bytes,
)
from quartermaster.support.deadlines import within
from quartermaster.support.errors import (
    ForbiddenError,
    InvalidError,
    NotFoundError,
    QuartermasterError,
    UnavailableError,
)
from quartermaster.support.log import logger

AT_ONCE = 16
_RELOAD_S = 60.0
_RETRY_S = 5.0

_log = logger("orchestration.joining")


class Gate(Protocol):
    """Lets a host in, or raises why not."""

    async def admit(self, request: Request) -> Welcome: ...


class JoinEndpoint:
    """A service of the leader's runtime. `tls` has its certificate as a leader; `address` "" is every one."""

    name = "join-endpoint"

    def __init__(self, tls: Path, users: Callable[[], EtcdUsers], *, namespace: str, address: str, port: int) -> None:
        self._tls = tls
        self._users = users
        self._namespace = namespace
        self._address = address
        self._port = port
        self._slots = asyncio.Semaphore(AT_ONCE)
        self.port = 0  # where it listens, once it does

    def prepare(self, caches: Caches) -> None:
        """It reads the store itself: nothing here may be old."""

    async def run(self, scope: Scope) -> None:
        gate = Admission(scope.store, self._users(), namespace=self._namespace)

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._serve(gate, reader, writer)

        while not scope.stopping.is_set():
            try:
                context = self._context()
                server = await asyncio.start_server(
                    serve, self._address or None, self._port, ssl=context, limit=LARGEST_BYTES, ssl_handshake_timeout=10
                )
            except OSError as error:
                _log.warning("no host can join now", address=self._address, port=self._port, error=str(error))
                await first_of(scope.stopping, timeout_s=_RETRY_S)
                continue
            async with server:
                self.port = server.sockets[0].getsockname()[1]
                _log.info("hosts can join", address=self._address, port=self.port)
                while not await first_of(scope.stopping, timeout_s=_RELOAD_S):
                    self._load_again(context)

    def _context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        self._load(context)
        return context

    def _load_again(self, context: ssl.SSLContext) -> None:
        """While it is in use: a renewed certificate is shown to whoever comes next."""
        try:
            self._load(context)
        except OSError as error:  # it is being replaced, or this host may lead no more and is about to be told so
            _log.warning("the certificate of the leader cannot be read", error=str(error))

    def _load(self, context: ssl.SSLContext) -> None:
        context.load_cert_chain(certificate_file(self._tls, LEADER), key_file(self._tls, LEADER))

    async def _serve(self, gate: Gate, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self._slots.locked():
                return
            async with self._slots, within(ANSWER_S):
                try:
                    answer = await self._answer(gate, await read_message(reader))
                except ValueError:
                    answer = _refused(HTTPStatus.BAD_REQUEST, InvalidError("cannot understand the request"))
                writer.write(answer)
                await writer.drain()
        except (OSError, TimeoutError, ssl.SSLError):
            return  # whoever it was is gone, or took too long
        finally:
            writer.close()

    async def _answer(self, gate: Gate, message: Message) -> bytes:
        method, path, _ = message.start
        if (method, path) == ("GET", AUTHORITY_PATH):
            text = (self._tls / AUTHORITY_FILE).read_text()
            return response_bytes(HTTPStatus.OK, msgspec.json.encode(Greeting(text)))
        if (method, path) == ("POST", JOIN_PATH):
            return await _let_in(gate, message.body)
        return _refused(HTTPStatus.NOT_FOUND, NotFoundError(f"cannot find {path}"))


async def _let_in(gate: Gate, body: bytes) -> bytes:
    try:
        welcome = await gate.admit(msgspec.json.decode(body, type=Request))
    except msgspec.DecodeError as error:
        return _refused(HTTPStatus.BAD_REQUEST, InvalidError(f"cannot understand the request: {error}"))
    except ForbiddenError as error:
        _log.warning("a host may not join", error=str(error))
        return _refused(HTTPStatus.FORBIDDEN, error)
    except InvalidError as error:
        return _refused(HTTPStatus.UNPROCESSABLE_ENTITY, error)
    except QuartermasterError as error:
        _log.warning("a host cannot join now", error=str(error))
        return _refused(HTTPStatus.SERVICE_UNAVAILABLE, UnavailableError("cannot join now: try again"))
    return response_bytes(HTTPStatus.OK, msgspec.json.encode(welcome))


def _refused(status: HTTPStatus, error: QuartermasterError) -> bytes:
    text = str(error) if isinstance(error, InvalidError) else error.message
    return response_bytes(status, msgspec.json.encode(Refusal(error.reason, text, error.hint)))
