"""Calls that outlive the loss of a member.

Every member has its own channel: gRPC's balancer over several addresses neither notices a member that is cut off from
its peers nor says whether a failed call was sent. One member serves all calls until one of them fails; the next in
order then takes over. Each attempt is short, all attempts together have a deadline. A read that is late is not taken
back when the next member is asked: where all of them are slow, as on disks that are, the first would have to wait anew.

The member of one's own host comes first: whoever loses its way to that one has lost the way to all, so that no other
host's loss is felt here. A member that is asked for the first time, and cannot even be reached, is left sooner.

Members come and go, and certificates are renewed, while a store is open for months: the list is asked of etcd itself
(`sync`), and files that have changed are read again when a call has failed.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Coroutine, Sequence
from operator import methodcaller
from pathlib import Path
from typing import Any, Generic, TypeVar

import grpc
import msgspec
from google.protobuf.message import Message

from quartermaster.stores.kv.etcd import rpc_pb2 as rpc
from quartermaster.stores.kv.etcd.failures import NO_TOKEN, Failure, Verdict, judge, refusal
from quartermaster.stores.kv.etcd.settings import Settings, listed_members, read_file
from quartermaster.support import entropy
from quartermaster.support.addresses import parsed
from quartermaster.support.backoff import Backoff
from quartermaster.support.deadlines import within
from quartermaster.support.errors import UnauthorizedError, UnavailableError

Response = TypeVar("Response", bound=Message)

READ_ATTEMPT_S = 2.0
WRITE_ATTEMPT_S = 3.0
CONNECT_S = 0.5
TOKEN_ATTEMPTS = 3
SYNC_EVERY_S = 10.0
SYNC_ATTEMPT_S = 1.0
HOME_AGAIN_S = 60.0  # after the member of one's own host has failed
# A member without a leader answers at once, and its watches end, where it would otherwise wait or stay silent.
REQUIRE_LEADER = ("hasleader", "true")

_BACKOFF = Backoff(first_s=0.05, limit_s=1.0)
_OPTIONS = [
    # A cut connection is noticed within 9 s. etcd takes more than one ping in 5 s for an attack.
    ("grpc.keepalive_time_ms", 6000),
    ("grpc.keepalive_timeout_ms", 3000),
    ("grpc.http2.max_pings_without_data", 0),
    # gRPC gives an attempt to connect at least `min_reconnect_backoff_ms`, which by default are 20 s.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 2000),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # After an outage one watch response may hold a thousand revisions; etcd's own client has no limit either.
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),  # etcd's answer says more than gRPC's
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),  # a proxy for the web has no business between a store and its servers
]
_serialize = methodcaller("SerializeToString")


class Method(msgspec.Struct, Generic[Response], frozen=True):
    """One remote procedure."""

    path: str
    response: type[Response]
    attempt_s: float = WRITE_ATTEMPT_S
    reads: bool = False  # asked of two members at once, it does no harm


_AUTHENTICATE = Method("/etcdserverpb.Auth/Authenticate", rpc.AuthenticateResponse)
_LIST = Method("/etcdserverpb.Cluster/MemberList", rpc.MemberListResponse)


class Member:
    """One endpoint: its channel and, where there is a user, the token it gave."""

    def __init__(self, address: str, settings: Settings, credentials: grpc.ChannelCredentials | None) -> None:
        self.address = address
        self.is_here = is_here(address)
        self._settings = settings
        self._credentials = credentials
        self._channel: grpc.aio.Channel | None = None
        self._former: list[grpc.aio.Channel] = []  # with credentials of before; streams on them may go on
        self._calls: dict[str, Any] = {}
        self._closed = False
        self.token = ""
        self._token_lock = asyncio.Lock()

    async def unary(
        self, method: Method[Response], request: Message, timeout_s: float, connect_s: float | None = None
    ) -> Response:
        """One attempt, given up after `connect_s` where there is no connection by then.

        Raises AioRpcError; UnavailableError when the store is closed meanwhile.
        """
        await self._authenticate(timeout_s, connect_s)
        token = self.token
        try:
            return await self._send(method, request, timeout_s, connect_s)
        except grpc.aio.AioRpcError as error:
            if judge(Failure.of(error)) is Verdict.TOKEN:
                self.forget(token)
            raise

    async def stream(self, path: str, response: type[Message], requests: AsyncIterator[Message]) -> Any:
        """An open call; read from it and cancel it."""
        await self._authenticate(WRITE_ATTEMPT_S)
        if path not in self._calls:
            self._calls[path] = self._open().stream_stream(path, _serialize, response.FromString)
        return self._calls[path](requests, metadata=self._metadata())

    def forget(self, token: str) -> None:
        """The token is no good, unless there is a newer one already."""
        if token == self.token:
            self.token = ""

    def renew(self, credentials: grpc.ChannelCredentials | None) -> None:
        """New calls go over a channel with these credentials."""
        self._credentials = credentials
        self._calls.clear()
        if self._channel is not None:
            self._former.append(self._channel)
            self._channel = None

    async def close(self) -> None:
        self._closed = True
        self._calls.clear()
        for channel in [*self._former, *([self._channel] if self._channel is not None else [])]:
            await channel.close()

    async def _authenticate(self, timeout_s: float, connect_s: float | None = None) -> None:
        if not self._settings.user:
            return
        request = rpc.AuthenticateRequest(name=self._settings.user, password=self._settings.password)
        try:
            # etcd takes a tenth of a second of CPU for each: one for all who wait, and all wait at the same time.
            async with within(timeout_s), self._token_lock:
                if not self.token:
                    self.token = (await self._send(_AUTHENTICATE, request, timeout_s, connect_s)).token
        except TimeoutError:
            raise _failed(grpc.StatusCode.DEADLINE_EXCEEDED, NO_TOKEN) from None

    async def _send(
        self, method: Method[Response], request: Message, timeout_s: float, connect_s: float | None
    ) -> Response:
        channel = self._open()
        if method.path not in self._calls:
            self._calls[method.path] = channel.unary_unary(method.path, _serialize, method.response.FromString)
        call = self._calls[method.path](request, timeout=timeout_s, metadata=self._metadata())
        reaching = _Reaching(channel, call)
        timer = asyncio.get_running_loop().call_later(connect_s, reaching.give_up) if connect_s is not None else None
        try:
            response: Response = await call
        except asyncio.CancelledError:
            if reaching.given_up and not _is_cancelled():
                raise _failed(grpc.StatusCode.UNAVAILABLE, f"no connection within {connect_s:g} s") from None
            raise_if_closed()
            raise
        finally:
            if timer is not None:
                timer.cancel()
        return response

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        return (REQUIRE_LEADER, ("token", self.token)) if self.token else (REQUIRE_LEADER,)

    def _open(self) -> grpc.aio.Channel:
        if self._closed:
            raise UnavailableError("cannot ask etcd: the store was closed")
        if self._channel is None:
            name = self._settings.server_name
            options = [*_OPTIONS, ("grpc.ssl_target_name_override", name)] if name else _OPTIONS
            if self._credentials is None:
                self._channel = grpc.aio.insecure_channel(self.address, options)
            else:
                self._channel = grpc.aio.secure_channel(self.address, self._credentials, options)
        return self._channel


class _Reaching:
    """A call that waits for its connection, and what ends it. That it was never sent is not certain."""

    def __init__(self, channel: grpc.aio.Channel, call: Any) -> None:
        self._channel = channel
        self._call = call
        self.given_up = False

    def give_up(self) -> None:
        if self._channel.get_state() is not grpc.ChannelConnectivity.READY:
            self.given_up = self._call.cancel()


class Members:
    """All endpoints, and which of them serves."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._credentials = _credentials(settings) if settings.tls else None
        self._files = _state_of_files(settings)
        self._members = [Member(address, settings, self._credentials) for address in settings.endpoints]
        self._former: list[Member] = []  # no longer in the list; streams to them may go on
        self._serving = self._any()
        self._sync_at = 0.0
        self._home_at = 0.0  # when the one of this host may serve again

    @property
    def serving(self) -> Member:
        return self._members[self._serving]

    @property
    def endpoints(self) -> tuple[str, ...]:
        return tuple(member.address for member in self._members)

    def __len__(self) -> int:
        return len(self._members)

    def leave(self, member: Member) -> None:
        """Let the next one serve, unless another call did that already."""
        if member is self.serving:
            self._serving = (self._serving + 1) % len(self._members)
        if member.is_here:
            self._home_at = asyncio.get_running_loop().time() + HOME_AGAIN_S
        self._sync_at = 0.0
        if (files := _state_of_files(self.settings)) != self._files:
            self._files = files
            self._credentials = _credentials(self.settings) if self.settings.tls else None
            for one in self._members:
                one.renew(self._credentials)
            self.follow(listed_members(self.settings.members))

    def follow(self, endpoints: Sequence[str]) -> None:
        """These are the members from now on; connections to those that stay are kept."""
        known = {member.address: member for member in self._members}
        if not endpoints or list(known) == list(endpoints):
            return
        serving = self.serving
        self._former += [member for address, member in known.items() if address not in endpoints]
        self._members = [
            known.get(address) or Member(address, self.settings, self._credentials) for address in endpoints
        ]
        self._serving = self._members.index(serving) if serving in self._members else self._any()

    def _any(self) -> int:
        """One of this host where there is one: not every client of a cluster starts with the first member."""
        here = [number for number, member in enumerate(self._members) if member.is_here]
        return entropy.source().choice(here or range(len(self._members)))

    async def _sync(self) -> None:
        loop = asyncio.get_running_loop()
        if not self.settings.sync or loop.time() < self._sync_at:
            return
        self._sync_at = loop.time() + entropy.jitter(SYNC_EVERY_S)
        asked = self._to_be_asked(loop.time())
        try:
            answer = await asked.unary(_LIST, rpc.MemberListRequest(), SYNC_ATTEMPT_S, CONNECT_S)
        except grpc.aio.AioRpcError:
            self.leave(asked)
            self._sync_at = loop.time() + entropy.jitter(SYNC_ATTEMPT_S)  # the call itself comes first
            return
        if asked in self._members:
            self._serving = self._members.index(asked)
        self.follow(serving_endpoints(answer))

    def _to_be_asked(self, now: float) -> Member:
        """Who serves; or the one of this host, which then does: it may be new, or was away."""
        if self.serving.is_here or now < self._home_at:
            return self.serving
        return next((member for member in self._members if member.is_here), self.serving)

    async def call(self, method: Method[Response], request: Message, action: str) -> tuple[Response, bool]:
        """The answer, and whether an earlier attempt, whose answer was lost, may have done the same already."""
        attempts = Attempts(self, action)
        late = _Late[Response]() if method.reads else None
        try:
            while True:
                await self._sync()
                member = self.serving
                timeout_s, connect_s = attempts.timeout_s(method.attempt_s), attempts.connect_s()
                try:
                    if late is None:
                        return await member.unary(method, request, timeout_s, connect_s), attempts.in_doubt
                    asking = member.unary(method, request, max(attempts.left_s(), timeout_s), connect_s)
                    return await late.first_of(asking, timeout_s), False
                except grpc.aio.AioRpcError as error:
                    await attempts.failed(member, Failure.of(error))
        finally:
            if late is not None:
                await late.end()

    async def close(self) -> None:
        for member in [*self._members, *self._former]:
            await member.close()


class _Late(Generic[Response]):
    """Attempts of one read that have not been answered in their time, and may still be."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[Response]] = []

    async def first_of(self, asking: Coroutine[Any, Any, Response], timeout_s: float) -> Response:
        """The first answer to this attempt or to one before it. Raises what this one does, and when its time is up."""
        loop = asyncio.get_running_loop()
        asked, until = loop.create_task(asking), loop.time() + timeout_s
        self._tasks.append(asked)
        while not asked.done() and (left_s := until - loop.time()) > 0:
            await asyncio.wait(self._tasks, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
            for task in [one for one in self._tasks if one.done() and one is not asked]:
                self._tasks.remove(task)
                if task.exception() is None:
                    return task.result()
        if not asked.done():
            raise _failed(grpc.StatusCode.DEADLINE_EXCEEDED, f"no answer within {timeout_s:.1f} s")
        self._tasks.remove(asked)
        return asked.result()

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class Attempts:
    """The attempts of one call: how long the next may take, and what follows from a failed one."""

    def __init__(self, members: Members, action: str) -> None:
        self.in_doubt = False
        self._members = members
        self._action = action
        self._count = 0
        self._refused_tokens = 0
        self._deadline = asyncio.get_running_loop().time() + members.settings.deadline_s

    def timeout_s(self, attempt_s: float) -> float:
        """Longer from round to round: a loaded cluster must get the time that it needs."""
        patient = attempt_s * 2.0 ** min(self._count // len(self._members), 8)
        return max(min(patient, self.left_s()), 0.01)

    def connect_s(self) -> float | None:
        """Where there is nobody else to ask it has all the time."""
        return self.timeout_s(CONNECT_S) if len(self._members) > 1 else None

    async def failed(self, member: Member, failure: Failure) -> None:
        """Returns when it is time for another attempt; raises when there is none."""
        verdict = judge(failure)
        if verdict is Verdict.FINAL:
            raise refusal(self._action, failure)
        if verdict is Verdict.TOKEN:
            await self._refused_token(failure)
            return
        self.in_doubt = self.in_doubt or verdict is Verdict.DOUBT
        self._members.leave(member)
        self._count += 1
        delay_s = 0.0
        if self._count % len(self._members) == 0:
            delay_s = _BACKOFF.delay_s(self._count // len(self._members))
        if self.left_s() <= delay_s:
            settings = self._members.settings
            raise UnavailableError(
                f"cannot {self._action}: no member of {', '.join(settings.endpoints)} served it within "
                f"{settings.deadline_s:g} s; the last one said: {failure.text}",
                hint="check that etcd runs, that it can be reached, and whether the scheme is etcd or etcds",
            )
        await asyncio.sleep(delay_s)

    async def _refused_token(self, failure: Failure) -> None:
        """A token is asked for anew a few times. A certificate stays good: rights changed while the call was on its
        way, somebody's, and that may happen many times in a row while hosts join.
        """
        self._refused_tokens += 1
        by_certificate = not self._members.settings.user
        pause_s = _BACKOFF.delay_s(self._refused_tokens - 1) if by_certificate else 0.0
        if self._refused_tokens > TOKEN_ATTEMPTS and (not by_certificate or self.left_s() <= pause_s):
            raise UnauthorizedError(f"cannot {self._action}: {failure.text}", hint="check the user")
        await asyncio.sleep(pause_s)

    def left_s(self) -> float:
        """Until the deadline of the call."""
        return self._deadline - asyncio.get_running_loop().time()


def raise_if_closed() -> None:
    """Closing a channel cancels the calls on it, which looks as if the waiting task had been cancelled."""
    if not _is_cancelled():
        raise UnavailableError("cannot wait for etcd: the store was closed") from None


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def _failed(code: grpc.StatusCode, text: str) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), text)


def is_here(address: str) -> bool:
    """Whether that is an address of this host, which can be asked of the kernel: it lets nobody use another one."""
    found = parsed(address.rpartition(":")[0].strip("[]"))
    if found is None:
        return False  # a name is not looked up for this
    family = socket.AF_INET if found.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(found), 0))
    except OSError:
        return False
    return True


def serving_endpoints(listed: rpc.MemberListResponse) -> list[str]:
    """Where clients are served: by every member that has started and does not only learn."""
    urls = [url for member in listed.members if not member.is_learner for url in member.client_urls]
    return sorted({url.partition("://")[2].rstrip("/") for url in urls})


def _state_of_files(settings: Settings) -> tuple[int, ...]:
    """Differs when one of the files was replaced."""
    paths = [path for path in (settings.authority, settings.certificate, settings.key, settings.members) if path]
    try:
        return tuple(Path(path).stat().st_mtime_ns for path in paths)
    except OSError:
        return ()


def _credentials(settings: Settings) -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials(
        root_certificates=read_file(settings.authority, "the certificate authority"),
        private_key=read_file(settings.key, "the client key"),
        certificate_chain=read_file(settings.certificate, "the client certificate"),
    )
