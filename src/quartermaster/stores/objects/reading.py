"""Lists and watches over the key-value store: pages of one moment, selectors, and what a selector makes of a change."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TypeVar

import msgspec

from quartermaster.resources.codec import Document, decode_document, from_document
from quartermaster.resources.kind import kind_of
from quartermaster.resources.model import Object
from quartermaster.resources.selectors import FieldSelector, LabelSelector
from quartermaster.stores.base import Event, Page
from quartermaster.stores.kv.base import Change, KeyValue
from quartermaster.stores.objects.keys import kind_range
from quartermaster.support.errors import ExpiredError, InvalidError, Problem

T = TypeVar("T", bound=Object)
_CHUNK = 500


class _Continuation(msgspec.Struct, array_like=True):
    revision: int
    after: str


class _Selection:
    """Label and field selectors together."""

    def __init__(self, kind: type[Object], labels: str, fields: str) -> None:
        self._labels = LabelSelector.parse(labels) if labels else None
        self._fields = FieldSelector.parse(fields, kind_of(kind)) if fields else None

    def matches(self, document: Document) -> bool:
        if self._labels is not None and not self._labels.matches(document["metadata"].get("labels", {})):
            return False
        return self._fields is None or self._fields.matches(document)


async def list_objects(
    kv: KeyValue,
    kind: type[T],
    namespace: str | None,
    *,
    labels: str,
    fields: str,
    limit: int,
    continues: str,
) -> Page[T]:
    selection = _Selection(kind, labels, fields)
    start, end = kind_range(kind_of(kind), namespace)
    revision = 0
    if continues:
        token = _read_continuation(continues)
        # NUL sorts before every character of a name: the smallest key after the last one shown.
        revision, start = token.revision, token.after + "\0"
    found: list[T] = []
    last = ""
    while True:
        part = await kv.range(start, end, limit=_CHUNK, revision=revision)
        revision = part.revision
        for entry in part.entries:
            document = decode_document(entry.value)
            if not selection.matches(document):
                continue
            if limit and len(found) == limit:
                return Page(tuple(found), str(revision), _write_continuation(revision, last))
            document["metadata"]["resourceVersion"] = str(entry.modified)
            found.append(from_document(kind, document))
            last = entry.key
        if not part.more:
            return Page(tuple(found), str(revision))
        start = part.entries[-1].key + "\0"


async def watch_objects(
    kv: KeyValue, kind: type[T], namespace: str | None, *, since: str, labels: str, fields: str
) -> AsyncGenerator[Event[T], None]:
    selection = _Selection(kind, labels, fields)
    start, end = kind_range(kind_of(kind), namespace)
    async with aclosing(kv.watch(start, end, after=_read_revision(since))) as batches:
        async for batch in batches:
            for change in batch.changes:
                event = _event(kind, change, selection)
                if event is not None:
                    yield event
            if not batch.changes:
                yield Event("BOOKMARK", str(batch.revision))


def _event(kind: type[T], change: Change, selection: _Selection) -> Event[T] | None:
    """As an API server reports it: an object that begins to match was ADDED, one that ceases to was DELETED."""
    before = decode_document(change.previous) if change.previous is not None else None
    after = decode_document(change.value) if change.value is not None else None
    shown = after or before
    if shown is None:
        raise ExpiredError(f"cannot tell what was deleted at revision {change.revision}", hint="list again")
    was = before is not None and selection.matches(before)
    now = after is not None and selection.matches(after)
    if not was and not now:
        return None
    version = str(change.revision)
    shown["metadata"]["resourceVersion"] = version
    obj = from_document(kind, shown)
    if was and now:
        return Event("MODIFIED", version, obj)
    return Event("ADDED" if now else "DELETED", version, obj)


def _write_continuation(revision: int, after: str) -> str:
    return msgspec.json.encode(_Continuation(revision, after)).hex()


def _read_continuation(text: str) -> _Continuation:
    try:
        return msgspec.json.decode(bytes.fromhex(text), type=_Continuation)
    except (ValueError, msgspec.MsgspecError) as error:
        problem = Problem("continue", "is not what a list returned", "list again from the start")
        raise InvalidError("cannot continue the list", [problem]) from error


def _read_revision(text: str) -> int:
    if not text.isdecimal():
        raise InvalidError("cannot watch", [Problem("since", f'"{text}" is not what a list returned', "list again")])
    return int(text)
