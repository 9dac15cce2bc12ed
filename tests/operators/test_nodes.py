"""What becomes of nodes: declared wrongly, changed, drained, deleted, given up."""

from __future__ import annotations

from typing import Any

import pytest

from quartermaster.host.devices.model import Signature
from quartermaster.resources import Assignment, PersistentVolumeClaim, StorageCluster, StorageNode, StorageStatus
from quartermaster.resources.conditions import find_condition
from quartermaster.resources.marks import APPROVED, DRAIN, MAINTENANCE, NODE_FINALIZER, PAUSED
from quartermaster.support.errors import InvalidError
from quartermaster.testing.simulation import simulated

from .world import NAMESPACE, World, reason_of, settled, world

pytestmark = pytest.mark.slow

FOREIGN = Signature("ext4", "filesystem", "11111111-2222-3333-4444-555555555555", "photos")


@simulated()
async def test_every_wrong_declaration_is_a_condition_and_the_rest_of_the_cluster_goes_on() -> None:
    async with world() as made:
        made.lead()
        made.host("h1", address="10.0.0.1")
        made.host("h2", address="10.0.0.2", labels={"rack": "a"})
        made.host("h3", address="10.0.0.3", labels={"rack": "a"})
        await made.node("right", "h1", directories=["/srv/a"], storageNetwork={"ips": ["10.0.0.1"]})
        await settled()
        await made.node("no-host", "nowhere")
        await made.store.apply(_selecting("two-hosts", {"rack": "a"}))
        await made.node("same-host", "h1")
        await made.node("foreign-address", "h2", directories=["/srv/a"], storageNetwork={"ips": ["10.0.0.9"]})
        await settled()
        assert await reason_of(made, "no-host") == "NoHost"
        assert await reason_of(made, "two-hosts") == "SeveralHosts"
        assert await reason_of(made, "same-host") == "SameHost"
        assert await reason_of(made, "foreign-address") == "AddressNotOnHost"
        assert (await made.storage_node("right")).status.state == "Ready"
        status = await made.status()
        assert (status.spec.status, status.status.node_count, status.status.ready_count) == ("ONLINE", 5, 1)
        assert status.status.nodes[-1].name == "right"


@simulated()
async def test_of_two_nodes_with_one_address_the_first_serves_and_the_second_is_told() -> None:
    async with world() as made:
        made.lead()
        for host in ("h1", "h2"):
            made.host(host, address="10.0.0.1")
        await made.node("first", "h1", directories=["/srv/a"], storageNetwork={"ips": ["10.0.0.1"]})
        await settled()
        await made.node("second", "h2", directories=["/srv/a"], storageNetwork={"ips": ["10.0.0.1"]})
        await settled()
        assert await reason_of(made, "second") == "SameAddress"
        assert (await made.storage_node("first")).status.state == "Ready"
        assert (await made.status()).spec.status == "ONLINE"


@simulated()
async def test_a_corrected_declaration_is_picked_up() -> None:
    async with world() as made:
        made.lead()
        made.host("h1")
        await made.node("h1", "wrong")
        await settled()
        assert await reason_of(made, "h1") == "NoHost"
        await made.node("h1", "h1")
        await settled()
        assert (await made.storage_node("h1")).status.state == "Ready"


@simulated()
async def test_the_type_of_a_node_cannot_change() -> None:
    async with world() as made:
        await made.node("h1")
        document = _selecting("h1", {"kubernetes.io/hostname": "h1"})
        document["spec"]["type"] = "nfs"
        with pytest.raises(InvalidError, match="type"):
            await made.store.apply(document, manager="test", force=True)


@simulated()
async def test_devices_are_shown_with_the_reason_why_they_are_refused_and_never_touched() -> None:
    async with world() as made:
        made.lead()
        machine = made.host("h1")
        good, foreign = machine.add_disk("vdb", serial="A"), machine.add_disk("vdc", serial="B")
        machine.write(foreign, FOREIGN)
        await made.node("h1", devices=[good, foreign, "/dev/vdz"])
        await settled()
        node = await made.storage_node("h1")
        shown = {device.path: (device.state, device.reason) for device in node.status.devices}
        assert shown == {
            good: ("InUse", ""),
            foreign: ("Rejected", "ForeignData"),
            "/dev/vdz": ("Rejected", "NotFound"),
        }
        assert node.status.state == "Ready"
        assert machine.disks[foreign].signatures == (FOREIGN,)
        assert node.status.capacity is not None
        assert node.status.capacity.total == "10Gi"


@simulated(range(20))
async def test_a_named_consent_wipes_one_disk_once_and_is_recorded() -> None:
    async with world() as made:
        made.lead()
        machine = made.host("h1")
        foreign, other = machine.add_disk("vdb", serial="A"), machine.add_disk("vdc", serial="B")
        machine.write(foreign, FOREIGN)
        machine.write(other, FOREIGN)
        await made.node("h1", devices=[foreign, other], wipe=["A"])
        await settled()
        node = await made.storage_node("h1")
        assert [one.id for one in node.status.wiped] == ["A"]
        assert machine.disks[foreign].signatures[0].label == "qm-local"
        assert machine.disks[other].signatures == (FOREIGN,)
        assignment = await made.store.get(Assignment, "local-default.h1", NAMESPACE)
        assert all("wipe" not in entry for entry in (assignment.spec.desired or {})["devices"])


@simulated()
async def test_a_disk_that_two_nodes_name_belongs_to_the_first() -> None:
    async with world() as made:
        made.lead()
        disk = made.host("h1").add_disk("vdb", serial="SHARED")
        made.host("h2").add_disk("vdb", serial="SHARED")
        await made.node("h1", devices=[disk])
        await settled()
        await made.node("h2", devices=[disk])
        await settled()
        first, second = await made.storage_node("h1"), await made.storage_node("h2")
        assert first.status.devices[0].state == "InUse"
        assert second.status.devices[0].reason == "DuplicateDevice"
        assert "belongs to StorageNode h1 already" in second.status.message


@simulated()
async def test_devices_are_added_and_removed_with_the_declaration() -> None:
    async with world() as made:
        made.lead()
        machine = made.host("h1")
        one, two = machine.add_disk("vdb", serial="A"), machine.add_disk("vdc", serial="B", size=20 << 30)
        await made.node("h1", devices=[one])
        await settled()
        await made.node("h1", devices=[one, two])
        await settled()
        assert (await _capacity(made, "h1")) == "30Gi"
        await made.node("h1", devices=[two])
        await settled()
        assert (await _capacity(made, "h1")) == "20Gi"
        assert [mount.source for mount in machine.mounts[1:]] == [two]
        assert machine.disks[one].signatures[0].label == "qm-local"


@simulated()
async def test_a_new_disk_is_used_by_itself_where_all_are_wanted() -> None:
    async with world() as made:
        made.lead()
        machine = made.host("h1")
        machine.add_disk("vdb", serial="A")
        await made.node("h1", useAllDevices=True)
        await settled()
        machine.add_disk("vdc", serial="B")
        await settled(made.timings.inventory_s + 5)
        assert (await _capacity(made, "h1")) == "20Gi"


@simulated()
async def test_a_disk_keeps_its_volumes_when_the_kernel_renames_it() -> None:
    async with world() as made:
        made.lead()
        machine = made.host("h1")
        disk = machine.add_disk("vdb", serial="A")
        await made.node("h1", devices=[disk])
        await settled()
        await made.stop("h1")
        machine.reboot()
        machine.put_disk(machine.pull_disk(disk), "/dev/vdx")
        machine.add_disk("vdb", serial="NEW")
        made.host("h1")
        await settled(20)
        node = await made.storage_node("h1")
        assert [(one.path, one.state) for one in node.status.devices] == [("/dev/vdx", "InUse")]
        assert machine.disks["/dev/vdb"].signatures == ()


@simulated()
async def test_a_node_that_holds_volumes_stays_until_they_are_gone_and_says_so() -> None:
    async with world() as made:
        made.lead()
        for host in ("h1", "h2"):
            made.host(host)
            await made.node(host)
        await settled()
        await made.claim("data", host="h1")
        await settled()
        await made.store.delete(StorageNode, "h1", NAMESPACE)
        await settled()
        node = await made.storage_node("h1")
        assert node.status.state == "Draining"
        assert node.status.message.startswith(f"it holds a volume that cannot move: {NAMESPACE}/data; delete ")
        await made.store.delete(PersistentVolumeClaim, "data", NAMESPACE)
        await settled(20)
        assert await made.get(StorageNode, "h1") is None
        assert (await made.status()).status.node_count == 1


@simulated()
async def test_a_drain_waits_with_the_node_in_place_and_can_be_cancelled() -> None:
    async with world() as made:
        made.lead()
        for host in ("h1", "h2"):
            made.host(host)
            await made.node(host)
        await settled()
        await made.annotate(StorageNode, "h1", DRAIN)
        await settled()
        assert (await made.storage_node("h1")).status.state == "Drained"
        assert (await made.status()).spec.status == "ONLINE"
        await made.annotate(StorageNode, "h1", DRAIN, None)
        await settled()
        assert (await made.storage_node("h1")).status.state == "Ready"


@simulated()
async def test_a_node_in_maintenance_takes_no_volumes_and_keeps_its_own() -> None:
    async with world() as made:
        made.lead()
        for host in ("h1", "h2"):
            made.host(host)
            await made.node(host)
        await settled()
        await made.annotate(StorageNode, "h1", MAINTENANCE)
        await settled()
        await made.claim("data", host="h1")
        await settled()
        assert (await made.storage_node("h1")).status.state == "Maintenance"
        claim = await made.get(PersistentVolumeClaim, "data")
        assert claim is not None
        assert claim.status.phase == "Pending"


@simulated()
async def test_a_drain_is_refused_when_the_others_have_no_room_for_what_is_in_use() -> None:
    async with world() as made:
        made.lead()
        large, small = made.host("h1"), made.host("h2")
        await made.node("h1", devices=[large.add_disk("vdb", serial="A", size=100 << 30)])
        await made.node("h2", devices=[small.add_disk("vdb", serial="B", size=10 << 30)])
        await settled()
        await made.claim("data", "10Gi", host="h1")
        await settled()
        await made.annotate(StorageNode, "h1", DRAIN)
        await settled()
        node = await made.storage_node("h1")
        leaving = find_condition(node.status.conditions, "Leaving")
        assert leaving is not None
        assert (leaving.status, leaving.reason) == ("False", "RemainingCapacityTooSmall")
        assert "10 GiB are in use, and the nodes that stay have 10 GiB, of which 5% must stay free" in leaving.message
        assert node.status.state == "Ready"


@simulated()
async def test_a_node_moves_to_another_cluster_when_it_has_left_its_own() -> None:
    async with world() as made:
        made.lead()
        made.host("h1")
        await made.node("h1", "h1", "a", directories=["/srv/x"])
        await settled()
        assert (await made.status("a")).spec.status == "ONLINE"
        await made.node("h1", "h1", "b", directories=["/srv/x"])
        await settled()
        assert (await made.status("b")).spec.status == "ONLINE"
        assert await made.get(StorageStatus, "local-a") is None
        assert (await made.storage_node("h1")).status.cluster == "b"


@simulated()
async def test_zones_follow_the_declaration() -> None:
    async with world() as made:
        made.lead()
        made.host("h1")
        await made.node("h1", directories=["/srv/x"], local={"zone": 1})
        await settled()
        await made.node("h1", directories=["/srv/x"], local={"zone": 7})
        await settled()
        assert (await made.status()).status.nodes[0].zone == 7


@simulated()
async def test_a_paused_cluster_is_looked_at_and_not_touched() -> None:
    async with world() as made:
        made.lead()
        made.host("h1")
        await made.node("h1")
        await settled()
        await made.annotate(StorageStatus, "local-default", PAUSED)
        made.host("h2")
        await made.node("h2")
        await made.store.delete(StorageNode, "h1", NAMESPACE)
        await settled()
        status = await made.status()
        paused = find_condition(status.status.conditions, "Paused")
        assert paused is not None
        assert paused.status == "True"
        assert "`qm resume local-default` goes on" in status.status.message
        assert status.status.node_count == 2
        assert [one.spec.host for one in (await made.store.list(Assignment, NAMESPACE)).items] == ["h1"]
        assert NODE_FINALIZER in (await made.storage_node("h1")).metadata.finalizers
        await made.annotate(StorageStatus, "local-default", PAUSED, None)
        await settled()
        assert await made.get(StorageNode, "h1") is None
        assert (await made.storage_node("h2")).status.state == "Ready"
        assert find_condition((await made.status()).status.conditions, "Paused") is None


@simulated()
async def test_what_destroys_something_waits_for_an_approval_of_exactly_that() -> None:
    async with world() as made:
        made.lead()
        await made.cluster(requireApproval=True)
        machine = made.host("h1")
        disk = machine.add_disk("vdb", serial="A")
        machine.write(disk, FOREIGN)
        await made.node("h1", devices=[disk], directories=["/srv/x"], wipe=["A"])
        await settled()
        needed = find_condition((await made.status()).status.conditions, "ApprovalNeeded")
        assert needed is not None
        assert "what is on /dev/vdb (A) is lost, by consent" in needed.message
        assert machine.disks[disk].signatures == (FOREIGN,)
        await made.annotate(StorageStatus, "local-default", APPROVED, "000000000000")
        await settled()
        assert machine.disks[disk].signatures == (FOREIGN,)
        digest = needed.message.rpartition("[")[2].partition("]")[0]
        await made.annotate(StorageStatus, "local-default", APPROVED, digest)
        await settled()
        assert machine.disks[disk].signatures[0].label == "qm-local"
        assert find_condition((await made.status()).status.conditions, "ApprovalNeeded") is None


@simulated()
async def test_a_selector_that_changes_does_not_take_a_node_off_its_host() -> None:
    async with world() as made:
        made.lead()
        made.host("h1")
        made.host("h2")
        await made.node("n", "h1")
        await settled()
        await made.node("n", "h2")
        await settled()
        assert await reason_of(made, "n") == "HostChanged"
        node = await made.storage_node("n")
        assert (node.status.host, node.status.state) == ("h1", "Ready")


@simulated()
async def test_settings_of_time_make_a_host_unhealthy_sooner() -> None:
    async with world() as made:
        made.lead()
        await made.cluster(timings={"unhealthyAfterSeconds": 2, "moveDataAfterSeconds": 3})
        made.host("h1")
        await made.node("h1")
        await settled()
        await made.stop("h1")
        await settled(4)
        assert (await made.status()).spec.status == "OFFLINE"
        assert (await made.store.get(StorageCluster, "settings-default", NAMESPACE)).status.observed_generation == 1


async def _capacity(made: World, name: str) -> str | int | None:
    capacity = (await made.storage_node(name)).status.capacity
    return capacity.total if capacity is not None else None


def _selecting(name: str, labels: dict[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "coreos.com/v1",
        "kind": "StorageNode",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"type": "local", "nodeSelector": labels, "directories": ["/srv/b"]},
    }
