"""An agent tells of its host: what it is called, what disks it has, and that it lives."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from quartermaster.orchestration.heartbeat import heartbeat_name
from quartermaster.orchestration.registration import Registration, described
from quartermaster.resources.kubernetes.core import Lease
from quartermaster.resources.marks import HOSTNAME_LABEL
from quartermaster.resources.model import ObjectMeta
from quartermaster.resources.orchestration import Host
from quartermaster.stores import modify
from quartermaster.testing.simulation import simulated

from .samples import NAMESPACE, TIMINGS, cluster, settled


@simulated()
async def test_a_host_registers_with_its_labels_addresses_and_devices() -> None:
    async with cluster() as made:
        made.host("h1")
        made.machines["h1"].add_disk("vdb", serial="S1")
        await settled()
        host = await made.store.get(Host, "h1", NAMESPACE)
        assert host.metadata.labels == {"kubernetes.io/hostname": "h1"}
        assert host.spec.addresses == ("10.0.0.1",)
        assert host.status.inventory is not None
        assert [(device.path, device.id, device.state) for device in host.status.inventory.devices] == [
            ("/dev/vdb", "S1", "Available")
        ]
        assert host.status.inventory.facts["missing"] == "glusterd"


def test_a_label_that_was_taken_back_goes_and_those_of_others_and_the_name_stay() -> None:
    host = Host(metadata=ObjectMeta(name="h1", namespace=NAMESPACE, labels={"rack": "7", "theirs": "x"}))
    told = Registration("h1", NAMESPACE, labels={"rack": None, HOSTNAME_LABEL: None})
    assert described(host, told).metadata.labels == {"theirs": "x", HOSTNAME_LABEL: "h1"}


@simulated()
async def test_labels_that_others_gave_the_host_survive_a_restart_of_its_agent() -> None:
    async with cluster() as made:
        made.host("h1")
        await settled()

        def labelled(host: Host) -> Host:
            return replace(host, metadata=replace(host.metadata, labels={**host.metadata.labels, "rack": "7"}))

        await modify(made.store, Host, "h1", NAMESPACE, labelled)
        await made.stop("h1")
        made.host("h1")
        await settled()
        assert (await made.store.get(Host, "h1", NAMESPACE)).metadata.labels["rack"] == "7"


@simulated()
async def test_a_restart_of_the_agent_writes_nothing_about_the_host() -> None:
    async with cluster() as made:
        made.host("h1")
        await settled()
        before = (await made.store.get(Host, "h1", NAMESPACE)).metadata.resource_version
        await made.stop("h1")
        made.host("h1")
        await settled()
        assert (await made.store.get(Host, "h1", NAMESPACE)).metadata.resource_version == before


@simulated()
async def test_a_host_object_that_was_deleted_is_made_again() -> None:
    async with cluster() as made:
        made.host("h1")
        await settled()
        await made.store.delete(Host, "h1", NAMESPACE)
        await settled(TIMINGS.inventory_s + 1)
        assert (await made.store.get(Host, "h1", NAMESPACE)).status.inventory is not None


@simulated()
async def test_the_heartbeat_changes_with_every_beat_and_outlives_a_deletion() -> None:
    async with cluster() as made:
        made.host("h1")
        await settled()
        versions = []
        for _ in range(3):
            versions.append((await made.store.get(Lease, heartbeat_name("h1"), NAMESPACE)).metadata.resource_version)
            await asyncio.sleep(TIMINGS.heartbeat_s)
        assert len(set(versions)) == 3
        await made.store.delete(Lease, heartbeat_name("h1"), NAMESPACE)
        await settled()
        assert (await made.store.get(Lease, heartbeat_name("h1"), NAMESPACE)).spec.holder_identity == "h1"


@simulated(range(5))
async def test_a_disk_that_is_plugged_in_is_noticed_by_itself() -> None:
    async with cluster() as made:
        agent = made.host("h1")
        await settled()
        made.machines["h1"].add_disk("vdc", serial="S2")
        agent.inventory._machine.events.announce("vdc")  # type: ignore[attr-defined]
        await settled(1.0)
        inventory = (await made.store.get(Host, "h1", NAMESPACE)).status.inventory
        assert inventory is not None
        assert [device.path for device in inventory.devices] == ["/dev/vdc"]
