"""What a failed call to etcd means: try elsewhere, ask for a new token, or give up with an error of ours.

The codes of gRPC are too coarse (a full database and too many requests are both RESOURCE_EXHAUSTED), and a cancelled
watch has only a text; so the text decides where it is known and the code where it is not.
"""

from __future__ import annotations

from enum import Enum

import grpc
import msgspec

from quartermaster.support.errors import (
    ExpiredError,
    ForbiddenError,
    NotFoundError,
    RefusedError,
    StoreError,
    UnauthorizedError,
)


class Failure(msgspec.Struct, frozen=True):
    """Why one attempt failed."""

    text: str
    code: grpc.StatusCode = grpc.StatusCode.UNKNOWN

    @classmethod
    def of(cls, error: grpc.aio.AioRpcError) -> Failure:
        return cls(error.details() or error.code().name, error.code())


class Verdict(Enum):
    ELSEWHERE = "it was not done: ask another member"
    DOUBT = "it may have been done: ask another member, and tell the caller"
    TOKEN = "the token is no longer good: authenticate again"  # noqa: S105 - a sentence, no secret
    FINAL = "no member will answer differently"


NO_TOKEN = "the member gave no token in time"  # noqa: S105 - as above
_RETRIED = (
    (NO_TOKEN, Verdict.ELSEWHERE),
    ("failed to connect to all addresses", Verdict.ELSEWHERE),
    ("etcdserver: no leader", Verdict.ELSEWHERE),
    ("etcdserver: too many requests", Verdict.ELSEWHERE),
    ("raft proposal dropped", Verdict.ELSEWHERE),
    ("rpc not supported for learner", Verdict.ELSEWHERE),
    # What answers is no etcd: a proxy, or whoever has its address while it is away.
    ("Received http2 header with status", Verdict.DOUBT),
    ("invalid auth token", Verdict.TOKEN),
    ("revision of auth store is old", Verdict.TOKEN),
)
_DOUBTFUL_CODES = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.UNKNOWN,
)
_LIST_AGAIN = "list again"
_SMALLER = "write less at once"
_ALL_ANSWER = "members are added and removed only while enough of them answer"
_OTHER_KEYS = (
    "these credentials are for other keys; in a cluster of `qm up`, declare things on a host that carries a member of "
    "etcd, once `qm up` was run there"
)
_FINAL: tuple[tuple[str, type[StoreError], str], ...] = (
    ("required revision has been compacted", ExpiredError, _LIST_AGAIN),
    ("required revision is a future revision", ExpiredError, _LIST_AGAIN),
    ("authentication failed", UnauthorizedError, "check the user and the password"),
    ("user name is empty", UnauthorizedError, "this etcd wants a user: etcd://user@host, or a client certificate"),
    ("permission denied", ForbiddenError, _OTHER_KEYS),
    ("lease not found", NotFoundError, "it ended: grant another"),
    ("database space exceeded", RefusedError, "compact and defragment etcd, then disarm its NOSPACE alarm"),
    ("unhealthy cluster", RefusedError, _ALL_ANSWER),
    ("not enough started members", RefusedError, _ALL_ANSWER),
    ("request is too large", RefusedError, _SMALLER),
    ("message larger than max", RefusedError, _SMALLER),
    ("too many operations", RefusedError, _SMALLER),
)


def judge(failure: Failure) -> Verdict:
    for fragment, verdict in _RETRIED:
        if fragment in failure.text:
            return verdict
    if failure.code in _DOUBTFUL_CODES and not any(fragment in failure.text for fragment, _, _ in _FINAL):
        return Verdict.DOUBT
    return Verdict.FINAL


def refusal(action: str, failure: Failure) -> StoreError:
    """The error for a failure that is FINAL."""
    for fragment, kind, hint in _FINAL:
        if fragment in failure.text:
            return kind(f"cannot {action}: {failure.text}", hint=hint)
    return RefusedError(f"cannot {action}: {failure.text}")
