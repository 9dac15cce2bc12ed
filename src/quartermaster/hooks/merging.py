"""Three-way merge of an attachment: what a hook wants, what it wanted before, and what is there.

A hook states only the fields that it cares about. What it stated before and states no longer goes; what others wrote
stays. How lists merge is read from the schema of the kind, by the same functions that the stores apply documents with,
so that a finalizer of the CSI attacher survives beside ours while the order of a pool's disks is the hook's alone.

What was wanted before stands in an annotation, under the name that metac gives it: docs/design/hooks.md says why.
"""

from __future__ import annotations

from typing import Any

from quartermaster.resources.codec import Document, decode_document, encode_document
from quartermaster.resources.model import Object
from quartermaster.resources.schema import full_schema_of
from quartermaster.stores.objects.fields import difference
from quartermaster.stores.objects.merge import merge, without
from quartermaster.stores.objects.structure import fields_of, type_of

OWNER_ANNOTATION = "metac.openebs.io/created-due-to-watch"
_LAST_APPLIED_SUFFIX = "/gctl-last-applied"
# Nobody wants what the store sets itself, and a status is written by whoever the object belongs to.
_NOT_APPLIED = ("status",)
_NOT_APPLIED_METADATA = (
    *("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink"),
    *("deletionTimestamp", "deletionGracePeriodSeconds"),
)


def last_applied_annotation(watch_uid: str) -> str:
    return watch_uid + _LAST_APPLIED_SUFFIX


def wanted_document(document: Document, watch_uid: str) -> Document:
    """What a hook returned, without what it cannot decide; a hook may return what it was shown, changed a little."""
    record = last_applied_annotation(watch_uid)
    metadata = {name: value for name, value in document["metadata"].items() if name not in _NOT_APPLIED_METADATA}
    if record in metadata.get("annotations", {}):
        metadata["annotations"] = {name: text for name, text in metadata["annotations"].items() if name != record}
    body = {name: value for name, value in document.items() if name not in _NOT_APPLIED}
    return {**body, "metadata": metadata}


def marked(wanted: Document, watch_uid: str, *, own: bool) -> Document:
    """What is sent: the wish, with the record of it, and (`own`) with the mark of whom it belongs to."""
    annotations = {**wanted["metadata"].get("annotations", {})}
    annotations[last_applied_annotation(watch_uid)] = encode_document(wanted).decode()
    if own:
        annotations[OWNER_ANNOTATION] = watch_uid
    return {**wanted, "metadata": {**wanted["metadata"], "annotations": annotations}}


def merged(cls: type[Object], observed: Document, wanted: Document, watch_uid: str, *, own: bool) -> Document | None:
    """The object as it should be, or None where it is so already.

    The record alone is no reason to write. A hook that wants an object to stay as it is states all of it, with what
    others wrote into it, and that must not become a wish of the hook's own.
    """
    kind = type_of(full_schema_of(cls))
    last = last_applied(observed, watch_uid)
    result: Document = merge(kind, observed, marked(wanted, watch_uid, own=own))
    if last is not None and last != wanted:
        # An object without fields states none: it must not stand for all that others put there.
        gone = difference(fields_of(kind, _compact(last, empty=True)), fields_of(kind, _compact(wanted, empty=True)))
        result = _compact(without(kind, result, gone))
    record = last_applied_annotation(watch_uid)
    if own and last is None:  # somebody spoilt it
        return result
    return None if _without_annotation(result, record) == _without_annotation(observed, record) else result


def without_others_finalizers(wanted: Document, observed: Document, watch_uid: str) -> Document:
    """Finalizers that are there and were never wished for are others': a hook that repeats them does not mean them."""
    stated = wanted["metadata"].get("finalizers")
    if not stated:
        return wanted
    ours = stated_finalizers(last_applied(observed, watch_uid))
    others = [name for name in observed["metadata"].get("finalizers", ()) if name not in ours]
    kept = [name for name in stated if name not in others]
    metadata = {name: value for name, value in wanted["metadata"].items() if name != "finalizers"}
    return {**wanted, "metadata": {**metadata, **({"finalizers": kept} if kept else {})}}


def last_applied(observed: Document, watch_uid: str) -> Document | None:
    """What was wanted of the object before, for that watched object; None where that is not known."""
    text = observed["metadata"].get("annotations", {}).get(last_applied_annotation(watch_uid), "")
    try:
        found = decode_document(text.encode())
    except ValueError:
        return None  # somebody edited it: nothing is known of what was wanted before
    return found if isinstance(found, dict) and isinstance(found.get("metadata"), dict) else None


def stated_finalizers(applied: Document | None) -> tuple[str, ...]:
    """The finalizers that stand in a record of what was wanted."""
    return tuple((applied or {}).get("metadata", {}).get("finalizers", ()))


def _without_annotation(document: Document, name: str) -> Document:
    annotations = document["metadata"].get("annotations", {})
    if name not in annotations:
        return document
    metadata = {field: value for field, value in document["metadata"].items() if field != "annotations"}
    kept = {key: text for key, text in annotations.items() if key != name}
    return {**document, "metadata": {**metadata, **({"annotations": kept} if kept else {})}}


def _compact(value: Any, *, empty: bool = False) -> Any:
    """Without the nulls that stand where the last field of an object or the last item of a list was taken out.

    With `empty` without objects and lists that have nothing in them either.
    """
    if isinstance(value, dict):
        children = {name: _compact(child, empty=empty) for name, child in value.items()}
        return {
            name: child for name, child in children.items() if child is not None and not (empty and child in ({}, []))
        }
    if isinstance(value, list):
        return [_compact(child, empty=empty) for child in value]
    return value
