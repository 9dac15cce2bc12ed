"""Lists and watches over the key-value store: pages of one moment, selectors, and what a selector makes of a change.

What does not fit its type (`stores.unreadable`) counts as something that no selector matches.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import lru_cache
from typing import Generic, NamedTuple, TypeVar

import msgspec

from quartermaster.resources.codec import Document, decode_document
from quartermaster.resources.kind import Kind, kind_of
from quartermaster.resources.model import Object, ObjectMeta
from quartermaster.resources.selectors import FieldSelector, LabelSelector
from quartermaster.stores.addressing import require_namespace
from quartermaster.stores.base import Event, Page, Written, in_order
from quartermaster.stores.kv.base import Change, Entry, KeyValue
from quartermaster.stores.objects.keys import kind_range, place_of, selected_range
from quartermaster.stores.unreadable import metadata_of, typed_or_left_out, unreadable, warn
from quartermaster.support.errors import ExpiredError, InvalidError, Problem, UnreadableError

T = TypeVar("T", bound=Object)
_CHUNK = 500
_KEPT = 64  # changes that were read last
# What a deletion looks at, and what it has to be for that.
_DELETION_READS: dict[str, type] = {"finalizers": list, "generation": int, "uid": str, "deletionTimestamp": str}


class _Continuation(msgspec.Struct, array_like=True):
    revision: int
    after: str


class _Selection:
    """Label and field selectors together."""

    def __init__(self, kind: type[Object], labels: str, fields: str) -> None:
        self._kind = kind_of(kind)
        self._labels = LabelSelector.parse(labels) if labels else None
        self._fields = FieldSelector.parse(fields, kind_of(kind)) if fields else None
        self.is_everything = self._labels is None and self._fields is None

    def range(self, namespace: str | None) -> tuple[str, str]:
        """Where everything lies that can match."""
        require_namespace(self._kind, namespace)
        fields = self._fields or FieldSelector()
        return selected_range(
            self._kind, namespace, name=fields.required("metadata.name"), host=fields.required("spec.host")
        )

    def matches(self, document: Document) -> bool:
        if self._labels is not None:
            labels = document["metadata"].get("labels")
            if not self._labels.matches(labels if isinstance(labels, dict) else {}):
                return False
        return self._fields is None or self._fields.matches(document)


def stored_document(info: Kind, entry: Entry) -> Document:
    """What is stored at a key, with its version; UnreadableError if that is no object at all."""
    document = _decoded(info, entry.key, entry.value)
    document["metadata"]["resourceVersion"] = str(entry.modified)
    return document


def mendable_document(info: Kind, entry: Entry) -> Document:
    """The same for an apply, which may replace what does not fit its type but goes by the metadata."""
    document = stored_document(info, entry)
    try:
        msgspec.convert(document["metadata"], ObjectMeta, strict=False)
    except msgspec.ValidationError as error:
        raise unreadable(info, *place_of(entry.key), f"{error} of the metadata") from error
    return document


def deletable_document(info: Kind, entry: Entry) -> Document:
    """The same of whatever is stored: what is no object has no finalizers to wait for."""
    namespace, name = place_of(entry.key)
    try:
        document = stored_document(info, entry)
    except UnreadableError:
        document = {"metadata": {"resourceVersion": str(entry.modified)}}
    meta = document["metadata"]
    for field, shape in _DELETION_READS.items():
        if not isinstance(meta.get(field, shape()), shape):
            del meta[field]
    document["metadata"] = {"name": name, **({"namespace": namespace} if namespace else {}), **meta}
    return document


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
    info = kind_of(kind)
    selection = _Selection(kind, labels, fields)
    first, end = selection.range(namespace)
    start, revision = first, 0
    if continues:
        token = _read_continuation(continues)
        # NUL sorts before every character of a name: the smallest key after the last one shown.
        revision, start = token.revision, token.after + "\0"
    found: list[T] = []
    skipped, last = 0, ""
    while True:
        try:
            part = await kv.range(start, end, limit=_CHUNK, revision=revision)
        except ExpiredError:
            if limit or continues or not revision:
                raise
            # The list took so long that its moment is forgotten: one answer, however large, has no parts.
            found, skipped = [], 0
            part = await kv.range(first, end)
        revision = part.revision
        for entry in part.entries:
            document = _document_or_left_out(info, entry)
            if document is not None and not selection.matches(document):
                continue
            if limit and len(found) == limit:
                return Page(tuple(found), str(revision), _write_continuation(revision, last), skipped)
            obj = typed_or_left_out(kind, document) if document is not None else None
            if obj is None:
                skipped += 1
            else:
                found.append(obj)
            last = entry.key
        if not part.more:
            return Page(tuple(found) if limit else in_order(found), str(revision), skipped=skipped)
        start = part.entries[-1].key + "\0"


async def watch_objects(
    kv: KeyValue, kind: type[T], namespace: str | None, *, since: str, labels: str, fields: str
) -> AsyncGenerator[Event[T], None]:
    selection = _Selection(kind, labels, fields)
    start, end = selection.range(namespace)
    async with aclosing(kv.watch(start, end, after=_read_revision(since))) as batches:
        async for batch in batches:
            for change in batch.changes:
                event = _event(kind, change, selection)
                if event is not None:
                    yield event
            if not batch.changes:
                yield Event("BOOKMARK", str(batch.revision))


async def read_written(kv: KeyValue, kind: type[Object], namespace: str, *, since: str) -> Written:
    found = await kv.written(*kind_range(kind_of(kind), namespace), after=_read_revision(since) if since else 0)
    return Written({place_of(key)[1]: str(version) for key, version in found.keys.items()}, str(found.revision))


def _event(kind: type[T], change: Change, selection: _Selection) -> Event[T] | None:
    """As an API server reports it: an object that begins to match was ADDED, one that ceases to was DELETED.

    What is deleted is shown as it was while it matched.
    """
    if change.value is None and change.previous is None:
        raise ExpiredError(f"cannot tell what was deleted at revision {change.revision}", hint="list again")
    version = str(change.revision)
    now = _matching(kind, change, change.value, selection)
    obj = now.object if now is not None else None
    if obj is not None and selection.is_everything:  # nearly always, and then nobody need read what was before
        return Event("MODIFIED" if change.previous is not None else "ADDED", version, obj)
    was = _matching(kind, change, change.previous, selection)
    if obj is not None:
        return Event("MODIFIED" if was is not None else "ADDED", version, obj)
    last = was.object if was is not None else None
    return Event("DELETED", version, last) if last is not None else None


class _Read(NamedTuple, Generic[T]):
    document: Document | None
    object: T | None  # None where the document does not fit its type


def _matching(kind: type[T], change: Change, value: bytes | None, selection: _Selection) -> _Read[T] | None:
    if value is None:
        return None
    found: _Read[T] = _read(kind, change.key, value, change.revision)
    return found if found.document is not None and selection.matches(found.document) else None


@lru_cache(maxsize=_KEPT)
def _read(kind: type[T], key: str, value: bytes, revision: int) -> _Read[T]:
    """Several watches of one process are told of the same change: it is read once, for nobody changes what he reads."""
    document = _document_or_left_out(kind_of(kind), Entry(key, value, revision, revision))
    return _Read(document, typed_or_left_out(kind, document) if document is not None else None)


def _document_or_left_out(info: Kind, entry: Entry) -> Document | None:
    try:
        return stored_document(info, entry)
    except UnreadableError as error:
        warn(error)
        return None


def _decoded(info: Kind, key: str, value: bytes) -> Document:
    try:
        document = decode_document(value)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise unreadable(info, *place_of(key), f"it is not JSON: {error}") from error
    if not metadata_of(document):
        raise unreadable(info, *place_of(key), "it is no object with metadata")
    return document


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
