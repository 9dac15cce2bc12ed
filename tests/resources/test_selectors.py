"""Selectors choose as kubectl's do."""

import pytest

from quartermaster.resources import FieldSelector, LabelSelector, StorageNode
from quartermaster.resources.selectors import LabelSelectorRequirement
from quartermaster.support.errors import UsageError
from tests.resources.documents import storage_node

LABELS = {"app": "web", "tier": "front", "weight": "5", "empty": ""}


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        ("", True),
        ("app=web", True),
        ("app==web", True),
        ("app=db", False),
        ("app!=db", True),
        ("absent!=db", True),
        ("app!=web", False),
        ("app in (web, db)", True),
        ("app in (db)", False),
        ("absent in (db)", False),
        ("app notin (db)", True),
        ("absent notin (db)", True),
        ("app notin(web,db)", False),
        ("app", True),
        ("absent", False),
        ("!absent", True),
        ("! app", False),
        ("empty=", True),
        ("app=", False),
        ("empty in (,x)", True),
        ("weight>4", True),
        ("weight<5", False),
        ("app>4", False),
        ("app=web,tier=front", True),
        (" app = web , !absent , tier in (front) ", True),
        ("app=web,tier=back", False),
        ("in=x", False),
        ("notin", False),
    ],
)
def test_a_label_selector_chooses(text: str, chosen: bool) -> None:
    assert LabelSelector.parse(text).matches(LABELS) is chosen


@pytest.mark.parametrize(
    "text",
    ["app=web,", ",", "app==web=x", "app in web", "app in (web", "app in ()", "(app)", "a b", "-a=b", "a=-b", "a>b"],
)
def test_a_label_selector_that_cannot_be_read_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match="cannot read the label selector") as refused:
        LabelSelector.parse(text)
    assert "for example" in refused.value.hint


def test_a_selector_in_an_object_needs_all_labels_and_all_expressions() -> None:
    selector = LabelSelector(
        match_labels={"app": "web"},
        match_expressions=(LabelSelectorRequirement(key="tier", operator="In", values=("front", "back")),),
    )
    assert selector.matches(LABELS)
    assert not selector.matches({"app": "web"})
    assert not selector.matches({"tier": "front"})


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        ("", True),
        ("spec.type=glusterfs", True),
        ("spec.type==ceph", False),
        ("spec.type!=ceph", True),
        ("metadata.name=a", True),
        ("metadata.namespace=", True),
        ("metadata.name=a,spec.type=ceph", False),
    ],
)
def test_a_field_selector_chooses(text: str, chosen: bool) -> None:
    assert FieldSelector.parse(text, StorageNode).matches(storage_node()) is chosen


def test_a_field_selector_tells_which_name_it_needs() -> None:
    assert FieldSelector.parse("metadata.name=a,spec.type!=x", StorageNode).required("metadata.name") == "a"
    assert FieldSelector.parse("metadata.name!=a", StorageNode).required("metadata.name") is None


def test_commas_and_equal_signs_in_a_value_are_escaped() -> None:
    (requirement,) = FieldSelector.parse(r"metadata.name=a\,b\=c\\d", StorageNode).requirements
    assert requirement.value == r"a,b=c\d"


def test_a_field_that_the_kind_does_not_declare_cannot_be_selected() -> None:
    with pytest.raises(UsageError, match=r'cannot select storagenodes by the field "spec.zone"') as refused:
        FieldSelector.parse("spec.zone=1", StorageNode)
    assert "spec.type" in refused.value.hint


def test_a_field_selector_without_an_operator_is_refused() -> None:
    with pytest.raises(UsageError, match="cannot read the field selector"):
        FieldSelector.parse("spec.type", StorageNode)
