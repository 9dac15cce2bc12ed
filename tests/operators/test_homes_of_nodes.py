"""Who keeps a host, also when that is lost, deleted or wanted by another node, and how it is given up."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from quartermaster.backends.assigning import Assigning
from quartermaster.resources import Assignment, Host, StorageNode
from quartermaster.resources.marks import ABANDON
from quartermaster.testing.simulation import simulated

from .world import NAMESPACE, reason_of, settled, world

pytestmark = pytest.mark.slow


@simulated()
async def test_a_node_whose_host_is_lost_is_given_up_only_when_somebody_says_so() -> None:
    async with world() as made:
        made.lead()
        for host in ("h1", "h2"):
            made.host(host)
            await made.node(host)
        await settled()
        await made.stop("h2")
        await settled(10)
        await made.store.delete(StorageNode, "h2", NAMESPACE)
        await settled(100)
        assert await made.get(StorageNode, "h2") is not None
        await made.annotate(StorageNode, "h2", ABANDON, "h2")
        await settled()
        assert await made.get(StorageNode, "h2") is None
        status = await made.status()
        assert (status.spec.status, status.status.node_count) == ("ONLINE", 1)


@simulated()
@pytest.mark.parametrize("first", ["host", "node"])
async def test_a_host_that_was_given_up_and_deleted_clears_away_what_it_runs_when_it_comes_back(first: str) -> None:
    async with world() as made:
        made.lead()
        made.host("h1")
        machine = made.host("h2")
        disk = machine.add_disk("vdb", serial="B")
        await made.node("h1")
        await made.node("h2", devices=[disk])
        await settled(20)
        assert (await made.storage_node("h2")).status.state == "Ready"
        written = machine.disks[disk].signatures
        assert len(machine.mounts) == 2
        await made.stop("h2")
        await settled(10)
        if first == "host":
            await made.store.delete(Host, "h2", NAMESPACE)
            await settled(10)
        await made.annotate(StorageNode, "h2", ABANDON, "h2")
        await made.store.delete(StorageNode, "h2", NAMESPACE)
        await settled(30)
        assert await made.get(StorageNode, "h2") is None
        if first == "node":
            await made.store.delete(Host, "h2", NAMESPACE)
        made.host("h2")
        await settled(200)
        assert len(machine.mounts) == 1
        left = (await made.store.list(Assignment, NAMESPACE, fields="spec.host=h2")).items
        assert [one.metadata.name for one in left] == []
        assert machine.disks[disk].signatures == written != ()


@simulated()
async def test_a_node_whose_host_was_deleted_by_force_waits_for_it_and_leaves_nothing_behind() -> None:
    async with world() as made:
        made.lead()
        made.host("h1")
        machine = made.host("h2")
        disk = machine.add_disk("vdb", serial="B")
        await made.node("h1")
        await made.node("h2", devices=[disk])
        await settled(20)
        await made.stop("h2")
        await made.store.delete(Host, "h2", NAMESPACE)
        await settled(30)
        await made.store.delete(StorageNode, "h2", NAMESPACE)
        await settled(30)
        node = await made.storage_node("h2")
        assert (node.status.state, node.status.message) == (
            "Draining",
            "waiting for host h2, which is silent or gone; `qm up` on it starts its agent, "
            "`qm node remove h2 --lost` gives up what was on it",
        )
        made.host("h2")
        await settled(200)
        assert await made.get(StorageNode, "h2") is None
        assert (await made.store.list(Assignment, NAMESPACE, fields="spec.host=h2")).items == ()
        assert [mount.target for mount in machine.mounts] == ["/"]


@simulated()
async def test_a_leader_that_planned_before_its_cache_caught_up_does_not_let_a_node_go() -> None:
    async with world() as made:
        made.lead()
        made.host("h1")
        await made.node("h1")
        await settled(20)
        await made.stop("leader")
        await made.store.delete(StorageNode, "h1", NAMESPACE)
        known, looks = Assigning.all, []

        def late(assigning: Assigning) -> list[Assignment]:
            looks.append(assigning)
            return [] if len(looks) == 1 else known(assigning)

        with patch.object(Assigning, "all", late):
            made.lead("next")
            await settled(30)
        assert len(looks) > 1
        assert await made.get(StorageNode, "h1") is None
        assert (await made.store.list(Assignment, NAMESPACE)).items == ()


@simulated()
async def test_a_node_whose_host_object_is_gone_waits_and_does_not_move_to_a_host_that_looks_alike() -> None:
    async with world() as made:
        made.lead()
        for host in ("h1", "h2"):
            made.host(host, labels={"rack": "7"} if host == "h1" else {})
        await made.node("n", nodeSelector={"rack": "7"}, directories=["/srv/a"])
        await settled(20)
        assert (await made.storage_node("n")).status.host == "h1"
        await made.stop("h1")
        await made.store.delete(Host, "h1", NAMESPACE)
        await made.stop("h2")
        made.host("h2", labels={"rack": "7"})
        await settled(60)
        node = await made.storage_node("n")
        assert (node.status.host, await reason_of(made, "n")) == ("h1", "NoHost")
        assert "host h1 was deleted, and the node's storage is on it" in node.status.message
        assert [one.spec.host for one in (await made.store.list(Assignment, NAMESPACE)).items] == ["h1"]
        made.host("h1", labels={"rack": "7"})
        await made.stop("h2")
        await made.store.delete(Host, "h2", NAMESPACE)
        await settled(60)
        assert (await made.storage_node("n")).status.state == "Ready"


@simulated()
async def test_a_host_stays_with_the_node_that_serves_it_whoever_was_declared_first() -> None:
    async with world() as made:
        made.lead()
        made.host("h1", address="10.0.0.1")
        await made.node("a", "nowhere", directories=["/srv/a"], storageNetwork={"ips": ["10.0.0.1"]})
        await settled()
        await made.node("b", "h1", directories=["/srv/a"], storageNetwork={"ips": ["10.0.0.1"]})
        await settled()
        assert (await made.storage_node("b")).status.state == "Ready"
        await made.node("a", "h1", directories=["/srv/a"], storageNetwork={"ips": ["10.0.0.1"]})
        await settled()
        assert (await made.storage_node("b")).status.state == "Ready"
        assert await reason_of(made, "a") == "SameHost"


@simulated()
async def test_a_directory_stays_with_the_node_that_serves_it_whoever_was_declared_first() -> None:
    async with world() as made:
        made.lead()
        made.host("h1")
        await made.node("old", "h1", directories=["/srv/a"])
        await settled()
        await made.node("young", "h1", cluster="b", directories=["/srv/b"])
        await settled()
        await made.node("old", "h1", directories=["/srv/a", "/srv/b"])
        await settled()
        assert (await made.storage_node("young")).status.state == "Ready"
        assert await reason_of(made, "old") == "SameDirectory"
        served = {}
        for name in ("default", "b"):
            found = await made.get(Assignment, f"local-{name}.h1")
            assert found is not None
            assert found.spec.desired is not None
            served[name] = found.spec.desired["directories"]
        assert served == {"default": ["/srv/a"], "b": ["/srv/b"]}


@simulated()
@pytest.mark.parametrize(
    ("first", "second", "how"),
    [
        ("/srv/a", "/srv/a/b/", "/srv/a/b lies in /srv/a, which belongs to StorageNode first already"),
        ("/srv/a/b", "/srv//a", "/srv/a holds /srv/a/b, which belongs to StorageNode first already"),
    ],
)
async def test_a_directory_that_lies_in_one_of_another_node_or_holds_it_is_refused(
    first: str, second: str, how: str
) -> None:
    async with world() as made:
        made.lead()
        made.host("h1")
        await made.node("first", "h1", directories=[first])
        await settled()
        await made.node("second", "h1", cluster="b", directories=[second])
        await settled()
        assert (await made.storage_node("first")).status.state == "Ready"
        assert await reason_of(made, "second") == "SameDirectory"
        node = await made.storage_node("second")
        assert (node.status.state, node.status.message) == ("Pending", how)
        assert await made.get(Assignment, "local-b.h1") is None
        await made.node("second", "h1", cluster="b", directories=["/srv/ab/"])
        await settled()
        assert (await made.storage_node("second")).status.state == "Ready"


@simulated()
async def test_a_node_may_offer_a_directory_that_holds_one_of_its_own() -> None:
    async with world() as made:
        made.lead()
        made.host("h1")
        await made.node("h1", directories=["/srv/a/b"])
        await settled()
        await made.claim("data")
        await settled()
        await made.node("h1", directories=["/srv/a"])
        await settled()
        found = await made.get(Assignment, "local-default.h1")
        assert found is not None
        assert found.spec.desired is not None
        assert found.spec.desired["directories"] == ["/srv/a", "/srv/a/b"]


@simulated()
async def test_a_deleted_node_with_volumes_on_a_dead_host_is_told_how_it_is_given_up() -> None:
    async with world() as made:
        made.lead()
        for host in ("h1", "h2"):
            made.host(host)
            await made.node(host)
        await settled()
        await made.claim("data", host="h2")
        await settled()
        await made.stop("h2")
        await settled(10)
        await made.store.delete(StorageNode, "h2", NAMESPACE)
        await settled()
        told = "host h2 is silent or gone: `qm up` on it starts its agent, `qm node remove h2 --lost` gives up what was"
        assert told in (await made.storage_node("h2")).status.message


@simulated()
async def test_the_name_of_a_living_host_gives_nothing_up() -> None:
    async with world() as made:
        made.lead()
        made.host("h1")
        await made.node("h1")
        await settled()
        await made.claim("data")
        await settled()
        await made.annotate(StorageNode, "h1", ABANDON, "h1")
        await settled()
        assert (await made.storage_node("h1")).status.state == "Ready"
