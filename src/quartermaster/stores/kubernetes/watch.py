"""Watches that go on: resumed after every end of a connection from the last revision seen, never from a guess.

The API server sends one JSON document per line and ends each watch after some minutes; a bookmark about every minute
says how far it is. So a connection that is silent for `silence_s` is taken for dead, and one that ends, for whatever
reason, is made again after a growing pause. Only what a pause does not mend reaches the caller: 410 (list again),
a refusal, and an answer that makes no sense over and over.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Generic, TypeVar

import aiohttp
import msgspec

from quartermaster.resources.codec import Document, from_document
from quartermaster.resources.kind import kind_of
from quartermaster.resources.model import Object
from quartermaster.stores.base import Event, EventType
from quartermaster.stores.kubernetes.errors import Status, error_of
from quartermaster.stores.kubernetes.paths import collection_path, query
from quartermaster.stores.kubernetes.request import Request
from quartermaster.stores.kubernetes.transport import InterruptedRequestError, NotSentError, Transport, UntrustedError
from quartermaster.support import entropy
from quartermaster.support.backoff import Backoff
from quartermaster.support.errors import (
    ExpiredError,
    InvalidError,
    QuartermasterError,
    RefusedError,
    StoreError,
    UnavailableError,
)
from quartermaster.support.log import logger

T = TypeVar("T", bound=Object)

SILENCE_S = 90.0
_BACKOFF = Backoff(first_s=0.05, factor=2.0, limit_s=10.0)
_HEALTHY_AFTER_S = 20.0  # a connection that lived as long was no failure
_NONSENSE_LIMIT = 5
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


class _NonsenseError(Exception):
    """A line that is no event."""


class Lines:
    """Cuts what comes into lines of any length, without searching or copying anything twice."""

    def __init__(self) -> None:
        self._begun: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that are complete now."""
        first, *rest = chunk.split(b"\n")
        if not rest:
            self._begun.append(first)
            return []
        self._begun.append(first)
        lines = [b"".join(self._begun), *rest]
        last = lines.pop()
        self._begun = [last] if last else []
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
            obj = typed(self._kind, change.object)
            revision = obj.metadata.resource_version
            if not self._initial:
                self._revision = revision
            self._delivered = True
            return Event(type_, revision, obj)
        if change.type == "BOOKMARK":
            return self._bookmark(change.object.get("metadata", {}))
        if change.type == "ERROR":
            raise self._error(change.object)
        raise _NonsenseError

    def _bookmark(self, meta: Document) -> Event[T] | None:
        if self._initial and _INITIAL_EVENTS_END not in (meta.get("annotations") or {}):
            return None
        self._initial = False
        self._revision = meta.get("resourceVersion") or self._revision
        return Event("BOOKMARK", self._revision)

    def _refusal(self, error: InvalidError) -> QuartermasterError:
        if not self._initial:
            return error
        return RefusedError(
            f"cannot stream the initial state of {self._noun}: the server does not offer it", hint="list, then watch"
        )

    def _error(self, document: Document) -> Exception:
        status = msgspec.convert(document, Status, strict=False)
        error = error_of(Request("GET", self._path, "watch", self._noun), status.code or 500, status)
        return error if isinstance(error, (ExpiredError, UnavailableError)) else UnavailableError(str(error))


def typed(kind: type[T], document: Document) -> T:
    """A document of the server as an object of ours; one that does not fit is named."""
    try:
        return from_document(kind, document)
    except msgspec.ValidationError as error:
        meta = document.get("metadata") or {}
        info = kind_of(kind)
        name = f"{meta.get('namespace', '')}/{meta.get('name', '')}".strip("/")
        raise StoreError(
            f'cannot read {info.singular} "{name}": {error}',
            hint="it was written with another version of its definition",
        ) from error
