"""What holds for every sequence of applies and updates, without a server to ask."""

from typing import Any

from hypothesis import given, settings
from tests.stores.objects.specimens import (
    SCHEMA,
    Operation,
    answer_of,
    document_of,
    sequences,
)

from quartermaster.stores.objects.fields import FieldSet, difference, parse, union
from quartermaster.stores.objects.merge import compare, merge
from quartermaster.stores.objects.structure import fields_of, type_of

TYPE = type_of(SCHEMA)
NOBODYS: FieldSet = {
    "f:apiVersion": {},
    "f:kind": {},
    "f:metadata": {".": {}, "f:name": {}, "f:uid": {}, "f:resourceVersion": {}, "f:managedFields": {}},
}


def run(operations: list[Operation]) -> list[tuple[Operation, dict[str, Any], dict[str, Any]]]:
    """Every operation that succeeded, with what was sent and what came of it."""
    live: dict[str, Any] | None = None
    done = []
    for number, operation in enumerate(operations):
        if operation.managed == "reset" or (live is None and operation.subresource):
            continue
        sent = document_of(operation, live, "a")
        answer = answer_of(operation, live, sent, f"2026-01-01T00:00:{number:02}Z")
        if answer.document is not None:
            live = {**answer.document, "metadata": {**answer.document["metadata"], "uid": "u", "resourceVersion": "1"}}
            done.append((operation, sent, live))
    return done


def owned_by(document: dict[str, Any], operation: Operation) -> FieldSet:
    for entry in document["metadata"].get("managedFields", []):
        who = (entry["manager"], entry["operation"], entry.get("subresource", ""))
        if who == (operation.manager, operation.verb.capitalize(), operation.subresource):
            return parse(entry["fieldsV1"])
    return {}


@settings(deadline=None)
@given(sequences())
def test_an_apply_repeated_changes_nothing(operations: list[Operation]) -> None:
    for operation, sent, document in run(operations):
        if operation.verb == "apply" and all(sent["metadata"].values()) and "status" not in sent:
            again = answer_of(operation, document, sent, "2026-02-02T00:00:00Z")
            assert again.document == document


@settings(deadline=None)
@given(sequences())
def test_an_applier_owns_exactly_what_it_states(operations: list[Operation]) -> None:
    for operation, sent, document in run(operations):
        if operation.verb == "apply":
            reached = ("status",) if operation.subresource else ("apiVersion", "kind", "metadata", "spec")
            stated = fields_of(TYPE, {name: sent[name] for name in reached if name in sent})
            assert owned_by(document, operation) == difference(stated, NOBODYS)


@settings(deadline=None)
@given(sequences())
def test_what_was_applied_is_what_is_there(operations: list[Operation]) -> None:
    for operation, sent, document in run(operations):
        if operation.verb == "apply":
            part = "status" if operation.subresource else "spec"
            before = {part: document.get(part)}
            assert merge(TYPE, before, {part: sent[part]}) == before


@settings(deadline=None)
@given(sequences())
def test_every_leaf_has_an_owner(operations: list[Operation]) -> None:
    for _, _, document in run(operations):
        owned: FieldSet = {}
        for entry in document["metadata"].get("managedFields", []):
            owned = union(owned, parse(entry["fieldsV1"]))
        leaves = difference(fields_of(TYPE, document), NOBODYS)
        assert difference(leaves, owned) == {}


@settings(deadline=None)
@given(sequences())
def test_what_is_owned_is_there(operations: list[Operation]) -> None:
    for _, _, document in run(operations):
        everything = compare(TYPE, {}, document, frozenset()).added
        for entry in document["metadata"].get("managedFields", []):
            assert difference(parse(entry["fieldsV1"]), everything) == {}
