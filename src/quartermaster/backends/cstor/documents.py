"""Putting an answer together: what was made for the watched object is wished for, what others made is changed in parts.

Which of the two an object is decides the mark that the controller put on it. So a plan or a pool cluster that existed
before is adopted without being made again, and is still taken down with the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from quartermaster.backends.cstor.hook import CREATED_FOR_ANNOTATION, Document, SyncResponse
from quartermaster.resources.codec import to_document
from quartermaster.resources.kind import kind_of
from quartermaster.resources.model import Object

_OF_THE_STORE = (
    *("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"),
    *("deletionTimestamp", "deletionGracePeriodSeconds"),
)


def owned_by(obj: Object, watch: Object) -> bool:
    """Whether the controller made it for the watched object."""
    return obj.metadata.annotations.get(CREATED_FOR_ANNOTATION) == watch.metadata.uid


class Answer:
    """Collects what should be."""

    def __init__(self, watch: Object) -> None:
        self._watch = watch
        self._attachments: list[Document] = []
        self._updates: list[Document] = []
        self._deletes: list[Document] = []

    def want(self, document: Document, present: Object | None) -> None:
        """The object should be like this; `present` is what is there now."""
        if present is None or owned_by(present, self._watch):
            self._attachments.append(document)
        else:
            self._updates.append(document)

    def keep(self, present: Object | None) -> None:
        """The object should stay as it is."""
        if present is not None and owned_by(present, self._watch):
            self._attachments.append(_wish(present))

    def drop(self, present: Object) -> None:
        """The object should go: ours by not being listed, one that was adopted by name."""
        if not owned_by(present, self._watch):
            self._deletes.append(reference_to(present))

    def update(self, parts: Iterable[Document]) -> None:
        self._updates.extend(parts)

    def response(self, **rest: Any) -> SyncResponse:
        return SyncResponse(
            attachments=tuple(self._attachments),
            explicit_updates=tuple(self._updates),
            explicit_deletes=tuple(self._deletes),
            **rest,
        )


def _wish(present: Object) -> Document:
    document = to_document(present)
    document.pop("status", None)
    for name in _OF_THE_STORE:
        document["metadata"].pop(name, None)
    return document


def reference_to(obj: Object) -> Document:
    document = part_of(obj)
    document["metadata"]["uid"] = obj.metadata.uid
    return document


def part_of(obj: Object, *, labels: Mapping[str, str] | None = None) -> Document:
    """The part of somebody else's object that we state; without labels it takes back those that we stated before."""
    info, meta = kind_of(obj), obj.metadata
    metadata: Document = {"name": meta.name}
    if meta.namespace:
        metadata["namespace"] = meta.namespace
    if labels:
        metadata["labels"] = dict(labels)
    return {"apiVersion": info.api_version, "kind": info.kind, "metadata": metadata}
