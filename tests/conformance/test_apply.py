"""Server-side apply: who owns which field, and what a conflict is; the same on every store."""

from typing import Any

import pytest
from msgspec.structs import replace

from quartermaster.resources import StorageNode
from quartermaster.resources.codec import to_document
from quartermaster.stores import Store
from quartermaster.support.errors import ApplyConflictError, ConflictError, InvalidError, NotFoundError
from tests.conformance.conftest import Home


def intent(namespace: str, spec: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "coreos.com/v1",
        "kind": "StorageNode",
        "metadata": {"name": "a", "namespace": namespace, **metadata},
        "spec": {"type": "glusterfs", **spec},
    }


def condition(type: str, status: str) -> dict[str, str]:
    return {
        "type": type,
        "status": status,
        "reason": "Checked",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }


def reported(namespace: str, *conditions: dict[str, str]) -> dict[str, Any]:
    document = intent(namespace, {})
    del document["spec"]
    return {**document, "status": {"conditions": list(conditions)}}


async def spec_of(store: Store, namespace: str) -> Any:
    return to_document(await store.get(StorageNode, "a", namespace))["spec"]


def owners(obj: Any) -> dict[tuple[str, str, str], Any]:
    return {(m.manager, m.operation, m.subresource): m.fields_v1 for m in obj.metadata.managed_fields}


async def test_an_apply_makes_what_is_not_there(store: Store, namespace: str) -> None:
    made = await store.apply(intent(namespace, {"devices": ["/dev/vdb"]}), manager="one")
    assert made.metadata.generation == 1
    assert await spec_of(store, namespace) == {"type": "glusterfs", "devices": ["/dev/vdb"]}
    assert owners(made) == {("one", "Apply", ""): {"f:spec": {"f:type": {}, "f:devices": {}}}}


async def test_the_same_apply_twice_changes_nothing(store: Store, namespace: str) -> None:
    made = await store.apply(intent(namespace, {"devices": ["/dev/vdb"]}), manager="one")
    again = await store.apply(intent(namespace, {"devices": ["/dev/vdb"]}), manager="one")
    assert again == made


async def test_another_managers_field_is_a_conflict_by_name(store: Store, namespace: str) -> None:
    await store.apply(intent(namespace, {"devices": ["/dev/vdb"]}), manager="one")
    with pytest.raises(ApplyConflictError) as caught:
        await store.apply(intent(namespace, {"devices": ["/dev/vdc"]}), manager="two")
    assert [(c.manager, c.path) for c in caught.value.conflicts] == [("one", ".spec.devices")]
    assert (await spec_of(store, namespace))["devices"] == ["/dev/vdb"]


async def test_a_conflict_lists_every_field(store: Store, namespace: str) -> None:
    await store.apply(intent(namespace, {"devices": ["/dev/vdb"]}, labels={"rack": "r1"}), manager="one")
    with pytest.raises(ApplyConflictError) as caught:
        await store.apply(intent(namespace, {"devices": []}, labels={"rack": "r2"}), manager="two")
    assert [(c.manager, c.path) for c in caught.value.conflicts] == [
        ("one", ".metadata.labels.rack"),
        ("one", ".spec.devices"),
    ]


async def test_force_takes_the_field(store: Store, namespace: str) -> None:
    await store.apply(intent(namespace, {"devices": ["/dev/vdb"], "directories": ["/srv"]}), manager="one")
    taken = await store.apply(intent(namespace, {"devices": ["/dev/vdc"]}), manager="two", force=True)
    assert owners(taken) == {
        ("one", "Apply", ""): {"f:spec": {"f:type": {}, "f:directories": {}}},
        ("two", "Apply", ""): {"f:spec": {"f:type": {}, "f:devices": {}}},
    }


async def test_equal_values_are_owned_together(store: Store, namespace: str) -> None:
    await store.apply(intent(namespace, {"devices": ["/dev/vdb"]}), manager="one")
    await store.apply(intent(namespace, {"devices": ["/dev/vdb"]}), manager="two")
    await store.apply(intent(namespace, {}), manager="one")
    assert (await spec_of(store, namespace))["devices"] == ["/dev/vdb"]
    await store.apply(intent(namespace, {}), manager="two")
    assert "devices" not in await spec_of(store, namespace)


async def test_a_field_that_was_given_up_goes(store: Store, namespace: str) -> None:
    await store.apply(intent(namespace, {"devices": ["/dev/vdb"], "directories": ["/srv"]}), manager="one")
    await store.apply(intent(namespace, {"directories": ["/srv"]}), manager="one")
    assert await spec_of(store, namespace) == {"type": "glusterfs", "directories": ["/srv"]}


async def test_an_update_owns_what_it_changed(store: Store, namespace: str, home: Home) -> None:
    await store.apply(intent(namespace, {"devices": ["/dev/vdb"]}), manager="one")
    other = await home.open("writer")
    found = await other.get(StorageNode, "a", namespace)
    changed = await other.update(replace(found, spec=replace(found.spec, devices=("/dev/vdc",))))
    assert owners(changed) == {
        ("one", "Apply", ""): {"f:spec": {"f:type": {}}},
        ("writer", "Update", ""): {"f:spec": {"f:devices": {}}},
    }
    with pytest.raises(ApplyConflictError) as caught:
        await store.apply(intent(namespace, {"devices": ["/dev/vdb"]}), manager="one")
    assert [(c.manager, c.path) for c in caught.value.conflicts] == [("writer", ".spec.devices")]


async def test_labels_are_owned_one_by_one(store: Store, namespace: str) -> None:
    await store.apply(intent(namespace, {}, labels={"rack": "r1"}), manager="one")
    both = await store.apply(intent(namespace, {}, labels={"row": "7"}), manager="two")
    assert both.metadata.labels == {"rack": "r1", "row": "7"}
    less = await store.apply(intent(namespace, {}), manager="one")
    assert less.metadata.labels == {"row": "7"}


async def test_a_status_is_applied_by_itself(store: Store, namespace: str) -> None:
    await store.apply(intent(namespace, {}), manager="one")
    done = await store.apply(reported(namespace, condition("Ready", "True")), manager="agent", status=True)
    assert isinstance(done, StorageNode)
    assert [c.type for c in done.status.conditions] == ["Ready"]
    assert ("agent", "Apply", "status") in owners(done)
    assert done.metadata.generation == 1


async def test_conditions_are_a_map_by_type(store: Store, namespace: str) -> None:
    await store.apply(intent(namespace, {}), manager="one")
    await store.apply(reported(namespace, condition("Ready", "True")), manager="agent", status=True)
    both = await store.apply(reported(namespace, condition("Healthy", "True")), manager="watcher", status=True)
    assert isinstance(both, StorageNode)
    assert {c.type for c in both.status.conditions} == {"Ready", "Healthy"}
    with pytest.raises(ApplyConflictError) as caught:
        await store.apply(reported(namespace, condition("Ready", "False")), manager="watcher", status=True)
    assert [(c.manager, c.path) for c in caught.value.conflicts] == [
        ("agent", '.status.conditions[type="Ready"].status')
    ]


async def test_a_status_in_an_ordinary_apply_is_left_out(store: Store, namespace: str) -> None:
    document = {**intent(namespace, {}), "status": {"conditions": [condition("Ready", "True")]}}
    made = await store.apply(document, manager="one")
    assert isinstance(made, StorageNode)
    assert made.status.conditions == ()


async def test_the_status_of_nothing_cannot_be_applied(store: Store, namespace: str) -> None:
    with pytest.raises(NotFoundError):
        await store.apply(reported(namespace, condition("Ready", "True")), manager="agent", status=True)


async def test_an_apply_may_insist_on_a_version(store: Store, namespace: str) -> None:
    made = await store.apply(intent(namespace, {}), manager="one")
    await store.apply(intent(namespace, {"devices": ["/dev/vdb"]}), manager="one")
    stale = intent(namespace, {"devices": ["/dev/vdc"]}, resourceVersion=made.metadata.resource_version)
    with pytest.raises(ConflictError):
        await store.apply(stale, manager="one")


async def test_an_apply_needs_a_name(store: Store, namespace: str) -> None:
    document = intent(namespace, {})
    del document["metadata"]["name"]
    with pytest.raises(InvalidError, match=r"metadata\.name"):
        await store.apply(document, manager="one")


async def test_an_immutable_field_stays_under_apply_too(store: Store, namespace: str) -> None:
    await store.apply(intent(namespace, {}), manager="one")
    with pytest.raises(InvalidError, match=r"spec\.type"):
        await store.apply(intent(namespace, {"type": "ceph"}), manager="one")


async def test_a_dry_run_of_an_apply_shows_and_changes_nothing(store: Store, namespace: str) -> None:
    made = await store.apply(intent(namespace, {}), manager="one")
    shown = await store.apply(intent(namespace, {"devices": ["/dev/vdb"]}), manager="one", dry_run=True)
    assert isinstance(shown, StorageNode)
    assert shown.spec.devices == ("/dev/vdb",)
    assert await store.get(StorageNode, "a", namespace) == made


async def test_an_apply_that_removes_the_last_finalizer_ends_a_deletion(store: Store, namespace: str) -> None:
    await store.apply(intent(namespace, {}, finalizers=["coreos.com/drain"]), manager="one")
    await store.delete(StorageNode, "a", namespace)
    await store.apply(intent(namespace, {}), manager="one")
    with pytest.raises(NotFoundError):
        await store.get(StorageNode, "a", namespace)
