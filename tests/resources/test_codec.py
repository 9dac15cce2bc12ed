"""Typed objects and documents are two forms of one thing, and nothing is lost between them."""

from random import Random

import msgspec
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from quartermaster.resources import (
    ConfigMap,
    Event,
    Lease,
    ObjectMeta,
    PersistentVolumeClaim,
    Pod,
    StorageNode,
    all_kinds,
    from_document,
    kind_of,
    to_document,
)
from quartermaster.resources.codec import decode, encode
from quartermaster.resources.model import Object
from quartermaster.resources.schema import full_schema_of
from tests.resources.documents import document_of, storage_node, with_unknown_fields

EVERY_KIND = pytest.mark.parametrize("cls", all_kinds(), ids=lambda cls: cls.__name__)
MANY = settings(max_examples=50, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])


@pytest.mark.slow
@EVERY_KIND
@MANY
@given(number=st.integers(0))
def test_an_object_is_the_same_after_a_journey_through_its_document(cls: type[Object], number: int) -> None:
    obj = from_document(cls, document_of(cls, Random(number)))
    assert from_document(cls, to_document(obj)) == obj
    assert decode(cls, encode(obj)) == obj


@pytest.mark.slow
@EVERY_KIND
@MANY
@given(number=st.integers(0))
def test_unknown_fields_at_any_depth_survive_a_typed_read_modify_write(cls: type[Object], number: int) -> None:
    random = Random(number)
    known = to_document(from_document(cls, document_of(cls, random)))
    document = with_unknown_fields(known, full_schema_of(cls), random)
    obj = from_document(cls, document)
    changed = msgspec.structs.replace(obj, metadata=msgspec.structs.replace(obj.metadata, labels={"touched": "yes"}))
    expected = {**document, "metadata": {**document["metadata"], "labels": {"touched": "yes"}}}
    assert to_document(changed) == expected


def test_a_document_begins_with_what_it_is() -> None:
    document = to_document(ConfigMap(metadata=ObjectMeta(name="a"), data={"k": "v"}))
    assert list(document) == ["apiVersion", "kind", "metadata", "data"]


def test_lists_of_a_document_are_lists() -> None:
    document = to_document(from_document(StorageNode, storage_node(devices=["/dev/vdb"])))
    assert document["spec"]["devices"] == ["/dev/vdb"]


def test_what_a_newer_version_allows_can_be_read() -> None:
    node = from_document(StorageNode, storage_node(type="minio", glusterfs={"zone": -5}))
    assert node.spec.type == "minio"
    assert node.spec.glusterfs is not None
    assert node.spec.glusterfs.zone == -5


def test_null_where_an_api_server_writes_it_counts_as_unset() -> None:
    event = from_document(Event, {"metadata": {"creationTimestamp": None}, "count": None, "source": None})
    assert event.count == 0
    pod = from_document(Pod, {"spec": {"containers": [{"name": "a", "ports": None}]}})
    assert pod.spec.containers[0].ports == ()


def test_an_element_with_a_key_keeps_its_unknown_fields_wherever_it_moves() -> None:
    pod = from_document(Pod, {"spec": {"containers": [{"name": "a", "x": 1}, {"name": "b", "x": 2}]}})
    spec = msgspec.structs.replace(pod.spec, containers=tuple(reversed(pod.spec.containers)))
    document = to_document(msgspec.structs.replace(pod, spec=spec))
    assert document["spec"]["containers"] == [{"name": "b", "x": 2}, {"name": "a", "x": 1}]


def test_an_element_that_is_removed_takes_its_unknown_fields_along() -> None:
    pod = from_document(Pod, {"spec": {"containers": [{"name": "a", "x": 1}, {"name": "b"}]}})
    spec = msgspec.structs.replace(pod.spec, containers=pod.spec.containers[1:])
    assert to_document(msgspec.structs.replace(pod, spec=spec))["spec"]["containers"] == [{"name": "b"}]


def test_the_host_of_an_object_is_read_off_its_name() -> None:
    assert kind_of(Lease).host_of("heartbeat.node1.example.org") == "node1.example.org"
    assert kind_of(ConfigMap).host_of("heartbeat.node1") == ""


def test_a_quantity_that_was_stored_as_a_fraction_is_read_as_its_text() -> None:
    claim = {"metadata": {"name": "a"}, "spec": {"resources": {"requests": {"storage": 0.5}}}}
    assert from_document(PersistentVolumeClaim, claim).spec.resources.requests == {"storage": "0.5"}
