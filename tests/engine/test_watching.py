"""Which changes concern a controller, and whom they concern."""

from __future__ import annotations

import msgspec

from quartermaster.engine.watching import (
    Request,
    all_of,
    annotations_changed,
    any_of,
    finalizers_changed,
    generation_changed,
    labels_changed,
    mapped,
    owned,
    requests_of,
)
from quartermaster.resources.kubernetes.core import ConfigMap, Namespace
from quartermaster.resources.model import ObjectMeta
from quartermaster.resources.storage import StorageNode

from .samples import node, reference


def changed(**meta: object) -> StorageNode:
    return msgspec.structs.replace(node("a"), metadata=msgspec.structs.replace(node("a").metadata, **meta))


def test_a_generation_predicate_passes_the_spec_and_the_beginning_of_a_deletion_but_no_status() -> None:
    old = changed(generation=1)
    assert generation_changed(None, old)
    assert generation_changed(old, None)
    assert generation_changed(old, changed(generation=2))
    assert generation_changed(old, changed(generation=1, deletion_timestamp="2024-01-01T00:00:00Z"))
    assert not generation_changed(old, changed(generation=1, resource_version="7"))


def test_predicates_look_at_labels_annotations_and_finalizers() -> None:
    old = changed()
    assert labels_changed(old, changed(labels={"a": "b"}))
    assert not labels_changed(old, changed(annotations={"a": "b"}))
    assert annotations_changed(old, changed(annotations={"a": "b"}))
    assert finalizers_changed(old, changed(finalizers=("x/y",)))
    assert not finalizers_changed(old, changed(generation=3))


def test_predicates_combine() -> None:
    old, new = changed(), changed(labels={"a": "b"})
    assert any_of(generation_changed, labels_changed)(old, new)
    assert not all_of(generation_changed, labels_changed)(old, new)


def test_an_owned_object_concerns_its_controller_and_no_other_owner() -> None:
    controller, other = changed(uid="1"), msgspec.structs.replace(node("b"))
    child = ConfigMap(
        metadata=ObjectMeta(
            name="child",
            namespace="default",
            owner_references=(reference(other), reference(controller, controller=True)),
        )
    )
    watch = owned(ConfigMap, by=StorageNode)
    assert list(watch.mapper(child)) == [Request("default", "a")]
    assert list(owned(ConfigMap, by=Namespace).mapper(child)) == []


def test_a_change_concerns_those_that_either_state_names_once_each() -> None:
    watch = mapped(ConfigMap, lambda obj: [Request("default", name) for name in obj.data])
    before = ConfigMap(metadata=ObjectMeta(name="c"), data={"a": "", "b": ""})
    after = ConfigMap(metadata=ObjectMeta(name="c"), data={"b": "", "c": ""})
    assert [request.name for request in requests_of(watch, before, after)] == ["a", "b", "c"]
