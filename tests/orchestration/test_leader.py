"""The leader answers changes with refreshes: few, in order, and only while it leads."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from quartermaster.backends.base import RefreshKey
from quartermaster.resources.kubernetes.core import ConfigMap, Lease
from quartermaster.resources.model import ObjectMeta
from quartermaster.resources.orchestration import Assignment, Host
from quartermaster.resources.storage import StorageCluster, StorageClusterSpec
from quartermaster.resources.storage import Timings as Stated
from quartermaster.stores import modify
from quartermaster.support.errors import NotFoundError, UnavailableError
from quartermaster.testing.simulation import simulated

from .samples import NAMESPACE, TIMINGS, cluster, settled

pytestmark = pytest.mark.slow


async def state_of(made: object, host: str) -> str:
    return (await made.store.get(Host, host, NAMESPACE)).status.state  # type: ignore[attr-defined]


@simulated(range(3))
async def test_from_a_wish_to_a_report() -> None:
    async with cluster() as made:
        made.lead()
        made.host("h1")
        made.host("h2")
        await made.wish("hello")
        await settled()
        assert made.echoes["h1"].configured == [{"say": "hello"}]
        assert made.echoes["h2"].configured == [{"say": "hello"}]
        assert await state_of(made, "h1") == "Ready"


@simulated()
async def test_a_term_begins_with_a_refresh_of_everything() -> None:
    async with cluster() as made:
        made.host("h1")
        await settled()
        made.lead()
        await settled()
        assert made.events[0].full
        assert made.events[0].added == ()


@simulated()
async def test_heartbeats_cause_no_refresh() -> None:
    async with cluster() as made:
        made.lead()
        for number in range(5):
            made.host(f"h{number}")
        await made.wish("hello")
        await settled(10.0)
        before = len(made.events)
        await settled(60.0)
        assert made.events[before:] == []


@simulated()
async def test_a_slow_sweep_looks_at_everything() -> None:
    async with cluster() as made:
        made.lead()
        await settled(TIMINGS.sweep_s + 5)
        assert [event.full for event in made.events] == [True, True]


@simulated()
async def test_changes_within_the_debounce_are_one_refresh() -> None:
    async with cluster(timings=replace(TIMINGS, debounce_s=5.0)) as made:
        made.lead()
        await settled(10.0)
        before = len(made.events)
        for text in ("one", "two", "three"):
            await made.wish(text)
            await settled(1.0)
        await settled(5.0)
        assert len(made.events) == before + 1
        assert made.events[-1].keys == (RefreshKey(ConfigMap, field="data"),)


@simulated()
async def test_a_change_to_one_host_touches_one_host() -> None:
    async with cluster() as made:
        made.lead()
        for number in range(5):
            made.host(f"h{number}")
        await made.wish("hello")
        await settled(10.0)
        versions = {one.key: one.metadata.resource_version for one in (await made.store.list(Assignment)).items}
        writes = made.managers[0].assigning.writes
        made.host("h9")
        await settled(10.0)
        after = {one.key: one.metadata.resource_version for one in (await made.store.list(Assignment)).items}
        assert made.managers[0].assigning.writes == writes + 1
        assert {key: after[key] for key in versions} == versions


@simulated()
async def test_a_silent_host_is_reported_unhealthy_and_shown_so_and_heard_again() -> None:
    async with cluster() as made:
        made.lead()
        made.host("h1")
        await settled(5.0)
        await made.stop("h1")
        await settled(TIMINGS.unhealthy_after_s + 2)
        assert made.events[-1].unhealthy == ("h1",)
        assert await state_of(made, "h1") == "Silent"
        await settled(TIMINGS.move_data_after_s)
        assert await state_of(made, "h1") == "Lost"
        made.host("h1")
        await settled(2.0)
        assert "h1" in made.events[-1].changed
        assert await state_of(made, "h1") == "Ready"


@simulated()
async def test_a_new_leader_grants_a_silent_host_its_full_grace() -> None:
    async with cluster() as made:
        made.lead("one")
        made.host("h1")
        await settled(5.0)
        await made.stop("h1")
        await settled(TIMINGS.unhealthy_after_s - 2)
        made.lead("two")
        await made.stop("one")
        await settled(TIMINGS.unhealthy_after_s - 2)
        assert await state_of(made, "h1") == "Ready"
        await settled(4.0)
        assert await state_of(made, "h1") == "Silent"


@simulated()
async def test_a_manager_that_fails_is_given_the_same_event_again() -> None:
    async with cluster() as made:
        made.lead()
        await settled()
        made.managers[0].fails = [UnavailableError("cannot write: not now"), ValueError("a mistake of ours")]
        await made.wish("hello")
        await settled(10.0)
        last = made.events[-3:]
        assert [event.keys for event in last] == [(RefreshKey(ConfigMap, field="data"),)] * 3
        assert last[0].touched == last[2].touched != ()


@simulated()
async def test_an_absence_that_was_reported_is_deleted() -> None:
    async with cluster() as made:
        made.lead()
        made.host("h1")
        await made.wish("hello")
        await settled()
        await made.store.delete(ConfigMap, "wish", NAMESPACE)
        await settled()
        assert made.echoes["h1"].destroyed == [""]
        with pytest.raises(NotFoundError):
            await made.assignment("h1")


@simulated()
async def test_a_host_that_was_away_clears_up_when_it_comes_back() -> None:
    async with cluster() as made:
        made.lead()
        made.host("h1")
        await made.wish("hello")
        await settled()
        await made.stop("h1")
        await made.store.delete(ConfigMap, "wish", NAMESPACE)
        await settled()
        assert (await made.assignment("h1")).spec.absent
        made.host("h1")
        await settled()
        assert made.echoes["h1"].destroyed == [""]
        assert (await made.store.list(Assignment)).items == ()


@simulated(range(5))
async def test_a_leader_that_is_followed_leaves_the_rest_to_the_next() -> None:
    async with cluster() as made:
        made.lead("one")
        made.host("h1")
        await settled()
        made.lead("two")
        await made.wish("hello")
        await made.stop("one")
        await settled(20.0)
        assert made.echoes["h1"].configured == [{"say": "hello"}]
        assert len(made.managers) == 2


@simulated()
async def test_a_host_object_that_is_deleted_is_a_removed_host() -> None:
    async with cluster() as made:
        made.lead()
        made.host("h1")
        await settled()
        await made.stop("h1")
        await made.store.delete(Host, "h1", NAMESPACE)
        await settled()
        assert made.events[-1].removed == ("h1",)


@simulated()
async def test_a_label_on_a_host_is_a_change_of_it() -> None:
    async with cluster() as made:
        made.lead()
        made.host("h1")
        await settled()

        def labelled(host: Host) -> Host:
            return replace(host, metadata=replace(host.metadata, labels={**host.metadata.labels, "rack": "7"}))

        await modify(made.store, Host, "h1", NAMESPACE, labelled)
        await settled()
        assert made.events[-1].changed == ("h1",)


@simulated()
async def test_a_storage_cluster_may_ask_for_another_debounce_and_another_heartbeat() -> None:
    async with cluster(timings=replace(TIMINGS, debounce_s=60.0, heartbeat_s=30.0)) as made:
        spec = StorageClusterSpec(type="local", timings=Stated(debounce_seconds=0.5, heartbeat_seconds=2.0))
        await made.store.create(StorageCluster(metadata=ObjectMeta(name="c", namespace=NAMESPACE), spec=spec))
        made.lead()
        made.host("h1")
        await settled()
        await made.wish("hello")
        await settled()
        assert made.echoes["h1"].configured == [{"say": "hello"}]
        before = (await made.store.get(Lease, "heartbeat.h1", NAMESPACE)).metadata.resource_version
        await settled(2.5)
        assert (await made.store.get(Lease, "heartbeat.h1", NAMESPACE)).metadata.resource_version != before
