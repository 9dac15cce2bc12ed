"""What holds for every sequence of applies and updates, without a server to ask."""

from typing import Any

import pytest
from hypothesis import given, settings

from quartermaster.stores.objects.fields import FieldSet, difference, parse, union
from quartermaster.stores.objects.merge import compare, merge
from quartermaster.stores.objects.structure import fields_of, type_of
from tests.stores.objects.specimens import (
    SCHEMA,
    Operation,
    answer_of,
    document_of,
    has_forbidden_null,
    sequences,
    with_default_keys,
)

Document = dict[str, Any]
TYPE = type_of(SCHEMA)
NOBODYS: FieldSet = {
    "f:apiVersion": {},
    "f:kind": {},
    "f:metadata": {".": {}, "f:name": {}, "f:uid": {}, "f:resourceVersion": {}, "f:managedFields": {}},
}
EMPTY_MAPS: FieldSet = {"f:metadata": {"f:annotations": {}, "f:labels": {}}}


def solid(value: Any) -> Any:
    """Without empty and null parts: what becomes of these is custom, not law. None if nothing is left."""
    if isinstance(value, dict):
        return {name: solid(part) for name, part in value.items() if solid(part) is not None} or None
    if isinstance(value, list):
        return [solid(part) for part in value if solid(part) is not None] or None
    return value


def run(operations: list[Operation]) -> list[tuple[Operation, Document, Document]]:
    """Every operation that succeeded, with what was sent and what came of it."""
    live: Document | None = None
    done = []
    for number, operation in enumerate(operations):
        if live is None and operation.subresource:
            continue
        sent = document_of(operation, live, "a")
        sent["metadata"].pop("managedFields", None)
        # Nobody owns a default that was filled in, so keys are stated.
        sent = with_default_keys(solid(sent))
        sent.setdefault("status" if operation.subresource else "spec", {"zone": 1})
        answer = answer_of(operation, live, sent, f"2026-01-01T00:00:{number:02}Z")
        if answer.document is not None and not has_forbidden_null(SCHEMA, answer.document):
            live = {**answer.document, "metadata": {**answer.document["metadata"], "uid": "u", "resourceVersion": "1"}}
            done.append((operation, sent, live))
    return done


def owned_by(document: Document, operation: Operation) -> FieldSet:
    for entry in document["metadata"].get("managedFields", []):
        who = (entry["manager"], entry["operation"], entry.get("subresource", ""))
        if who == (operation.manager, operation.verb.capitalize(), operation.subresource):
            return parse(entry["fieldsV1"])
    return {}


def an_apply_repeated_changes_nothing(operation: Operation, sent: Document, document: Document) -> None:
    if operation.verb == "apply":
        assert answer_of(operation, document, sent, "2026-02-02T00:00:00Z").document == document


def an_applier_owns_exactly_what_it_states(operation: Operation, sent: Document, document: Document) -> None:
    if operation.verb == "apply":
        reached = ("status",) if operation.subresource else ("apiVersion", "kind", "metadata", "spec")
        stated = fields_of(TYPE, {name: sent[name] for name in reached if name in sent})
        assert owned_by(document, operation) == difference(stated, NOBODYS)


def what_was_applied_is_what_is_there(operation: Operation, sent: Document, document: Document) -> None:
    if operation.verb == "apply":
        part = "status" if operation.subresource else "spec"
        there = {part: document[part]}
        assert merge(TYPE, there, {part: sent[part]}) == there


def every_leaf_has_an_owner(_operation: Operation, _sent: Document, document: Document) -> None:
    owned: FieldSet = {}
    for entry in document["metadata"].get("managedFields", []):
        owned = union(owned, parse(entry["fieldsV1"]))
    assert difference(difference(fields_of(TYPE, document), NOBODYS), owned) == {}


def what_is_owned_is_there(_operation: Operation, _sent: Document, document: Document) -> None:
    """But for labels and annotations as such: when all are gone, an API server leaves them to who wrote the first."""
    everything = union(compare(TYPE, {}, document, frozenset()).added, EMPTY_MAPS)
    for entry in document["metadata"].get("managedFields", []):
        assert difference(parse(entry["fieldsV1"]), everything) == {}


def test_who_wrote_the_first_annotation_still_owns_the_map_when_an_applier_took_the_last_one_away() -> None:
    """As the API server does it: seen there with these four operations."""
    plain = Operation("apply", "ann", {}, {})
    written = Operation("update", "ann", {}, {"annotations": {"a": "b"}})
    taken = Operation("apply", "ann", {}, {"annotations": {"a": "a"}}, force=True)
    *_, (_, _, document) = run([plain, written, taken, plain])
    assert "annotations" not in document["metadata"]
    left = [entry for entry in document["metadata"]["managedFields"] if entry["operation"] == "Update"]
    assert [entry["fieldsV1"] for entry in left] == [{"f:metadata": {"f:annotations": {}}}]


LAWS = (
    an_apply_repeated_changes_nothing,
    an_applier_owns_exactly_what_it_states,
    what_was_applied_is_what_is_there,
    every_leaf_has_an_owner,
    what_is_owned_is_there,
)


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(sequences())
def test_the_laws_hold_after_every_step(operations: list[Operation]) -> None:
    for step in run(operations):
        for law in LAWS:
            law(*step)
