"""Watches that go on: resumed after every end of a connection from the last revision seen, never from a guess.

The API server sends one JSON document per line and ends each watch after some minutes; a bookmark about every minute
says how far it is. So a connection that is silent for `silence_s` is taken for dead, and one that ends, for whatever
reason, is made again after a growing pause. Only what a pause does not mend reaches the caller: 410 (list again),
a refusal, and an answer that makes no sense over and over.

An object that does not fit its type is left out. The server does not say what it was before: unless this watch itself
has left it out already, the caller may know an earlier state of it, and has to list again. A watch that streams the
initial state knows of all such objects, so there that happens once; after a list it happens at every change of one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Generic, TypeVar

import aiohttp
import msgspec

from quartermaster.resources.codec import Document
from quartermaster.resources.kind import kind_of
from quartermaster.resources.model import Object
from quartermaster.stores.base import Event, EventType
from quartermaster.stores.kubernetes.errors import Status, error_of
from quartermaster.stores.kubernetes.paths import collection_path, query
from quartermaster.stores.kubernetes.request import InterruptedRequestError, NotSentError, Request
from quartermaster.stores.kubernetes.transport import Transport, UntrustedError
from quartermaster.stores.unreadable import metadata_of, typed, warn
from quartermaster.support import entropy
from quartermaster.support.backoff import Backoff
from quartermaster.support.errors import (
    ExpiredError,
    InvalidError,
    QuartermasterError,
    RefusedError,
    StoreError,
    UnavailableError,
    UnreadableError,
)
from quartermaster.support.log import logger

T = TypeVar("T", bound=Object)

SILENCE_S = 90.0
_BACKOFF = Backoff(first_s=0.05, factor=2.0, limit_s=10.0)
_HEALTHY_AFTER_S = 20.0  # a connection that lived as long was no failure
_NONSENSE_LIMIT = 5
_LINE_LIMIT = 64 << 20  # an API server takes no object of more than a few MiB
_INITIAL_EVENTS_END = "k8s.io/initial-events-end"

_INTERRUPTIONS = (
    UnavailableError,
    NotSentError,
    InterruptedRequestError,
    aiohttp.ClientError,
    TimeoutError,
    OSError,
)

_log = logger("stores.kubernetes")


class _Change(msgspec.Struct):
    type: str
    object: Document


_TYPES: dict[str, EventType] = {"ADDED": "ADDED", "MODIFIED": "MODIFIED", "DELETED": "DELETED"}
_DECODER = msgspec.json.Decoder(_Change)


class _NonsenseError(ValueError):
    """A line that is no event, or has no end."""


class Lines:
    """Cuts what comes into lines, without searching or copying anything twice."""

    def __init__(self, *, limit: int = _LINE_LIMIT) -> None:
        self._limit = limit
        self._begun: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that are complete now. A line beyond the limit is not waited for."""
        first, *rest = chunk.split(b"\n")
        self._begun.append(first)
        self._size += len(first)
        if self._size > self._limit:
            raise _NonsenseError(f"a line of more than {self._limit} bytes")
        if not rest:
            return []
        lines = [b"".join(self._begun), *rest]
        last = lines.pop()
        self._begun, self._size = [last] if last else [], len(last)
        return [line for line in lines if line]


class Watch(Generic[T]):
    """One watch: what is asked for, and how far it got."""

    def __init__(
        self,
        transport: Transport,
        kind: type[T],
        namespace: str | None,
        *,
        labels: str,
        fields: str,
        silence_s: float = SILENCE_S,
    ) -> None:
        self._transport = transport
        self._kind = kind
        self._noun = kind_of(kind).plural
        self._path = collection_path(kind, namespace)
        self._selectors = {"labelSelector": labels, "fieldSelector": fields}
        self._silence_s = silence_s
        self._revision = ""
        self._initial = False  # the state so far is being streamed, and cannot be resumed
        self._delivered = False
        self._left_out: set[str] = set()  # the uids of objects that do not fit, and that the caller never saw

    def since(self, revision: str) -> AsyncGenerator[Event[T], None]:
        """Every change after `revision`."""
        self._revision = revision
        return self._events()

    def from_start(self) -> AsyncGenerator[Event[T], None]:
        """What is there as ADDED events, a BOOKMARK, then every change."""
        self._initial = True
        return self._events()

    async def _events(self) -> AsyncGenerator[Event[T], None]:
        loop = asyncio.get_running_loop()
        failures, nonsense = 0, 0
        while True:
            began, wait_s, cause = loop.time(), 0.0, "the server ended it"
            failures += 1
            try:
                async with self._transport.stream(self._request(), silence_s=self._silence_s) as content:
                    lines = Lines()
                    while chunk := await content.readany():
                        for line in lines.feed(chunk):
                            event = self._event(line)
                            failures = nonsense = 0
                            if event is not None:
                                yield event
            except _NonsenseError as error:
                nonsense += 1
                cause = "a line of it makes no sense"
                if nonsense >= _NONSENSE_LIMIT:
                    raise StoreError(f"cannot watch {self._noun}: the server sends what is no event") from error
            except UntrustedError:
                raise
            except _INTERRUPTIONS as error:
                wait_s, cause = getattr(error, "retry_after_s", 0.0), str(error) or type(error).__name__
            except InvalidError as error:
                raise self._refusal(error) from error
            if self._initial and self._delivered:
                raise UnavailableError(f"cannot watch {self._noun}: the initial state broke off: {cause}")
            if loop.time() - began >= _HEALTHY_AFTER_S:
                failures = 0
            if failures <= 1:  # once per outage, however long it is
                _log.info("watch is interrupted", kind=self._noun, revision=self._revision, cause=cause)
            await asyncio.sleep(max(wait_s, _BACKOFF.delay_s(max(failures - 1, 0))))

    def _request(self) -> Request:
        parameters: dict[str, str | int] = {
            **self._selectors,
            "watch": "true",
            "allowWatchBookmarks": "true",
            # Many watches begun together must not all come back together.
            "timeoutSeconds": round(300 + 300 * entropy.source().random()),
        }
        if self._initial:
            parameters |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        else:
            parameters["resourceVersion"] = self._revision
        return Request("GET", self._path + query(**parameters), "watch", self._noun, repeatable=True)

    def _event(self, line: bytes) -> Event[T] | None:
        try:
            change = _DECODER.decode(line)
        except msgspec.MsgspecError as error:
            raise _NonsenseError from error
        type_ = _TYPES.get(change.type)
        if type_ is not None:
            return self._changed(type_, change.object)
        if change.type == "BOOKMARK":
            return self._bookmark(metadata_of(change.object))
        if change.type == "ERROR":
            raise self._error(change.object)
        raise _NonsenseError

    def _changed(self, type_: EventType, document: Document) -> Event[T] | None:
        meta = metadata_of(document)
        revision, uid = str(meta.get("resourceVersion", "")), str(meta.get("uid", ""))
        obj = self._readable(type_, uid, document)
        if not self._initial:
            self._revision = revision
        self._delivered = True
        return Event(type_, revision, obj) if obj is not None else None

    def _readable(self, type_: EventType, uid: str, document: Document) -> T | None:
        known = uid in self._left_out
        self._left_out.discard(uid)
        try:
            return typed(self._kind, document)
        except UnreadableError as error:
            if not known:
                warn(error)
                if type_ != "ADDED":
                    raise ExpiredError(f"cannot watch {self._noun}: {error.message}", hint="list again") from error
            if type_ != "DELETED":
                self._left_out.add(uid)
            return None

    def _bookmark(self, meta: Document) -> Event[T] | None:
        revision, annotations = meta.get("resourceVersion") or self._revision, meta.get("annotations") or {}
        if not isinstance(revision, str) or not isinstance(annotations, dict):
            raise _NonsenseError
        if self._initial and _INITIAL_EVENTS_END not in annotations:
            return None
        self._initial = False
        self._revision = revision
        return Event("BOOKMARK", self._revision)

    def _refusal(self, error: InvalidError) -> QuartermasterError:
        if not self._initial:
            return error
        return RefusedError(
            f"cannot stream the initial state of {self._noun}: the server does not offer it", hint="list, then watch"
        )

    def _error(self, document: Document) -> Exception:
        try:
            status = msgspec.convert(document, Status, strict=False)
        except msgspec.ValidationError as error:
            return _NonsenseError(str(error))
        told = error_of(Request("GET", self._path, "watch", self._noun), status.code or 500, status)
        return told if isinstance(told, (ExpiredError, UnavailableError)) else UnavailableError(str(told))
