"""A watch that goes on at another member where it was lost: each revision once, in order, none left out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from itertools import groupby
from typing import Any, Self

import grpc

from quartermaster.stores.kv.base import Batch, Change
from quartermaster.stores.kv.etcd import rpc_pb2 as rpc
from quartermaster.stores.kv.etcd.failures import Failure, Verdict, judge
from quartermaster.stores.kv.etcd.members import Attempts, Member, Members, Method, raise_if_closed
from quartermaster.support.deadlines import within
from quartermaster.support.errors import ExpiredError, ForbiddenError

FIRST_PROGRESS_S = 1.0
PROGRESS_S = 10.0
SILENCE_S = 3 * PROGRESS_S
OPEN_S = 2.0
STABLE_S = 1.0

_STATUS = Method("/etcdserverpb.Maintenance/Status", rpc.StatusResponse)
_WATCH = "/etcdserverpb.Watch/Watch"


async def watch(
    members: Members, key: bytes, range_end: bytes, after: int, decode: Callable[[bytes], str]
) -> AsyncGenerator[Batch, None]:
    """See `KeyValue.watch`."""
    action = f"watch {decode(key)}"
    delivered = after
    attempts = Attempts(members, action)
    token_renewed = False
    while True:
        member = members.serving
        stream = _Stream(key, range_end, delivered + 1)
        try:
            await stream.open(member, attempts.timeout_s(OPEN_S))
            while True:
                for batch in _batches(await stream.read(), delivered, decode):
                    delivered = batch.revision
                    yield batch
        except _LostError as lost:
            if stream.was_stable:
                attempts, token_renewed = Attempts(members, action), False
            try:
                await attempts.failed(member, lost.failure)
            except ForbiddenError:
                # etcd 3.4 says the same of a token that it lost in a restart.
                if token_renewed or not members.settings.user:
                    raise
                token_renewed = True
            member.forget(stream.token)
        finally:
            stream.cancel()


class _LostError(Exception):
    """The stream ended; what that means is to be judged."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.text)
        self.failure = failure


class _Stream:
    """One watch at one member, and the requests that it sends: to create the watch, then for its progress.

    An async iterator rather than a generator: gRPC drops it where it stands, and a generator would want to be closed.
    """

    def __init__(self, key: bytes, range_end: bytes, start_revision: int) -> None:
        # `progress_notify` is always safe, and rare: by default once in ten minutes.
        self._create: rpc.WatchCreateRequest | None = rpc.WatchCreateRequest(
            key=key, range_end=range_end, start_revision=start_revision, progress_notify=True, prev_kv=True
        )
        self.token = ""
        self._call: Any = None
        self._asks = False
        self._silence_s: float | None = None
        self._opened_at = 0.0
        self._next_s = FIRST_PROGRESS_S

    async def open(self, member: Member, timeout_s: float) -> None:
        try:
            self._asks = await _answers_in_order(member, timeout_s)
            self._call = await member.stream(_WATCH, rpc.WatchResponse, self)
            self.token = member.token
        except grpc.aio.AioRpcError as error:
            raise _LostError(Failure.of(error)) from error
        self._silence_s = timeout_s

    async def read(self) -> rpc.WatchResponse:
        """The next response; the first one, within the time given to `open`, says that the watch is there."""
        try:
            async with within(self._silence_s):
                response = await self._call.read()
        except asyncio.CancelledError:
            raise_if_closed()
            raise
        except TimeoutError:
            raise _LostError(Failure("the watch gives no sign of life", grpc.StatusCode.UNAVAILABLE)) from None
        except grpc.aio.AioRpcError as error:
            raise _LostError(Failure.of(error)) from error
        if response is grpc.aio.EOF:
            raise _LostError(Failure("the watch was ended", grpc.StatusCode.UNAVAILABLE))
        if response.canceled:
            compacted = "etcdserver: mvcc: required revision has been compacted" if response.compact_revision else ""
            raise _LostError(Failure(compacted or response.cancel_reason, grpc.StatusCode.FAILED_PRECONDITION))
        if not self._opened_at:
            self._opened_at = asyncio.get_running_loop().time()
        # Where there is no answer to wait for, the pings of the connection alone tell that the member is alive.
        self._silence_s = SILENCE_S if self._asks else None
        return response  # type: ignore[no-any-return]

    @property
    def was_stable(self) -> bool:
        """Whether it was there long enough for its loss to be a new one."""
        return bool(self._opened_at) and asyncio.get_running_loop().time() - self._opened_at > STABLE_S

    def cancel(self) -> None:
        if self._call is not None:
            self._call.cancel()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> rpc.WatchRequest:
        create, self._create = self._create, None
        if create is not None:
            return rpc.WatchRequest(create_request=create)
        if not self._asks:
            await asyncio.Event().wait()  # gRPC cancels it with the call
        await asyncio.sleep(self._next_s)
        self._next_s = PROGRESS_S
        return rpc.WatchRequest(progress_request=rpc.WatchProgressRequest())


def _batches(response: rpc.WatchResponse, delivered: int, decode: Callable[[bytes], str]) -> Iterator[Batch]:
    """One batch per revision. etcd never spreads a revision over two responses unless it is asked to."""
    events = list(response.events)
    if len(events) == 1:  # as nearly always: a heartbeat, a status
        found: Iterable[tuple[int, Iterable[rpc.Event]]] = [(_revision_of(events[0]), events)]
    else:
        found = groupby(events, key=_revision_of)
    for revision, together in found:
        # A member that lags behind may start before the revision that was asked for (etcd issue 20221).
        if revision > delivered:
            yield Batch(tuple([_change(event, decode) for event in together]), revision)
    if not events and not response.created and response.header.revision > delivered:
        yield Batch((), response.header.revision)


def _change(event: rpc.Event, decode: Callable[[bytes], str]) -> Change:
    new, old = event.kv, event.prev_kv
    removed = event.type == rpc.Event.DELETE
    if not old.mod_revision and (removed or new.create_revision != new.mod_revision):
        raise ExpiredError(
            f"cannot watch {decode(new.key)} at revision {new.mod_revision}: what it was before is compacted",
            hint="list again",
        )
    return Change(
        key=decode(new.key),
        value=None if removed else new.value,
        revision=new.mod_revision,
        created=old.create_revision if removed else new.create_revision,
        previous=old.value if old.mod_revision else None,
    )


def _revision_of(event: rpc.Event) -> int:
    return event.kv.mod_revision


async def _answers_in_order(member: Member, timeout_s: float) -> bool:
    """Whether the member's answer to "how far are you?" may be believed.

    Before 3.4.25 and 3.5.8 it overtook events that were still to be sent (etcd issue 15220), and a watch resumed from
    it lost them; from there to 3.4.30 and 3.5.12 a quiet watch got no answer (issue 17507), which looks like a member
    that hangs.
    """
    try:
        response = await member.unary(_STATUS, rpc.StatusRequest(), timeout_s)
    except grpc.aio.AioRpcError as error:
        if judge(Failure.of(error)) is Verdict.FINAL:  # not for this user
            return False
        raise
    version = tuple(int(part) for part in response.version.split("-")[0].split(".") if part.isdecimal())
    return (3, 4, 31) <= version < (3, 5) or version >= (3, 5, 13)
