"""The one door for hosts that have no certificate yet: token and request in, certificate and endpoints out.

It is open on the leader only. Whoever knocks without a good token learns the authority's certificate, which is public,
and nothing else; connections are few at a time, short and small.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import Protocol

import msgspec

from quartermaster.backends.etcd.files import AUTHORITY_FILE, LEADER, certificate_file, key_file
from quartermaster.backends.etcd.memory import MEMORY_NAME, from_object
from quartermaster.backends.etcd.users import EtcdUsers
from quartermaster.engine.cache import Caches
from quartermaster.engine.controller import Scope
from quartermaster.engine.waiting import first_of
from quartermaster.orchestration.joining.authority import key_digest, load_authority
from quartermaster.orchestration.joining.profiles import HOST, LIFETIME_S, profile_of
from quartermaster.orchestration.joining.tokens import TokenRecord, redeem
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
from quartermaster.resources.kubernetes.core import ConfigMap
from quartermaster.resources.marks import DOMAIN
from quartermaster.resources.model import ObjectMeta
from quartermaster.resources.orchestration import Host, HostSpec
from quartermaster.stores.base import Store
from quartermaster.support import clock
from quartermaster.support.errors import (
    AlreadyExistsError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    QuartermasterError,
    UnavailableError,
)
from quartermaster.support.log import logger

AT_ONCE = 16
JOINED_WITH = f"{DOMAIN}/joined-with"  # on a Host: the token that it came with
_RELOAD_S = 60.0
_RETRY_S = 5.0

_log = logger("orchestration.joining")


class Gate(Protocol):
    """Lets a host in, or raises why not."""

    async def admit(self, request: Request) -> Welcome: ...


class Admission:
    """The decision and its effects, in an order in which each may be repeated."""

    def __init__(self, store: Store, users: EtcdUsers, *, namespace: str, lifetime_s: float = LIFETIME_S) -> None:
        self._store = store
        self._users = users
        self._namespace = namespace
        self._lifetime_s = lifetime_s

    async def admit(self, request: Request) -> Welcome:
        key = key_digest(request.request)  # before the token is used up: a broken request costs nothing
        authority = await load_authority(self._store, self._namespace)
        await self._check_name(request)
        record = await redeem(self._store, self._namespace, request.token, request.secret, host=request.host, key=key)
        await self._register(request, record)
        await self._users.ensure_host(request.host)
        profile = profile_of(HOST, request.host, ())
        issued = authority.sign(request.request, profile, now=clock.wall_time(), lifetime_s=self._lifetime_s)
        memory = from_object(await self._store.get(ConfigMap, MEMORY_NAME, self._namespace))
        serving = [seat.config.client_url for seat in memory.seats if seat.phase == "serving"]
        _log.info("a host has joined", host=request.host, token=request.token)
        return Welcome(
            host=request.host,
            namespace=self._namespace,
            endpoints=tuple(url.partition("://")[2] for url in serving),
            certificate=issued.certificate,
            profile=profile.digest,
            not_before=issued.not_before,
            not_after=issued.not_after,
        )

    async def _check_name(self, request: Request) -> None:
        """Whether that can be a host's name at all: a token is not used up for one that cannot."""
        with suppress(AlreadyExistsError):
            await self._store.create(self._host(request), dry_run=True)

    async def _register(self, request: Request, record: TokenRecord) -> None:
        """The Host is made here, so that two machines of one name cannot both be it."""
        try:
            await self._store.create(self._host(request))
        except AlreadyExistsError:
            host = await self._store.get(Host, request.host, self._namespace)
            ours = host.metadata.annotations.get(JOINED_WITH) == record.id
            if not ours and record.host != request.host:
                raise ForbiddenError(
                    f"cannot join as {request.host}: a host of that name is in the cluster",
                    hint=f"give this one another name, or replace it with a token of `qm token create --host "
                    f"{request.host}`",
                ) from None

    def _host(self, request: Request) -> Host:
        meta = ObjectMeta(name=request.host, namespace=self._namespace, annotations={JOINED_WITH: request.token})
        return Host(metadata=meta, spec=HostSpec(addresses=request.addresses))


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
                while not scope.stopping.is_set():
                    await first_of(scope.stopping, timeout_s=_RELOAD_S)
                    self._load(context)

    def _context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        self._load(context)
        return context

    def _load(self, context: ssl.SSLContext) -> None:
        """Also while it is in use: a renewed certificate is shown to whoever comes next."""
        context.load_cert_chain(certificate_file(self._tls, LEADER), key_file(self._tls, LEADER))

    async def _serve(self, gate: Gate, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self._slots.locked():
                return
            async with self._slots, asyncio.timeout(ANSWER_S):
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
