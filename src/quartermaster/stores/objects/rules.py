"""What an API server does to a document when it is written: pure, over plain documents.

Each function takes what is stored and what was sent, and returns what is to be stored. Nothing here knows keys,
revisions or transactions.
"""

from __future__ import annotations

from typing import Any

from quartermaster.resources.codec import Document
from quartermaster.resources.kind import Kind
from quartermaster.resources.references import FOREGROUND, ORPHAN
from quartermaster.stores.base import Propagation
from quartermaster.support.errors import ConflictError, InvalidError, Problem

# Set by the store alone; whatever is sent is replaced by what is stored.
_STORE_OWNED = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")
_FINALIZER_OF: dict[Propagation, tuple[str, ...]] = {"Background": (), "Foreground": (FOREGROUND,), "Orphan": (ORPHAN,)}


def describe(kind: Kind, document: Document) -> str:
    """As a person names an object: storagenode "a/b"."""
    meta = document.get("metadata", {})
    name = meta.get("name") or f"{meta.get('generateName', '')}…"
    return named(kind, meta.get("namespace", ""), name)


def named(kind: Kind, namespace: str, name: str) -> str:
    return f'{kind.singular} "{namespace}/{name}"' if namespace else f'{kind.singular} "{name}"'


def prepare_create(kind: Kind, sent: Document, *, uid: str, now: str) -> Document:
    """The first form of an object. The status waits for `update_status`."""
    meta = dict(sent.get("metadata", {}))
    if meta.get("resourceVersion"):
        problem = Problem("metadata.resourceVersion", "must not be set on a new object", "leave it out")
        raise InvalidError(f"cannot create {describe(kind, sent)}", [problem])
    for name in (*_STORE_OWNED, "resourceVersion", "managedFields"):
        meta.pop(name, None)
    meta["uid"] = uid
    meta["creationTimestamp"] = now
    if kind.generation:
        meta["generation"] = 1
    new = {**sent, "metadata": meta}
    if kind.status_subresource:
        new.pop("status", None)
    return new


def prepare_update(kind: Kind, stored: Document, sent: Document) -> Document:
    """`sent` over `stored`: what only the store may set stays, the status stays, the generation counts."""
    old_meta = stored["metadata"]
    meta = dict(sent.get("metadata", {}))
    check_uid(kind, stored, meta.get("uid", ""))
    _forbid_new_finalizers(kind, stored, meta)
    for name in _STORE_OWNED:
        meta.pop(name, None)
        if name in old_meta:
            meta[name] = old_meta[name]
    meta.pop("resourceVersion", None)
    if not meta.get("managedFields") and "managedFields" in old_meta:
        meta["managedFields"] = old_meta["managedFields"]
    new = {**sent, "metadata": meta}
    if kind.status_subresource:
        new.pop("status", None)
        if "status" in stored:
            new["status"] = stored["status"]
    if kind.generation and _spec_of(new) != _spec_of(stored):
        meta["generation"] = old_meta.get("generation", 0) + 1
    return new


def prepare_status(kind: Kind, stored: Document, sent: Document) -> Document:
    """Only the status of `sent` counts."""
    check_uid(kind, stored, sent.get("metadata", {}).get("uid", ""))
    new = dict(stored)
    new.pop("status", None)
    if "status" in sent:
        new["status"] = sent["status"]
    return new


def prepare_delete(kind: Kind, stored: Document, propagation: Propagation, *, now: str) -> Document | None:
    """The object marked for deletion, or None when nothing holds it back."""
    old_meta = stored["metadata"]
    kept = [f for f in old_meta.get("finalizers", ()) if f not in (FOREGROUND, ORPHAN)]
    # Nobody would take these off an object that the collector does not look at.
    finalizers = [*kept, *(() if kind.stands_alone else _FINALIZER_OF[propagation])]
    if not finalizers:
        return None
    meta: dict[str, Any] = {**old_meta, "finalizers": finalizers}
    if "deletionTimestamp" not in old_meta:
        meta["deletionTimestamp"] = now
        meta["deletionGracePeriodSeconds"] = 0
        if kind.generation:
            meta["generation"] = old_meta.get("generation", 0) + 1
    return {**stored, "metadata": meta}


def is_released(document: Document) -> bool:
    """Marked for deletion, and nothing holds it back any more."""
    meta = document["metadata"]
    return bool(meta.get("deletionTimestamp")) and not meta.get("finalizers")


def check_uid(kind: Kind, stored: Document, uid: str) -> None:
    have = stored["metadata"].get("uid", "")
    if uid and uid != have:
        raise ConflictError(
            f"cannot write {describe(kind, stored)}: it has the uid {have}, not {uid}",
            hint="it was deleted and made again in between: read it again",
        )


def null_problems(schema: Document, value: Any, path: str = "") -> list[Problem]:
    """Nulls where the schema has no default for them.

    An apply that takes the last field out of an object leaves null in its place, and an API server refuses that.
    """
    found: list[Problem] = []
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        for name, child in value.items():
            inner = properties.get(name) or schema.get("additionalProperties") or {}
            where = f"{path}.{name}" if path else name
            if child is None and "default" not in inner:
                found.append(Problem(where, "is null", "leave it out, or give it a value"))
            found += null_problems(inner, child, where)
    elif isinstance(value, list):
        for position, child in enumerate(value):
            found += null_problems(schema.get("items", {}), child, f"{path}[{position}]")
    return found


def _forbid_new_finalizers(kind: Kind, stored: Document, meta: dict[str, Any]) -> None:
    if "deletionTimestamp" not in stored["metadata"]:
        return
    have = stored["metadata"].get("finalizers", [])
    added = [f for f in meta.get("finalizers", []) if f not in have]
    if added:
        problem = Problem("metadata.finalizers", f"{', '.join(added)} cannot be added: the object is being deleted")
        raise InvalidError(f"cannot update {describe(kind, stored)}", [problem])


def _spec_of(document: Document) -> Document:
    return {k: v for k, v in document.items() if k not in ("metadata", "status", "apiVersion", "kind")}
