"""Server-side apply and the record of who owns which field, as an API server does both for custom resources.

    new = apply_document(schema, live, applied, manager="qm", api_version="coreos.com/v1", force=False, now=now)
    new = track_update(schema, live, new, manager="agent", api_version="coreos.com/v1", now=now, subresource="status")

Pure functions over documents: they change none of their arguments, and the result shares parts with them. Defaults
are not filled in here; an applier does not own what was filled in for it, an updater does: fill in before
`track_update` and after `apply_document`.
"""

from __future__ import annotations

from typing import Any

from quartermaster.stores.objects.fields import FieldSet, difference, intersection, ordered, paths, spell, union
from quartermaster.stores.objects.merge import Comparison, compare, merge, without
from quartermaster.stores.objects.owners import (
    APPLY,
    UPDATE,
    OwnerKey,
    Owners,
    cap_updaters,
    entries_of,
    fields_owned,
    new_entry,
    owner_key,
    owners_of,
    owners_sent,
    with_fields,
)
from quartermaster.stores.objects.structure import (
    Schema,
    Type,
    fields_of,
    problems_of,
    same,
    type_of,
    with_named_fields,
)
from quartermaster.support.errors import ApplyConflictError, FieldConflict, InvalidError, Problem

Document = dict[str, Any]

_NO_MANAGER = "unknown"
_BEFORE_FIRST_APPLY = "before-first-apply"
# Nobody owns what the store sets itself.
_STRIPPED_METADATA = (
    *("name", "namespace", "creationTimestamp", "selfLink", "uid", "clusterName"),
    *("generation", "managedFields", "resourceVersion"),
)
_STRIPPED: FieldSet = {
    "f:apiVersion": {},
    "f:kind": {},
    "f:metadata": {".": {}, **{f"f:{name}": {} for name in _STRIPPED_METADATA}},
}


def track_update(
    schema: Schema,
    live: Document | None,
    new: Document,
    *,
    manager: str,
    api_version: str,
    now: str,
    subresource: str = "",
) -> Document:
    """`new` with its owners: who changes or adds a field owns it alone, and nobody owns what is gone.

    `live` is None for a new object. Owners that a client sent with an update replace those that are stored; one empty
    entry ends the record, which begins again with the next apply.
    """
    stored = _entries(live)
    owners = _owners_for_update(stored, new, subresource)
    if not owners and live is not None:
        return _with_entries(new, [])
    ignored = _ignored(subresource)
    changed = compare(type_of(schema), live or _nothing(new), new, ignored)
    _take(owners, changed, owner_key(manager or _NO_MANAGER, UPDATE, api_version, subresource), now)
    return _with_entries(new, entries_of(owners))


def apply_document(
    schema: Schema,
    live: Document | None,
    applied: Document,
    *,
    manager: str,
    api_version: str,
    force: bool,
    now: str,
    subresource: str = "",
) -> Document:
    """`applied` merged into `live`, with the owners. What the manager applied before, and neither it nor anybody else
    wants now, is gone. Fields that others own with another value are an ApplyConflictError, unless `force` takes them.
    """
    kind = type_of(schema)
    _require_applicable(kind, applied, manager)
    before = _without_entries(live) if live is not None else _nothing(applied)
    ignored = _ignored(subresource)
    owners = owners_of(_entries(live))
    if not owners:
        found = compare(kind, _nothing(before), before, ignored)
        _take(owners, found, owner_key(_BEFORE_FIRST_APPLY, UPDATE, api_version, subresource), now)

    key = owner_key(manager, APPLY, api_version, subresource)
    previous = owners.pop(key, None)
    last = fields_owned(previous) if previous is not None else {}
    wanted = _outside(fields_of(kind, applied), ignored)
    merged = merge(kind, before, applied)
    owned = difference(wanted, _STRIPPED)
    if last and last != owned:
        merged = _pruned(kind, merged, last, [wanted, *(fields_owned(entry) for entry in owners.values())])

    changed = compare(kind, before, merged, ignored)
    conflicts = _conflicts(owners, changed)
    if conflicts and not force:
        raise _conflict_error(applied, conflicts)
    _give_up(owners, changed)
    if owned:
        unchanged = _equal(kind, before, merged)
        time = (previous or {}).get("time", "") if unchanged else now
        owners[key] = new_entry(key, api_version, ordered(owned), time)
    result = _with_others_kept(before, merged, subresource)
    return _with_entries(result, _with_times_kept(kind, live, result, entries_of(owners)))


def _ignored(subresource: str) -> frozenset[str]:
    """Fields of the first level that a write does not reach, and that it therefore neither owns nor takes."""
    return frozenset(("metadata", "spec")) if subresource else frozenset(("status",))


def _nothing(document: Document) -> Document:
    return {name: document[name] for name in ("apiVersion", "kind") if name in document}


def _entries(document: Document | None) -> list[dict[str, Any]]:
    return (document or {}).get("metadata", {}).get("managedFields") or []


def _without_entries(document: Document) -> Document:
    metadata = {name: value for name, value in document.get("metadata", {}).items() if name != "managedFields"}
    return {**document, "metadata": metadata}


def _with_entries(document: Document, entries: list[dict[str, Any]]) -> Document:
    metadata = dict(document.get("metadata") or {})
    metadata.pop("managedFields", None)
    if entries:
        metadata["managedFields"] = entries
    return {**document, "metadata": {name: value for name, value in metadata.items() if value not in ([], {}, None)}}


def _owners_for_update(stored: list[dict[str, Any]], new: Document, subresource: str) -> Owners:
    sent = (new.get("metadata") or {}).get("managedFields")
    if not sent or subresource or sent is stored or sent == stored:
        return owners_of(stored)
    if sent == [{}]:
        return {}
    return owners_sent(sent) or owners_of(stored)


def _give_up(owners: Owners, changed: Comparison) -> None:
    """Take every changed and every removed field from all owners; those who are left with nothing go."""
    touched = union(union(changed.modified, changed.added), changed.removed)
    for key, entry in list(owners.items()):
        fields = fields_owned(entry)
        kept = difference(fields, touched) if touched else fields
        if not kept:
            del owners[key]
        elif kept is not fields:
            owners[key] = with_fields(entry, kept)


def _take(owners: Owners, changed: Comparison, key: OwnerKey, now: str) -> None:
    """Make the updater the only owner of what it changed or added."""
    own_before = owners.get(key)
    _give_up(owners, changed)
    taken = difference(union(changed.modified, changed.added), _STRIPPED)
    if not taken:
        return
    known = owners.get(key)
    fields = union(taken, fields_owned(known)) if known is not None else taken
    # Most writes change again what the writer owns already; its set is then the one that it was.
    had = fields_owned(own_before) if own_before is not None else {}
    owners[key] = new_entry(key, key.api_version, had if had == fields else ordered(fields), now)
    cap_updaters(owners)


def _pruned(kind: Type, merged: Document, last: FieldSet, wanted: list[FieldSet]) -> Document:
    """`merged` without what was applied last time and is now in nobody's set."""
    last = with_named_fields(kind, last)
    owned: FieldSet = {}
    for fields in wanted:
        owned = union(owned, fields)
    everything = with_named_fields(kind, fields_of(kind, merged))
    pruned = without(kind, merged, last)
    keep = union(with_named_fields(kind, fields_of(kind, pruned)), with_named_fields(kind, owned))
    pruned = without(kind, merged, difference(everything, keep))
    gone = difference(everything, with_named_fields(kind, fields_of(kind, pruned)))
    # A field goes only if this manager had applied it: what nobody owns stays.
    result: Document = without(kind, merged, intersection(gone, last))
    return result


def _outside(fields: FieldSet, ignored: frozenset[str]) -> FieldSet:
    return {step: node for step, node in fields.items() if step[2:] not in ignored}


def _with_others_kept(before: Document, merged: Document, subresource: str) -> Document:
    """A write to the status changes nothing else, and one to the object does not change the status."""
    result, source = (dict(before), merged) if subresource else (dict(merged), before)
    result.pop("status", None)
    if "status" in source:
        result["status"] = source["status"]
    return result


def _with_times_kept(
    kind: Type, live: Document | None, result: Document, entries: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """The stored entries, if nothing but times would change: an apply that says nothing new must not write."""
    stored = _entries(live)
    if live is None or len(stored) != len(entries):
        return entries
    if any({**old, "time": ""} != {**new, "time": ""} for old, new in zip(stored, entries, strict=True)):
        return entries
    return stored if _equal(kind, _without_entries(live), result) else entries


def _equal(kind: Type, left: Document, right: Document) -> bool:
    return left == right if kind.exact else same(left, right)


def _conflicts(owners: Owners, changed: Comparison) -> list[FieldConflict]:
    claimed = union(changed.modified, changed.added)
    found = {
        FieldConflict(key.manager, spell(path))
        for key, entry in owners.items()
        for path in paths(intersection(fields_owned(entry), claimed))
    }
    return sorted(found)


def _conflict_error(applied: Document, conflicts: list[FieldConflict]) -> ApplyConflictError:
    managers = sorted({conflict.manager for conflict in conflicts})
    fields = ", ".join(f'{conflict.path} (owned by "{conflict.manager}")' for conflict in conflicts)
    return ApplyConflictError(
        f"cannot apply {_describe(applied)}: {fields}",
        conflicts,
        hint=f"leave these fields to {', '.join(managers)}, apply their values, or force the apply to take them over",
    )


def _require_applicable(kind: Type, applied: Document, manager: str) -> None:
    if not manager:
        problem = Problem("manager", "is missing", "an apply needs the name of its field manager")
        raise InvalidError(f"cannot apply {_describe(applied)}", [problem])
    if (applied.get("metadata") or {}).get("managedFields") is not None:
        problems = [Problem(".metadata.managedFields", "must not be set in an apply", "leave it out")]
    else:
        problems = list(problems_of(kind, applied))
    if problems:
        raise InvalidError(f"cannot apply {_describe(applied)}", problems)


def _describe(document: Document) -> str:
    return f'{str(document.get("kind", "object")).lower()} "{(document.get("metadata") or {}).get("name", "")}"'
