"""Backups: whole or refused, restored with their identities, and acted on only when a person says so."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from quartermaster.backends.assigning import changed
from quartermaster.engine.election import LEADER_LEASE, Election
from quartermaster.orchestration import reports
from quartermaster.orchestration.restoring import back_up, is_of_now, migrate, restore
from quartermaster.planning.cluster import Desired
from quartermaster.resources import ConfigMap, Lease, ObjectMeta, Secret, StorageNode
from quartermaster.resources.kubernetes.core import LeaseSpec
from quartermaster.resources.marks import OBSERVE_ONLY, SETTINGS_NAME
from quartermaster.resources.model import OwnerReference
from quartermaster.resources.orchestration import Assignment, AssignmentSpec, AssignmentStatus, Host
from quartermaster.resources.storage import StorageNodeSpec
from quartermaster.stores import open_store
from quartermaster.stores.kv.memory import MemoryKeyValue
from quartermaster.stores.objects import ObjectStore
from quartermaster.stores.objects.copying import open_backup, uid_of
from quartermaster.stores.objects.keys import place_of
from quartermaster.support import entropy
from quartermaster.support.errors import ConflictError, FencedError, InvalidError, NotFoundError
from quartermaster.testing.servers import EtcdAccess


def memory_store() -> ObjectStore:
    return ObjectStore(MemoryKeyValue())


def meta(name: str, **facts: object) -> ObjectMeta:
    return ObjectMeta(name=name, namespace="default", **facts)  # type: ignore[arg-type]


async def filled() -> ObjectStore:
    """A cluster with a node, what belongs to it, and facts of its own."""
    store = memory_store()
    node = await store.create(StorageNode(metadata=meta("node"), spec=StorageNodeSpec(type="local")))
    owner = OwnerReference(api_version="coreos.com/v1", kind="StorageNode", name="node", uid=node.metadata.uid)
    await store.create(ConfigMap(metadata=meta("owned", owner_references=(owner,)), data={"a": "b"}))
    await store.create(Secret(metadata=meta("quartermaster-ca"), data={"tls.key": "a2V5"}))
    await store.create(Secret(metadata=meta("password"), data={"password": "c2VjcmV0"}))
    await store.create(Host(metadata=meta("h1")))
    work = AssignmentSpec(host="h1", agent="local", generation=3, epoch=7, desired={"x": 1})
    made = await store.create(Assignment(metadata=meta("local.h1"), spec=work))
    done = AssignmentStatus(state="succeeded", observed_generation=3, epoch=7)
    await store.update_status(replace(made, status=done))
    lease = LeaseSpec(holder_identity="a", lease_transitions=2_000_000_000, lease_duration_seconds=15)
    await store.create(Lease(metadata=meta(LEADER_LEASE), spec=lease))
    return store


@pytest.fixture
async def embedded(tmp_path: Path) -> AsyncIterator[ObjectStore]:
    store = await open_store(f"sqlite:{tmp_path}/store.db")
    assert isinstance(store, ObjectStore)
    yield store
    await store.close()


async def test_a_backup_comes_back_with_uids_and_owners(tmp_path: Path, embedded: ObjectStore) -> None:
    store = await filled()
    made = await back_up(store, tmp_path / "b.qmb")
    assert (tmp_path / "b.qmb").stat().st_mode & 0o777 == 0o600
    copied = (await restore(embedded, made.path, "default")).copied
    assert copied.written == 4
    for kind, name in ((StorageNode, "node"), (ConfigMap, "owned"), (Secret, "password")):
        old, new = await store.get(kind, name, "default"), await embedded.get(kind, name, "default")
        assert (new.metadata.uid, new.metadata.creation_timestamp) == (
            old.metadata.uid,
            old.metadata.creation_timestamp,
        )
        assert new.metadata.owner_references == old.metadata.owner_references


async def test_what_is_a_fact_of_now_is_not_taken_from_the_past(tmp_path: Path) -> None:
    made = await back_up(await filled(), tmp_path / "b.qmb")
    target = memory_store()
    await target.create(Secret(metadata=meta("quartermaster-ca"), data={"tls.key": "bmV3"}))
    await restore(target, made.path, "default")
    assert (await target.get(Secret, "quartermaster-ca", "default")).data == {"tls.key": "bmV3"}
    with pytest.raises(NotFoundError):
        await target.get(Host, "h1", "default")


async def test_after_a_restore_nothing_acts_and_a_leader_that_resumes_writes_assignments_anew(tmp_path: Path) -> None:
    made = await back_up(await filled(), tmp_path / "b.qmb")
    target = memory_store()
    await restore(target, made.path, "default")
    settings = await target.get(ConfigMap, SETTINGS_NAME, "default")
    assert settings.metadata.annotations[OBSERVE_ONLY].startswith("restored from b.qmb, a backup of 2")
    restored = await target.get(Assignment, "local.h1", "default")
    verdict = reports.decide(restored, {"local"}, highest_epoch=0, last=None)
    assert isinstance(verdict, reports.Refuse)
    anew = changed(restored, Desired("h1", "local", {"x": 1}), 8)
    assert anew.spec.generation == 4
    assert reports.decide(anew, {"local"}, highest_epoch=0, last=None) == reports.Run("configure")


async def test_in_every_namespace_that_comes_back_or_is_there_nothing_acts(tmp_path: Path) -> None:
    source, target = await filled(), memory_store()
    await source.create(
        StorageNode(metadata=ObjectMeta(name="b", namespace="blue"), spec=StorageNodeSpec(type="local"))
    )
    await source.create(ConfigMap(metadata=ObjectMeta(name="c", namespace="idle")))
    lease = LeaseSpec(holder_identity="g", lease_transitions=3, lease_duration_seconds=15)
    await target.create(Lease(metadata=ObjectMeta(name=f"{LEADER_LEASE}-local", namespace="green"), spec=lease))
    made = await back_up(source, tmp_path / "b.qmb")
    restored = await restore(target, made.path, "default")
    assert restored.observed == ("blue", "default", "green")
    for namespace in restored.observed:
        settings = await target.get(ConfigMap, SETTINGS_NAME, namespace)
        assert settings.metadata.annotations[OBSERVE_ONLY].startswith("restored from b.qmb")
    with pytest.raises(NotFoundError):
        await target.get(ConfigMap, SETTINGS_NAME, "idle")


async def test_what_lets_hosts_in_is_in_no_backup(tmp_path: Path) -> None:
    store = await filled()
    await store.create(Secret(metadata=meta("join-token-bcdfghjk"), data={"hash": "aGFzaA=="}))
    made = await back_up(store, tmp_path / "b.qmb")
    names = {place_of(stored.key)[1] for stored in made.read()}
    assert names >= {"node", "password"}
    assert not names & {"quartermaster-ca", "join-token-bcdfghjk"}
    assert open_backup(made.path).objects == len(list(made.read()))


async def test_the_epoch_after_a_restore_is_higher_than_any_before_and_the_leader_is_deposed(tmp_path: Path) -> None:
    made = await back_up(await filled(), tmp_path / "b.qmb")
    target = memory_store()
    async with Election(target, name=LEADER_LEASE, lease_s=15, retry_s=5).leading() as before:
        await restore(target, made.path, "default")
        with pytest.raises(FencedError):
            await target.create(ConfigMap(metadata=meta("late")), fence=before.fence)
    async with Election(target, name=LEADER_LEASE, lease_s=15, retry_s=5).leading() as after:
        assert after.fence.epoch > max(2_000_000_000, before.fence.epoch)


async def test_a_store_that_holds_something_is_not_overwritten_unless_told(tmp_path: Path) -> None:
    made = await back_up(await filled(), tmp_path / "b.qmb")
    target = memory_store()
    await target.create(ConfigMap(metadata=meta("mine"), data={"c": "d"}))
    with pytest.raises(ConflictError, match="it holds 1 objects, such as mine"):
        await restore(target, made.path, "default")
    assert len((await target.list(StorageNode)).items) == 0
    copied = (await restore(target, made.path, "default", replace_all=True)).copied
    assert copied.removed == 1
    with pytest.raises(NotFoundError):
        await target.get(ConfigMap, "mine", "default")
    # Said twice it is as once, and what is there by the same backup is in nobody's way.
    again = (await restore(target, made.path, "default")).copied
    assert again.removed == 0
    assert again.unchanged >= 3


@pytest.mark.parametrize("damage", ["cut off", "one byte", "not a backup", "empty"])
async def test_a_damaged_backup_is_refused_before_anything_is_written(tmp_path: Path, damage: str) -> None:
    path = (await back_up(await filled(), tmp_path / "b.qmb")).path
    content = path.read_bytes()
    lines = content.splitlines(keepends=True)
    path.write_bytes(
        {
            "cut off": b"".join(lines[:-2]),
            "one byte": content.replace(b'"a":"b"', b'"a":"c"'),
            "not a backup": b"apiVersion: v1\n",
            "empty": b"",
        }[damage]
    )
    target = memory_store()
    before = await target.kv.revision()
    with pytest.raises(InvalidError, match="cannot read the backup"):
        await restore(target, path, "default")
    assert await target.kv.revision() == before


async def test_a_backup_of_many_objects_is_one_moment(tmp_path: Path) -> None:
    store = memory_store()
    for number in range(450):
        await store.create(ConfigMap(metadata=meta(f"c{number:03}"), data={"n": str(number)}))
    made = await back_up(store, tmp_path / "b.qmb")
    assert open_backup(made.path).objects == 450
    target = memory_store()
    copied = (await restore(target, made.path, "default")).copied
    assert copied.written == 450


async def test_a_migration_keeps_identities_and_leaves_the_old_store_at_rest(embedded: ObjectStore) -> None:
    store = await filled()
    with pytest.raises(ConflictError, match="an operator still leads there"):
        await migrate(store, embedded, "default")
    lease = await store.get(Lease, LEADER_LEASE, "default")
    await store.update(replace(lease, spec=replace(lease.spec, holder_identity="")))
    copied = await migrate(store, embedded, "default")
    assert copied.written == 4
    node, moved = await store.get(StorageNode, "node", "default"), await embedded.get(StorageNode, "node", "default")
    assert moved.metadata.uid == node.metadata.uid
    # The same work goes on: it is neither restored nor asked for anew.
    assert OBSERVE_ONLY not in (await embedded.get(Assignment, "local.h1", "default")).metadata.annotations
    settings = await store.get(ConfigMap, SETTINGS_NAME, "default")
    assert settings.metadata.annotations[OBSERVE_ONLY].startswith("migrated to sqlite:")
    assert (await migrate(store, embedded, "default")).written == 0


@pytest.fixture
async def etcd_home(etcd_servers: EtcdAccess) -> AsyncIterator[ObjectStore]:
    hosts = ",".join(endpoint.partition("://")[2] for endpoint in etcd_servers.endpoints)
    store = await open_store(f"etcd://{hosts}/{entropy.new_uid()}")
    assert isinstance(store, ObjectStore)
    yield store
    await store.close()


async def test_the_same_into_etcd_and_out_of_it(tmp_path: Path, etcd_home: ObjectStore) -> None:
    store = await filled()
    for number in range(300):
        await store.create(ConfigMap(metadata=meta(f"c{number:03}"), data={"n": "x" * 10_000}))
    made = await back_up(store, tmp_path / "b.qmb")
    copied = (await restore(etcd_home, made.path, "default")).copied
    assert copied.written == 304
    again = await back_up(etcd_home, tmp_path / "c.qmb")
    assert {one.key: uid_of(bytes(one.value)) for one in again.read() if not is_of_now(one.key)} == {
        one.key: uid_of(bytes(one.value)) for one in made.read() if not is_of_now(one.key)
    }
    async with Election(etcd_home, name=LEADER_LEASE, lease_s=15, retry_s=5).leading() as leadership:
        assert leadership.fence.epoch > 2_000_000_000
