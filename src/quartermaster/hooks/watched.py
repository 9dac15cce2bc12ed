"""The watched object itself, as an answer wants it. Pure: the very same object comes back where nothing changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from quartermaster.backends.cstor.hook import Hook
from quartermaster.resources.codec import Document, from_document, to_document
from quartermaster.resources.kind import kind_of
from quartermaster.resources.model import Object
from quartermaster.resources.references import FOREGROUND, ORPHAN

T = TypeVar("T", bound=Object)


def finalizer_of(hook: Hook) -> str:
    """What keeps a watched object until its hook has finalized it."""
    return f"{kind_of(hook.watch).group or 'core'}/{hook.name}"


def is_collected(watch: Object) -> bool:
    """Whether the collector of garbage is at work on what it owns: what is made then would be in its way."""
    return FOREGROUND in watch.metadata.finalizers or ORPHAN in watch.metadata.finalizers


def with_finalizer(watch: T, name: str) -> T:
    return watch if name in watch.metadata.finalizers else _with(watch, (*watch.metadata.finalizers, name))


def without_finalizer(watch: T, name: str) -> T:
    kept = tuple(finalizer for finalizer in watch.metadata.finalizers if finalizer != name)
    return watch if kept == watch.metadata.finalizers else _with(watch, kept)


def with_texts(watch: T, labels: Mapping[str, str | None], annotations: Mapping[str, str | None]) -> T:
    """Labels and annotations as the answer states them; None removes one."""
    meta = watch.metadata
    new_labels, new_annotations = _laid_over(meta.labels, labels), _laid_over(meta.annotations, annotations)
    if new_labels == meta.labels and new_annotations == meta.annotations:
        return watch
    changed = msgspec.structs.replace(meta, labels=new_labels, annotations=new_annotations)
    return msgspec.structs.replace(watch, metadata=changed)


def with_status(watch: T, status: Document | None) -> T:
    """None leaves it. Compared as the type has it: a field that is equal to its default is as good as none."""
    if status is None:
        return watch
    changed = from_document(type(watch), {**to_document(watch), "status": status})
    return watch if changed == watch else changed


def differ_in_words(before: Object, after: Object) -> bool:
    """Whether the two statuses say the same in all but their messages, such as how many of several parts are ready."""
    return _without_words(before) == _without_words(after)


def _without_words(obj: Object) -> Document:
    status: Document = {**to_document(obj).get("status", {}), "message": None}
    conditions = status.get("conditions", ())
    return {**status, "conditions": [{**condition, "message": None} for condition in conditions]}


def _laid_over(texts: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    merged = {**texts, **changes}
    return {name: text for name, text in merged.items() if text is not None}


def _with(watch: T, finalizers: tuple[str, ...]) -> T:
    return msgspec.structs.replace(watch, metadata=msgspec.structs.replace(watch.metadata, finalizers=finalizers))
