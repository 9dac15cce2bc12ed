"""Sets of field paths: their form, their arithmetic, and how paths are spelled."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quartermaster.stores.objects.fields import (
    FieldSet,
    difference,
    insert,
    intersection,
    key_step,
    ordered,
    parse,
    paths,
    spell,
    union,
    value_step,
)

READY = 'k:{"type":"Ready"}'

steps = st.sampled_from(["f:a", "f:b", READY, "v:1"])
some_paths = st.lists(st.lists(steps, min_size=1, max_size=3).map(tuple), max_size=6)


def set_of(*members: tuple[str, ...]) -> FieldSet:
    result: FieldSet = {}
    for path in members:
        insert(result, path)
    return result


def members(fields: FieldSet) -> set[tuple[str, ...]]:
    return set(paths(fields))


def test_a_leaf_is_an_empty_object() -> None:
    assert set_of(("f:spec", "f:zone")) == {"f:spec": {"f:zone": {}}}


def test_a_field_that_belongs_to_the_set_beside_its_children_has_a_dot() -> None:
    both = {"f:spec": {".": {}, "f:zone": {}}}
    assert set_of(("f:spec",), ("f:spec", "f:zone")) == both
    assert set_of(("f:spec", "f:zone"), ("f:spec",)) == both


def test_the_difference_takes_a_parent_and_leaves_its_children() -> None:
    assert difference({"f:spec": {".": {}, "f:zone": {}}}, {"f:spec": {}}) == {"f:spec": {"f:zone": {}}}


def test_a_difference_that_takes_nothing_is_the_same_object() -> None:
    fields = {"f:spec": {"f:zone": {}}}
    assert difference(fields, {"f:spec": {}, "f:status": {}}) is fields


@pytest.mark.slow
@given(some_paths, some_paths)
def test_the_arithmetic_is_that_of_sets_of_paths(left: list[tuple[str, ...]], right: list[tuple[str, ...]]) -> None:
    one, two = set_of(*left), set_of(*right)
    assert members(union(one, two)) == set(left) | set(right)
    assert members(difference(one, two)) == set(left) - set(right)
    assert members(intersection(one, two)) == set(left) & set(right)


@pytest.mark.slow
@given(some_paths, some_paths)
def test_no_operation_changes_its_arguments(left: list[tuple[str, ...]], right: list[tuple[str, ...]]) -> None:
    one, two = set_of(*left), set_of(*right)
    for operation in (union, difference, intersection):
        operation(one, two)
    assert one == set_of(*left)
    assert two == set_of(*right)


@pytest.mark.slow
@given(some_paths)
def test_what_is_written_is_read_as_it_was(left: list[tuple[str, ...]]) -> None:
    assert parse(ordered(set_of(*left))) == set_of(*left)


def test_keys_are_written_in_order_the_dot_first() -> None:
    fields = {"v:2": {}, "f:b": {"f:z": {}, ".": {}, "f:a": {}}, "f:a": {}}
    assert list(ordered(fields)) == ["f:a", "f:b", "v:2"]
    assert list(ordered(fields)["f:b"]) == [".", "f:a", "f:z"]


@pytest.mark.parametrize(
    ("value", "step"),
    [
        ("a", 'v:"a"'),
        ('say "é"', 'v:"say \\"é\\""'),
        ("<&>", 'v:"\\u003c\\u0026\\u003e"'),
        ("\b\\b\n", 'v:"\\u0008\\\\b\\n"'),
        (1, "v:1"),
        (1.0, "v:1"),
        (1.5, "v:1.5"),
        (True, "v:true"),
    ],
)
def test_a_value_is_written_as_the_server_writes_it(value: Any, step: str) -> None:
    assert value_step(value) == step


def test_an_item_is_named_by_its_keys() -> None:
    assert key_step([("port", 80), ("protocol", "TCP")]) == 'k:{"port":80,"protocol":"TCP"}'


@pytest.mark.parametrize(
    ("path", "spelling"),
    [
        (("f:spec", "f:zone"), ".spec.zone"),
        (("f:status", "f:conditions", READY, "f:status"), '.status.conditions[type="Ready"].status'),
        (("f:ports", 'k:{"port":80,"protocol":"TCP"}'), '.ports[port=80,protocol="TCP"]'),
        (("f:tags", 'v:"a\\n"'), '.tags[="a\\n"]'),
        (("f:numbers", "v:10"), ".numbers[=10]"),
        (("f:devices", "i:0"), ".devices[0]"),
    ],
)
def test_a_path_is_spelled_as_in_a_conflict_of_the_server(path: tuple[str, ...], spelling: str) -> None:
    assert spell(path) == spelling


def test_another_spelling_of_a_key_is_made_our_own() -> None:
    assert parse({'k:{ "b": 1, "a": "x"}': {}, "v: 3": {"f:c": {}}}) == {'k:{"a":"x","b":1}': {}, "v:3": {"f:c": {}}}


def test_steps_of_an_unknown_kind_are_dropped() -> None:
    assert parse({"f:a": {}, "x:future": {}}) == {"f:a": {}}


@pytest.mark.parametrize("text", [{"a": {}}, {"": {}}, {"v:{": {}}, {"k:[]": {}}, {"i:x": {}}])
def test_what_is_no_path_is_refused(text: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"fieldsV1|invalid literal"):
        parse(text)
