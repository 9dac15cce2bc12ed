"""Any number of changes are one event, which says of each host what became of it in the end."""

from __future__ import annotations

from msgspec.structs import replace

from quartermaster.backends.base import RefreshEvent, RefreshKey, Touched
from quartermaster.engine.cache import Caches
from quartermaster.orchestration.joining.issuing import CertificateManager
from quartermaster.orchestration.refresh import NOTHING, TOUCHED_LIMIT, Pending, merged, watch_hosts, watch_keys
from quartermaster.resources.kubernetes.core import ConfigMap
from quartermaster.resources.model import Key, ObjectMeta
from quartermaster.resources.orchestration import Assignment, AssignmentSpec, Host
from quartermaster.support.tasks import TaskGroup
from quartermaster.testing.simulation import simulated
from tests.engine.samples import serving

from .samples import NAMESPACE, memory_store, settled

KEY = RefreshKey(ConfigMap, field="data")


@simulated()
async def test_of_config_maps_only_the_one_that_tells_of_etcd_s_members_concerns_certificates() -> None:
    store = memory_store()
    async with serving(store) as scope:
        keys = CertificateManager(scope, namespace=NAMESPACE).refresh_keys()
    assert [one.fields for one in keys if one.kind is ConfigMap] == ["metadata.name=quartermaster-etcd"]


def test_nothing_merged_with_an_event_is_the_event() -> None:
    event = RefreshEvent(added=("h1",), since=3.0)
    assert merged(NOTHING, event) == event
    assert merged(event, NOTHING) == event


def test_a_merged_event_has_everything_once_in_order_and_the_earlier_time() -> None:
    one = RefreshEvent(added=("h2",), unhealthy=("h9",), keys=(KEY,), since=3.0)
    other = RefreshEvent(added=("h1",), changed=("h2",), unhealthy=("h9", "h3"), keys=(KEY,), full=True, since=5.0)
    assert merged(one, other) == RefreshEvent(
        added=("h1", "h2"), unhealthy=("h3", "h9"), keys=(KEY,), full=True, since=3.0
    )


def test_a_host_that_went_and_came_has_changed_and_one_that_came_and_went_is_removed() -> None:
    came, went = RefreshEvent(added=("h1",), since=1.0), RefreshEvent(removed=("h1",), since=1.0)
    assert merged(went, came).changed == ("h1",)
    assert merged(came, went).removed == ("h1",)


@simulated()
async def test_more_objects_than_are_worth_naming_are_everything() -> None:
    pending = Pending()
    for number in range(TOUCHED_LIMIT + 1):
        pending.note(key=KEY, touched=Touched(ConfigMap, Key(NAMESPACE, f"c{number}")))
    event = pending.take()
    assert event.full
    assert event.touched == ()
    assert pending.take() == RefreshEvent(since=event.since)


@simulated()
async def test_a_key_fires_when_its_field_changes_and_names_the_object() -> None:
    store, pending = memory_store(), Pending()
    caches = Caches(store)
    keys = [KEY, RefreshKey(Assignment, field="status.observedGeneration")]
    async with TaskGroup() as group:
        watch_keys(caches, keys, NAMESPACE, pending)
        for cache in caches.all():
            group.start(cache.run())
        made = await store.create(ConfigMap(metadata=ObjectMeta(name="c", namespace=NAMESPACE), data={"a": "1"}))
        asked = await store.create(
            Assignment(
                metadata=ObjectMeta(name="echo.h1", namespace=NAMESPACE), spec=AssignmentSpec(host="h1", agent="echo")
            )
        )
        await settled()
        assert set(pending.take().keys) == set(keys)
        made = await store.update(replace(made, metadata=replace(made.metadata, labels={"x": "y"})))
        asked = await store.update_status(replace(asked, status=replace(asked.status, state="running")))
        await settled()
        assert not pending.there.is_set()
        await store.update(replace(made, data={"a": "2"}))
        await store.update_status(replace(asked, status=replace(asked.status, observed_generation=2)))
        await settled()
        event = pending.take()
        assert event.touched == (
            Touched(ConfigMap, Key(NAMESPACE, "c")),
            Touched(Assignment, Key(NAMESPACE, "echo.h1")),
        )
        group.cancel()


@simulated()
async def test_what_the_leader_says_of_a_host_is_no_change_of_it() -> None:
    store, pending = memory_store(), Pending()
    caches = Caches(store)
    async with TaskGroup() as group:
        watch_hosts(caches.of(Host, NAMESPACE), pending)
        group.start(caches.of(Host, NAMESPACE).run())
        host = await store.create(Host(metadata=ObjectMeta(name="h1", namespace=NAMESPACE)))
        await settled()
        assert pending.take().added == ("h1",)
        host = await store.update_status(replace(host, status=replace(host.status, state="Ready")))
        await settled()
        assert not pending.there.is_set()
        host = await store.update(replace(host, metadata=replace(host.metadata, labels={"rack": "1"})))
        await settled()
        assert pending.take().changed == ("h1",)
        await store.delete(Host, "h1", NAMESPACE)
        await settled()
        assert pending.take().removed == ("h1",)
        group.cancel()
