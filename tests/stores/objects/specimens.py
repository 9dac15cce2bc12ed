"""Random requests on a resource that has every kind of list and map, and what our functions make of them."""

import string
from typing import Any

import msgspec
from hypothesis import strategies as st

from quartermaster.stores.objects.apply import apply_document, track_update
from quartermaster.support.errors import ApplyConflictError, FieldConflict, InvalidError

GROUP, VERSION, PLURAL = "judge.quartermaster.test", "v1", "specimens"
API_VERSION = f"{GROUP}/{VERSION}"
TEXT = {"type": "string"}
NUMBER = {"type": "integer"}
LEAVES = {"type": "object", "properties": {"x": TEXT, "y": NUMBER}}


def keyed(keys: list[str], properties: dict[str, Any]) -> dict[str, Any]:
    items = {
        "type": "object",
        "required": [k for k in keys if "default" not in properties[k]],
        "properties": properties,
    }
    return {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys, "items": items}


BODY = {
    "type": "object",
    "properties": {
        "zone": NUMBER,
        "name": TEXT,
        "enabled": {"type": "boolean"},
        "ratio": {"type": "number"},
        "when": {"type": "string", "format": "date-time"},
        "devices": {"type": "array", "items": TEXT},
        "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": TEXT},
        "numbers": {"type": "array", "x-kubernetes-list-type": "set", "items": NUMBER},
        "ports": keyed(["protocol", "port"], {"port": NUMBER, "protocol": {**TEXT, "default": "TCP"}, "note": TEXT}),
        "parts": keyed(["name"], {
            "name": TEXT,
            "value": TEXT,
            "leaves": LEAVES,
            "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": TEXT},
            "parts": keyed(["id"], {"id": NUMBER, "value": TEXT}),
        }),
        "options": {"type": "object", "additionalProperties": TEXT},
        "limits": {"type": "object", "additionalProperties": LEAVES},
        "affinity": {**LEAVES, "x-kubernetes-map-type": "atomic"},
        "leaves": {"type": "object", "properties": {"leaves": LEAVES, "x": TEXT}},
        "either": {"x-kubernetes-int-or-string": True, "anyOf": [NUMBER, TEXT]},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "half": {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {"leaves": LEAVES}},
        "maybe": {**TEXT, "nullable": True},
        "perhaps": {**LEAVES, "nullable": True},
    },
}  # fmt: skip
SCHEMA = {"type": "object", "properties": {"spec": BODY, "status": BODY}}
words = st.sampled_from(["a", "b", "c", 'q"<&é'])
few = st.integers(1, 3)
leaves = st.fixed_dictionaries({}, optional={"x": words, "y": few})
word_sets = st.lists(words, max_size=3, unique=True)
free = st.recursive(
    st.one_of(words, few, st.booleans(), st.none(), st.just(1.5)),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.sampled_from("abc"), inner, max_size=2)),
    max_leaves=4,
)
loose = st.dictionaries(st.sampled_from("abc"), free, max_size=2)


def items(keys: dict[str, Any], optional: dict[str, Any]) -> Any:
    item = st.fixed_dictionaries(keys, optional=optional)
    return st.lists(item, max_size=3, unique_by=lambda one: tuple(one.get(key) for key in keys))


ports = st.lists(
    st.fixed_dictionaries({"port": few}, optional={"protocol": st.sampled_from(["TCP", "UDP"]), "note": words}),
    max_size=3,
    unique_by=lambda port: (port["port"], port.get("protocol", "TCP")),
)
parts = items(
    {"name": words},
    {"value": words, "leaves": leaves, "tags": word_sets, "parts": items({"id": few}, {"value": words})},
)
FIELDS = {
    "zone": few,
    "name": words,
    "enabled": st.booleans(),
    "ratio": st.sampled_from([1, 1.5, 2]),
    "when": st.sampled_from(["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"]),
    "devices": st.lists(words, max_size=2),
    "tags": word_sets,
    "numbers": st.lists(st.sampled_from([1, 2, 10]), max_size=3, unique=True),
    "ports": ports,
    "parts": parts,
    "options": st.dictionaries(st.sampled_from("abc"), words, max_size=2),
    "limits": st.dictionaries(st.sampled_from("abc"), leaves, max_size=2),
    "affinity": leaves,
    "leaves": st.fixed_dictionaries({}, optional={"leaves": leaves, "x": words}),
    "either": st.one_of(words, few),
    "free": loose,
    "half": st.tuples(loose, st.fixed_dictionaries({}, optional={"leaves": leaves})).map(lambda two: two[0] | two[1]),
    "maybe": st.one_of(st.none(), words),
    "perhaps": st.one_of(st.none(), leaves),
}
references = st.lists(
    st.fixed_dictionaries(
        {"apiVersion": st.just("v1"), "kind": st.just("Node"), "name": words.filter(str.isalpha), "uid": words},
        optional={"blockOwnerDeletion": st.booleans()},
    ),
    max_size=2,
    unique_by=lambda reference: reference["uid"],
)
MISTAKES = [
    ("tags", ["a", "a"]),
    ("parts", [{"name": "a"}, {"name": "a", "value": "b"}]),
    ("parts", [{"value": "b"}]),
    ("ports", [{"port": 1}, {"port": 1, "protocol": "TCP"}]),
    ("tags", [{}]),
    ("tags", "a"),
    ("zone", "1"),
    ("zone", True),
    ("zone", None),
    ("leaves", []),
    ("leaves", None),
    ("parts", None),
    ("unheard", 1),
]
names = st.sampled_from(["x.test/a", "x.test/b", "x.test/c"])
METADATA = {
    "labels": st.dictionaries(st.sampled_from("ab"), st.sampled_from(["1", "2"]), max_size=2),
    "annotations": st.dictionaries(st.sampled_from("ab"), words, max_size=2),
    "finalizers": st.lists(names, max_size=3, unique=True),
    "ownerReferences": references,
}


class Operation(msgspec.Struct):
    """One request, the same for both."""

    verb: str  # apply | update
    manager: str
    body: dict[str, Any]
    metadata: dict[str, Any]
    subresource: str = ""
    force: bool = False
    aside: dict[str, Any] | None = None  # what is sent for the part that this request must not reach
    managed: str = "kept"  # kept | absent | reset | first: what an update says of the owners
    mistake: tuple[str, Any] | None = None  # a field that makes an apply wrong


def some_of(pool: dict[str, Any]) -> Any:
    return st.fixed_dictionaries({}, optional=pool)


@st.composite
def sequences(draw: Any) -> list[Operation]:
    """Several managers on few fields, so that they meet."""
    fields = draw(st.lists(st.sampled_from(sorted(FIELDS)), min_size=1, max_size=4, unique=True))
    entries = draw(st.lists(st.sampled_from(sorted(METADATA)), max_size=2, unique=True))
    operation = st.builds(
        Operation,
        verb=st.sampled_from(["apply", "apply", "apply", "update"]),
        manager=st.sampled_from(["ann", "bob", "cat"]),
        body=some_of({name: FIELDS[name] for name in fields}),
        metadata=some_of({name: METADATA[name] for name in entries}),
        subresource=st.sampled_from(["", "", "", "status"]),
        force=st.booleans(),
        aside=st.none() | some_of({name: FIELDS[name] for name in fields}),
        managed=st.sampled_from(["kept", "kept", "kept", "absent", "first", "reset"]),
        mistake=st.sampled_from([None] * 40 + MISTAKES),
    )
    return draw(st.lists(operation, min_size=2, max_size=10))


@st.composite
def crowds(draw: Any) -> list[Operation]:
    """More updaters than a document keeps apart, each with a field of its own."""
    names = st.sampled_from([f"m{letter}" for letter in string.ascii_lowercase])
    managers = draw(st.lists(names, min_size=11, max_size=15, unique=True))
    managers += draw(st.lists(st.sampled_from(["a", "ancient-changes", "zed", "ma"]), max_size=3))
    body: dict[str, Any] = {"options": {}}
    operations = []
    for number, manager in enumerate(managers):
        body = {"options": {**body["options"], f"k{number}": "1"}}
        subresource = draw(st.sampled_from(["", "", "status"])) if number else ""
        operations.append(Operation("update", manager, body, {}, subresource=subresource, managed="absent"))
    return operations


class Answer(msgspec.Struct):
    """What one side says: the document that is stored now, or who is in the way, or that it is refused."""

    document: dict[str, Any] | None = None
    conflicts: tuple[FieldConflict, ...] = ()
    refused: str = ""


def answer_of(operation: Operation, live: dict[str, Any] | None, sent: dict[str, Any], now: str) -> Answer:
    """Our answer. What the object store does around the functions is done here in its shortest form."""
    common: dict[str, Any] = {"manager": operation.manager, "api_version": API_VERSION, "now": now}
    common["subresource"] = operation.subresource
    if operation.verb == "update":
        new = with_default_keys(sent)
        if live is not None and operation.subresource:
            new = {**live, "status": new["status"]}
        else:
            new.pop("status", None)
            if live is not None and "status" in live:
                new["status"] = live["status"]
        return Answer(document=track_update(SCHEMA, live, as_decoded(new), **common))
    try:
        new = apply_document(SCHEMA, live, sent, force=operation.force, **common)
    except ApplyConflictError as error:
        return Answer(conflicts=error.conflicts)
    except InvalidError as error:
        return Answer(refused=str(error))
    return Answer(document=with_default_keys(new))


def with_default_keys(document: dict[str, Any]) -> dict[str, Any]:
    result = msgspec.json.decode(msgspec.json.encode(document))
    for part in ("spec", "status"):
        for port in (result.get(part) or {}).get("ports") or []:
            port.setdefault("protocol", "TCP")
    return result


def as_decoded(document: dict[str, Any]) -> dict[str, Any]:
    """A server reads metadata into a struct, which knows no empty lists and maps."""
    metadata = document["metadata"]
    kept = {name: value for name, value in metadata.items() if value or name == "managedFields"}
    return {**document, "metadata": kept}


def document_of(operation: Operation, live: dict[str, Any] | None, name: str) -> dict[str, Any]:
    metadata = {**operation.metadata, "name": name}
    sent = {"apiVersion": API_VERSION, "kind": "Specimen", "metadata": metadata}
    parts = ("status", "spec") if operation.subresource else ("spec", "status")
    sent[parts[0]] = operation.body
    if operation.aside is not None:
        sent[parts[1]] = operation.aside
    if operation.mistake is not None and operation.verb == "apply":
        sent[parts[0]] = {**operation.body, operation.mistake[0]: operation.mistake[1]}
    if operation.verb == "update" and live is not None:
        metadata["resourceVersion"] = live["metadata"]["resourceVersion"]
        metadata["uid"] = live["metadata"]["uid"]
        stored = live["metadata"].get("managedFields", [])
        if operation.managed != "absent":
            metadata["managedFields"] = {"kept": stored, "first": stored[:1], "reset": [{}]}[operation.managed]
    return sent


def has_forbidden_null(schema: dict[str, Any], value: Any) -> bool:
    """An apply may leave null where a list or object lost its last item; validation refuses it, there and here."""
    if value is None:
        return not schema.get("nullable")
    if isinstance(value, dict):
        known = schema.get("properties", {})
        parts = [(known.get(name) or schema.get("additionalProperties"), part) for name, part in value.items()]
    else:
        parts = [(schema.get("items"), part) for part in value] if isinstance(value, list) else []
    return any(has_forbidden_null(part_schema, part) for part_schema, part in parts if part_schema is not None)
