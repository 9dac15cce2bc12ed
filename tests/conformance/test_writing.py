"""Create, update, status, delete: the same on every store."""

import pytest
from msgspec.structs import replace

from quartermaster.resources import (
    Condition,
    ConfigMap,
    ObjectMeta,
    StorageNode,
)
from quartermaster.resources.codec import to_document
from quartermaster.resources.storage import StorageNodeSpec, StorageNodeStatus
from quartermaster.stores import Store
from quartermaster.support.errors import AlreadyExistsError, ConflictError, InvalidError, NotFoundError


def node(namespace: str, name: str = "a", **spec: object) -> StorageNode:
    return StorageNode(
        metadata=ObjectMeta(name=name, namespace=namespace),
        spec=StorageNodeSpec(**{"type": "glusterfs", **spec}),  # type: ignore[arg-type]
    )


def labelled(obj: StorageNode, **labels: str) -> StorageNode:
    return replace(obj, metadata=replace(obj.metadata, labels=labels))


def with_devices(obj: StorageNode, *devices: str) -> StorageNode:
    return replace(obj, spec=replace(obj.spec, devices=devices))


def with_finalizers(obj: StorageNode, *finalizers: str) -> StorageNode:
    return replace(obj, metadata=replace(obj.metadata, finalizers=finalizers))


READY = StorageNodeStatus(
    conditions=(
        Condition(
            type="Ready",
            status="True",
            reason="Fine",
            message="all is well",
            last_transition_time="2026-01-01T00:00:00Z",
        ),
    )
)


async def test_what_was_created_is_there(store: Store, namespace: str) -> None:
    made = await store.create(node(namespace, devices=("/dev/vdb",)))
    assert await store.get(StorageNode, "a", namespace) == made
    assert made.spec.devices == ("/dev/vdb",)


async def test_a_new_object_gets_uid_time_generation_and_version(store: Store, namespace: str) -> None:
    meta = (await store.create(node(namespace))).metadata
    assert len(meta.uid) == 36
    assert meta.creation_timestamp is not None
    assert meta.generation == 1
    assert meta.resource_version


async def test_a_name_is_taken_once(store: Store, namespace: str) -> None:
    await store.create(node(namespace))
    with pytest.raises(AlreadyExistsError, match="a"):
        await store.create(node(namespace))


async def test_generate_name_makes_names_up(store: Store, namespace: str) -> None:
    sample = StorageNode(
        metadata=ObjectMeta(generate_name="node-", namespace=namespace), spec=StorageNodeSpec(type="glusterfs")
    )
    names = {(await store.create(sample)).metadata.name for _ in range(3)}
    assert len(names) == 3
    assert all(name.startswith("node-") and len(name) == 10 for name in names)


async def test_a_new_object_with_a_version_is_refused(store: Store, namespace: str) -> None:
    sample = node(namespace)
    with pytest.raises(InvalidError, match="resourceVersion"):
        await store.create(replace(sample, metadata=replace(sample.metadata, resource_version="7")))


async def test_a_new_object_has_no_status(store: Store, namespace: str) -> None:
    made = await store.create(replace(node(namespace), status=READY))
    assert made.status.conditions == ()


async def test_defaults_are_filled_in(store: Store, namespace: str) -> None:
    applied = await store.apply(
        {
            "apiVersion": "coreos.com/v1",
            "kind": "StorageNode",
            "metadata": {"name": "a", "namespace": namespace},
            "spec": {"type": "glusterfs", "glusterfs": {"cluster": "one"}},
        }
    )
    assert to_document(applied)["spec"]["glusterfs"] == {"cluster": "one", "zone": 1}


async def test_what_is_not_there_cannot_be_read(store: Store, namespace: str) -> None:
    with pytest.raises(NotFoundError, match="nothing"):
        await store.get(StorageNode, "nothing", namespace)


async def test_a_bad_object_is_refused_with_the_path(store: Store, namespace: str) -> None:
    with pytest.raises(InvalidError) as caught:
        await store.create(node(namespace, name="Not A Name"))
    assert "metadata.name" in str(caught.value)


async def test_an_update_changes_the_version(store: Store, namespace: str) -> None:
    made = await store.create(node(namespace))
    changed = await store.update(with_devices(made, "/dev/vdc"))
    assert changed.metadata.resource_version != made.metadata.resource_version
    assert (await store.get(StorageNode, "a", namespace)).spec.devices == ("/dev/vdc",)


async def test_an_update_needs_the_version_that_was_read(store: Store, namespace: str) -> None:
    made = await store.create(node(namespace))
    await store.update(with_devices(made, "/dev/vdb"))
    with pytest.raises(ConflictError):
        await store.update(with_devices(made, "/dev/vdc"))
    with pytest.raises(InvalidError, match="resourceVersion"):
        await store.update(replace(made, metadata=replace(made.metadata, resource_version="")))
    assert (await store.get(StorageNode, "a", namespace)).spec.devices == ("/dev/vdb",)


async def test_an_update_that_changes_nothing_makes_no_version(store: Store, namespace: str) -> None:
    made = await store.create(node(namespace))
    again = await store.update(made)
    assert again.metadata.resource_version == made.metadata.resource_version


async def test_an_update_of_something_deleted_is_refused(store: Store, namespace: str) -> None:
    made = await store.create(node(namespace))
    await store.delete(StorageNode, "a", namespace)
    with pytest.raises(NotFoundError):
        await store.update(with_devices(made, "/dev/vdb"))


async def test_an_update_of_a_namesake_is_refused(store: Store, namespace: str) -> None:
    made = await store.create(node(namespace))
    await store.delete(StorageNode, "a", namespace)
    again = await store.create(node(namespace))
    stale = replace(made, metadata=replace(made.metadata, resource_version=again.metadata.resource_version))
    with pytest.raises(ConflictError):
        await store.update(with_devices(stale, "/dev/vdb"))


async def test_the_generation_counts_changes_of_the_spec_only(store: Store, namespace: str) -> None:
    made = await store.create(node(namespace))
    made = await store.update(labelled(made, rack="r1"))
    assert made.metadata.generation == 1
    made = await store.update_status(replace(made, status=READY))
    assert made.metadata.generation == 1
    made = await store.update(with_devices(made, "/dev/vdb"))
    assert made.metadata.generation == 2


async def test_an_update_leaves_the_status_alone(store: Store, namespace: str) -> None:
    made = await store.create(node(namespace))
    made = await store.update_status(replace(made, status=READY))
    changed = await store.update(replace(with_devices(made, "/dev/vdb"), status=StorageNodeStatus()))
    assert changed.status == READY


async def test_a_status_update_leaves_everything_else_alone(store: Store, namespace: str) -> None:
    made = await store.create(node(namespace))
    changed = await store.update_status(replace(with_devices(labelled(made, rack="r1"), "/dev/vdb"), status=READY))
    assert changed.status == READY
    assert changed.spec.devices == ()
    assert changed.metadata.labels == {}


async def test_a_status_update_needs_the_version_too(store: Store, namespace: str) -> None:
    made = await store.create(node(namespace))
    await store.update(with_devices(made, "/dev/vdb"))
    with pytest.raises(ConflictError):
        await store.update_status(replace(made, status=READY))


async def test_a_kind_without_status_has_none_to_write(store: Store, namespace: str) -> None:
    made = await store.create(ConfigMap(metadata=ObjectMeta(name="a", namespace=namespace), data={"k": "v"}))
    with pytest.raises(InvalidError, match="status"):
        await store.update_status(made)


async def test_an_immutable_field_stays(store: Store, namespace: str) -> None:
    made = await store.create(node(namespace))
    with pytest.raises(InvalidError, match=r"spec\.type"):
        await store.update(replace(made, spec=replace(made.spec, type="ceph")))


async def test_fields_of_a_newer_version_survive_a_typed_write(store: Store, namespace: str) -> None:
    await store.apply(
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": "a", "namespace": namespace},
            "imagePullSecrets": [{"name": "registry"}],
        }
    )
    from quartermaster.resources import ServiceAccount

    made = await store.get(ServiceAccount, "a", namespace)
    changed = await store.update(replace(made, metadata=replace(made.metadata, labels={"x": "y"})))
    assert to_document(changed)["imagePullSecrets"] == [{"name": "registry"}]
    assert to_document(await store.get(ServiceAccount, "a", namespace))["imagePullSecrets"] == [{"name": "registry"}]


async def test_deleted_is_gone(store: Store, namespace: str) -> None:
    made = await store.create(node(namespace))
    last = await store.delete(StorageNode, "a", namespace)
    assert last.metadata.uid == made.metadata.uid
    with pytest.raises(NotFoundError):
        await store.get(StorageNode, "a", namespace)
    with pytest.raises(NotFoundError):
        await store.delete(StorageNode, "a", namespace)


async def test_a_delete_may_insist_on_uid_and_version(store: Store, namespace: str) -> None:
    made = await store.create(node(namespace))
    other = "00000000-0000-4000-8000-000000000000"
    with pytest.raises(ConflictError):
        await store.delete(StorageNode, "a", namespace, uid=other)
    await store.update(with_devices(made, "/dev/vdb"))
    with pytest.raises(ConflictError):
        await store.delete(StorageNode, "a", namespace, revision=made.metadata.resource_version)
    await store.delete(StorageNode, "a", namespace, uid=made.metadata.uid)


async def test_a_finalizer_holds_a_deletion_back(store: Store, namespace: str) -> None:
    await store.create(with_finalizers(node(namespace), "coreos.com/drain"))
    marked = await store.delete(StorageNode, "a", namespace)
    assert marked.metadata.deletion_timestamp is not None
    assert marked.metadata.generation == 2
    again = await store.delete(StorageNode, "a", namespace)
    assert again.metadata.resource_version == marked.metadata.resource_version
    await store.update(with_finalizers(marked))
    with pytest.raises(NotFoundError):
        await store.get(StorageNode, "a", namespace)


async def test_no_finalizer_is_added_while_it_is_deleted(store: Store, namespace: str) -> None:
    await store.create(with_finalizers(node(namespace), "coreos.com/drain"))
    marked = await store.delete(StorageNode, "a", namespace)
    with pytest.raises(InvalidError, match="finalizers"):
        await store.update(with_finalizers(marked, "coreos.com/drain", "coreos.com/other"))


async def test_a_foreground_deletion_waits_for_the_collector(store: Store, namespace: str) -> None:
    await store.create(node(namespace))
    marked = await store.delete(StorageNode, "a", namespace, propagation="Foreground")
    assert marked.metadata.finalizers == ("foregroundDeletion",)
    await store.update(with_finalizers(marked))


async def test_an_orphaning_deletion_waits_for_the_collector(store: Store, namespace: str) -> None:
    await store.create(node(namespace))
    marked = await store.delete(StorageNode, "a", namespace, propagation="Orphan")
    assert marked.metadata.finalizers == ("orphan",)
    await store.update(with_finalizers(marked))


async def test_a_dry_run_changes_nothing(store: Store, namespace: str) -> None:
    await store.create(node(namespace), dry_run=True)
    with pytest.raises(NotFoundError):
        await store.get(StorageNode, "a", namespace)
    made = await store.create(node(namespace))
    shown = await store.update(with_devices(made, "/dev/vdb"), dry_run=True)
    assert shown.spec.devices == ("/dev/vdb",)
    await store.delete(StorageNode, "a", namespace, dry_run=True)
    assert await store.get(StorageNode, "a", namespace) == made
    with pytest.raises(AlreadyExistsError):
        await store.create(node(namespace), dry_run=True)
