"""Who owns which fields of a document: `metadata.managedFields`, found by manager and written in the server's order.

An entry is known by manager, operation and subresource, and that of an update by its apiVersion as well. Entries stay
the dicts that they are in the document, so one that nobody touches costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from quartermaster.stores.objects.fields import FieldSet, ordered, parse, union

Entry = dict[str, Any]

APPLY = "Apply"
UPDATE = "Update"
_UPDATERS_LIMIT = 10
_OLD_UPDATES = "ancient-changes"


class OwnerKey(NamedTuple):
    """What tells entries apart."""

    manager: str
    operation: str
    api_version: str
    subresource: str


Owners = dict[OwnerKey, Entry]


def owner_key(manager: str, operation: str, api_version: str, subresource: str) -> OwnerKey:
    """An applier stays the same when it changes the version that it applies in."""
    return OwnerKey(manager, operation, "" if operation == APPLY else api_version, subresource)


def fields_owned(entry: Entry) -> FieldSet:
    fields: FieldSet = entry.get("fieldsV1") or {}
    return fields


def with_fields(entry: Entry, fields: FieldSet) -> Entry:
    """The entry with less than it had: what remains of an ordered set is in order."""
    return {**entry, "fieldsV1": fields}


def new_entry(key: OwnerKey, api_version: str, fields: FieldSet, time: str) -> Entry:
    """An entry as the document has it; `fields` must be in order."""
    entry: Entry = {"manager": key.manager, "operation": key.operation, "apiVersion": api_version}
    if time:
        entry["time"] = time
    entry |= {"fieldsType": "FieldsV1", "fieldsV1": fields}
    if key.subresource:
        entry["subresource"] = key.subresource
    return entry


def owners_of(entries: Iterable[Entry]) -> Owners:
    """The entries of a stored document by what tells them apart."""
    return {
        owner_key(
            entry.get("manager", ""), entry["operation"], entry["apiVersion"], entry.get("subresource", "")
        ): entry
        for entry in entries
    }


def owners_sent(entries: Any) -> Owners | None:
    """Entries as a client sent them; None if they cannot be read, and then those that are stored count."""
    try:
        checked = [_checked(entry) for entry in entries]
    except (ValueError, AttributeError, TypeError):
        return None
    return owners_of(checked)


def _checked(entry: Entry) -> Entry:
    if entry.get("operation") not in (APPLY, UPDATE) or not entry.get("apiVersion"):
        raise ValueError("an entry needs an operation and an apiVersion")
    if entry.get("fieldsType") != "FieldsV1":
        raise ValueError("an entry needs the fieldsType FieldsV1")
    return {**entry, "fieldsV1": ordered(parse(entry.get("fieldsV1") or {}))}


def entries_of(owners: Owners) -> list[Entry]:
    """As they stand in the document: appliers first, then by time, manager, version and subresource."""
    return sorted(owners.values(), key=_position)


def _position(entry: Entry) -> tuple[str, str, str, str, str]:
    get = entry.get
    return entry["operation"], get("time") or "", get("manager", ""), entry["apiVersion"], get("subresource", "")


def cap_updaters(owners: Owners) -> None:
    """Lay the oldest updaters together when there are too many, so that no document grows with its history."""
    updaters = [key for key in owners if key.operation == UPDATE]
    surplus = len(updaters) - _UPDATERS_LIMIT
    if surplus <= 0:
        return
    updaters.sort(key=lambda key: (owners[key].get("time") or "", _identifier(key)))
    first_of: dict[str, OwnerKey] = {}
    for key in updaters:
        if surplus == 0:
            break
        entry = owners[key]
        version = entry["apiVersion"]
        first = first_of.setdefault(version, key)
        if first is key:
            continue
        bucket = owner_key(_OLD_UPDATES, UPDATE, version, "")
        if bucket not in owners:
            owners[bucket] = owners.pop(first)
        fields = union(fields_owned(entry), fields_owned(owners[bucket]))
        owners[bucket] = new_entry(bucket, version, ordered(fields), entry.get("time") or "")
        del owners[key]
        surplus -= 1


def _identifier(key: OwnerKey) -> bytes:
    """The order among updaters of the same second is that of the server's internal names for them."""
    name = {"manager": key.manager, "operation": key.operation, "apiVersion": key.api_version}
    return msgspec.json.encode(name | ({"subresource": key.subresource} if key.subresource else {}))
