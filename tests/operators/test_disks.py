"""Who has a disk: it stays with whom it serves, and whoever gave it up may have it back."""

from __future__ import annotations

import pytest

from quartermaster.host.devices.model import Signature
from quartermaster.host.fake import FakeMachine
from quartermaster.resources import Assignment, PersistentVolumeClaim, StorageNode
from quartermaster.resources.conditions import find_condition
from quartermaster.resources.marks import DRAIN
from quartermaster.testing.simulation import simulated

from .world import NAMESPACE, World, settled, world

pytestmark = pytest.mark.slow


async def paths_of(made: World, cluster: str = "default", host: str = "h1") -> list[str]:
    """What is asked of the agent."""
    found = await made.get(Assignment, f"local-{cluster}.{host}")
    return [entry["path"] for entry in ((found.spec.desired or {}) if found is not None else {}).get("devices", ())]


async def accepted(made: World, name: str) -> tuple[str, str, str]:
    found = find_condition((await made.storage_node(name)).status.conditions, "Accepted")
    assert found is not None
    return found.status, found.reason, found.message


def content(machine: FakeMachine, path: str) -> tuple[Signature, ...]:
    return machine.disks[path].signatures


@simulated()
async def test_a_disk_stays_with_the_cluster_that_it_serves_and_who_comes_later_is_told() -> None:
    async with world() as made:
        made.lead()
        disk = made.host("h1").add_disk("vdd", serial="D")
        await made.node("za", "h1", cluster="zz", devices=[disk])
        await settled()
        await made.node("ba", "h1", cluster="bb", devices=[disk])
        await settled()
        told = f"{disk} (D) belongs to StorageNode za already"
        assert await accepted(made, "ba") == ("False", "DuplicateDevice", told)
        assert (await made.storage_node("ba")).status.state == "Pending"
        assert (await made.storage_node("za")).status.state == "Ready"
        assert (await paths_of(made, "zz"), await paths_of(made, "bb")) == ([disk], [])


@simulated()
async def test_who_wants_all_disks_gets_those_that_nobody_has() -> None:
    """Also when its node is older than the one that has them."""
    async with world() as made:
        made.lead()
        machine = made.host("h1")
        taken, free = machine.add_disk("vdc", serial="C"), machine.add_disk("vdd", serial="D")
        await made.node("all", "h1", directories=["/srv/a"])
        await settled()
        await made.node("ta", "h1", cluster="a", devices=[taken])
        await settled()
        await made.node("all", "h1", useAllDevices=True)
        await settled()
        assert (await made.storage_node("ta")).status.state == "Ready"
        assert await paths_of(made) == [free]
        await made.node("late", "h1", cluster="b", useAllDevices=True)
        await settled()
        late = await made.storage_node("late")
        assert late.status.state == "Pending"
        assert "belongs to StorageNode ta already" in late.status.message
        assert await paths_of(made, "b") == []


@simulated()
async def test_a_node_that_was_drained_and_is_to_stay_has_its_disk_again() -> None:
    async with world() as made:
        made.lead()
        machine = made.host("h1")
        disk = machine.add_disk("vdd", serial="D")
        await made.node("h1", devices=[disk])
        await settled()
        before = content(machine, disk)
        await made.annotate(StorageNode, "h1", DRAIN)
        await settled()
        assert (await made.storage_node("h1")).status.state == "Drained"
        assert disk not in [mount.source for mount in machine.mounts]
        await made.annotate(StorageNode, "h1", DRAIN, None)
        await settled()
        assert (await made.storage_node("h1")).status.state == "Ready"
        assert content(machine, disk) == before


@simulated()
async def test_the_only_node_of_a_cluster_has_its_disk_again_when_it_is_declared_again() -> None:
    async with world() as made:
        made.lead()
        machine = made.host("h1")
        disk = machine.add_disk("vdd", serial="D")
        await made.node("h1", devices=[disk])
        await settled()
        before = content(machine, disk)
        await made.store.delete(StorageNode, "h1", NAMESPACE)
        await settled(30)
        assert await made.get(StorageNode, "h1") is None
        assert disk not in [mount.source for mount in machine.mounts]
        await made.node("h1", devices=[disk])
        await settled(30)
        assert (await made.storage_node("h1")).status.state == "Ready"
        assert content(machine, disk) == before


@simulated()
async def test_a_disk_that_is_listed_again_is_mounted_as_it_is() -> None:
    async with world() as made:
        made.lead()
        machine = made.host("h1")
        one, two = machine.add_disk("vdb", serial="A"), machine.add_disk("vdc", serial="B")
        before: tuple[Signature, ...] = ()
        for devices in ([one, two], [one], [one, two]):
            await made.node("h1", devices=devices)
            await settled()
            node = await made.storage_node("h1")
            assert (node.status.state, node.status.message) == ("Ready", "")
            assert await paths_of(made) == devices
            before = before or content(machine, two)
            assert content(machine, two) == before


@simulated()
async def test_a_disk_with_a_file_system_of_ours_that_nobody_gave_up_stays_refused() -> None:
    async with world() as made:
        made.lead()
        machine = made.host("h1")
        one, two = machine.add_disk("vdb", serial="A"), machine.add_disk("vdc", serial="B")
        await made.node("h1", devices=[one, two])
        await settled()
        await made.node("h1", devices=[one])
        await settled()
        strange = Signature("ext4", "filesystem", "11111111-2222-3333-4444-555555555555", "qm-local")
        machine.write(two, strange)
        await settled(400)  # until its agent has looked again
        await made.node("h1", devices=[one, two])
        await settled()
        node = await made.storage_node("h1")
        assert node.status.devices[1].reason == "OtherCluster"
        assert content(machine, two) == (strange,)
        assert await paths_of(made) == [one]
        assert node.status.message.startswith(
            f"1 of 2 listed disks is used: {two} holds data of another cluster, or of an earlier life of this one"
        )


@simulated()
async def test_what_changed_on_a_disk_that_was_given_up_is_seen_by_the_agent_before_it_acts() -> None:
    """The leader decides by what the host said last; whoever formats or mounts looks for himself."""
    async with world() as made:
        made.lead()
        machine = made.host("h1")
        one, two = machine.add_disk("vdb", serial="A"), machine.add_disk("vdc", serial="B")
        await made.node("h1", devices=[one, two])
        await settled()
        await made.node("h1", devices=[one])
        await settled()
        strange = Signature("ext4", "filesystem", "11111111-2222-3333-4444-555555555555", "qm-local")
        machine.write(two, strange)
        await made.node("h1", devices=[one, two])
        await settled(3)
        assert await paths_of(made) == [one, two]
        await settled(30)
        assert content(machine, two) == (strange,)
        assert two not in [mount.source for mount in machine.mounts]
        assert (await made.storage_node("h1")).status.state == "Degraded"


@simulated()
async def test_a_disk_without_identity_is_known_by_its_file_system_and_a_blank_one_in_its_place_is_another() -> None:
    async with world() as made:
        made.lead()
        machine = made.host("h1")
        disk = machine.add_disk("vdb")
        await made.node("h1", devices=[disk])
        await settled()
        (written,) = content(machine, disk)
        await made.stop("h1")
        machine.reboot()
        machine.put_disk(machine.pull_disk(disk), "/dev/vdc")
        machine.add_disk("vdb")
        made.host("h1")
        await settled(400)
        assert content(machine, "/dev/vdb") == ()
        assert content(machine, "/dev/vdc") == (written,)
        assert [mount.source for mount in machine.mounts][1:] == ["/dev/vdc"]
        await made.stop("h1")
        machine.reboot()
        machine.pull_disk("/dev/vdc")
        made.host("h1")
        await settled(400)
        node = await made.storage_node("h1")
        assert node.status.state in ("Failed", "Degraded")
        assert "cannot find the disk that was /dev/vdb" in node.status.message
        assert content(machine, "/dev/vdb") == ()


@simulated()
async def test_a_disk_that_was_given_up_is_not_another_clusters() -> None:
    async with world() as made:
        made.lead()
        machine = made.host("h1")
        disk = machine.add_disk("vdb", serial="A")
        await made.node("h1", devices=[disk])
        await settled()
        await made.annotate(StorageNode, "h1", DRAIN)
        await settled()
        await made.node("other", "h1", cluster="b", devices=[disk])
        await settled()
        assert (await made.storage_node("other")).status.state == "Pending"
        assert await paths_of(made, "b") == []


@simulated()
async def test_what_is_wrong_with_listed_disks_is_in_the_message() -> None:
    async with world() as made:
        made.lead()
        machine = made.host("h1")
        foreign, good = machine.add_disk("vdb", serial="A"), machine.add_disk("vdd", serial="D")
        machine.write(foreign, Signature("xfs", "filesystem", "u", "photos"))
        await made.node("h1", devices=[foreign, good, "/dev/vdz"])
        await settled()
        node = await made.storage_node("h1")
        assert node.status.state == "Ready"
        assert node.status.message == (
            f'1 of 3 listed disks is used: {foreign} holds data that is not ours (xfs named "photos"); '
            "host h1 has no device /dev/vdz"
        )
        assert (await accepted(made, "h1"))[:2] == ("False", "DevicesRefused")


@simulated()
async def test_a_consent_that_names_no_disk_is_told_where_a_disk_waits_for_one() -> None:
    async with world() as made:
        made.lead()
        machine = made.host("h1")
        foreign, good = machine.add_disk("vdb", serial="A"), machine.add_disk("vdc", serial="B")
        machine.write(foreign, Signature("xfs", "filesystem", "u", "photos"))
        await made.node("h1", devices=[good], wipe=["TYPO"])
        await settled()
        assert (await made.storage_node("h1")).status.message == ""
        await made.node("h1", devices=[good, foreign], wipe=["TYPO"])
        await settled()
        told = "spec.wipe names TYPO, and no disk of host h1 has that serial number or WWN"
        assert told in (await made.storage_node("h1")).status.message
        assert told in (await accepted(made, "h1"))[2]
        await made.node("h1", devices=[foreign], wipe=["TYPO"])
        await settled()
        assert told in (await made.storage_node("h1")).status.message
        await made.node("h1", devices=[foreign], wipe=["A"])
        await settled()
        node = await made.storage_node("h1")
        assert (node.status.state, node.status.message) == ("Ready", "")


@simulated()
async def test_a_disk_that_is_not_declared_any_more_stays_until_its_volume_is_gone() -> None:
    async with world() as made:
        made.lead()
        machine = made.host("h1")
        disk = machine.add_disk("vdb", serial="A")
        await made.node("h1", devices=[disk])
        await settled()
        await made.claim("data")
        await settled()
        claim = await made.get(PersistentVolumeClaim, "data")
        assert claim is not None
        assert claim.spec.volume_name
        await made.node("h1", devices=[])
        await settled()
        node = await made.storage_node("h1")
        assert (node.status.state, node.status.message) == (
            "Ready",
            f"{disk} stays until volume {NAMESPACE}/data is gone",
        )
        await made.store.delete(PersistentVolumeClaim, "data", NAMESPACE)
        await settled(60)
        assert (await made.storage_node("h1")).status.state == "Pending"
        assert await made.get(Assignment, "local-default.h1") is None
        assert disk not in [mount.source for mount in machine.mounts]
