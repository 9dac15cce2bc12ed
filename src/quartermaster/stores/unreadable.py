"""Stored objects that do not fit their type: one of them must not hide all the others.

A newer version may have written it, or a person with another tool. In every store `get` says which object and which
field it is, a list and a watch leave it out with a warning (a list counts it), and `delete` removes it by its name.
"""

from __future__ import annotations

from typing import Any, TypeVar, cast

import msgspec

from quartermaster.resources.codec import Document, from_document
from quartermaster.resources.kind import Kind, kind_of
from quartermaster.resources.model import Object, ObjectMeta
from quartermaster.support.errors import UnreadableError
from quartermaster.support.log import logger

T = TypeVar("T", bound=Object)

_log = logger("stores")


def typed(kind: type[T], document: Document) -> T:
    """A stored document as an object."""
    try:
        return from_document(kind, document)
    except msgspec.ValidationError as error:
        meta = metadata_of(document)
        raise unreadable(kind_of(kind), meta.get("namespace"), meta.get("name"), str(error)) from error


def typed_or_left_out(kind: type[T], document: Document) -> T | None:
    """The same for a list or a watch: None, and a warning, for what does not fit."""
    try:
        return typed(kind, document)
    except UnreadableError as error:
        warn(error)
        return None


def last_seen(kind: type[T], document: Document, namespace: str, name: str) -> T:
    """What a delete returns. Of an object that does not fit its type that is the metadata, as far as they can be read.

    Such a one is a bare `Object`: there is no instance of `kind` without the fields that it requires.
    """
    try:
        return from_document(kind, document)
    except msgspec.ValidationError:
        try:
            meta = msgspec.convert(metadata_of(document), ObjectMeta, strict=False)
        except msgspec.ValidationError:
            meta = ObjectMeta(name=name, namespace=namespace)
        return cast(T, Object(metadata=meta))


def metadata_of(document: Any) -> Document:
    """The metadata of whatever was stored; empty where there are none."""
    meta = document.get("metadata") if isinstance(document, dict) else None
    return meta if isinstance(meta, dict) else {}


def unreadable(info: Kind, namespace: Any, name: Any, cause: str) -> UnreadableError:
    place = f"{namespace}/{name}" if namespace else f"{name}"
    return UnreadableError(
        f'cannot read {info.singular} "{place}": {cause}',
        hint=f"another version or another program wrote it: apply it anew, or `qm delete {info.singular} {name}`",
    )


def warn(error: UnreadableError) -> None:
    _log.warning("a stored object is left out", error=error.message)
