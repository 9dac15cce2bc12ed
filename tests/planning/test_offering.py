"""What a node offers, above all one that is to go and still holds volumes."""

from __future__ import annotations

from typing import Any

from quartermaster.planning.cluster import (
    ABANDON,
    DRAIN,
    ClusterKey,
    ClusterView,
    Desired,
    NodeView,
    Report,
    Settings,
    VolumeView,
)
from quartermaster.planning.offering import BASE, file_system_uuid, plan_nodes, with_losses
from quartermaster.planning.steps import digest_of
from quartermaster.resources.devices import Device
from quartermaster.resources.model import ObjectMeta
from quartermaster.resources.orchestration import AssignmentStatus
from quartermaster.resources.storage import StorageNode, StorageNodeSpec

KEY = ClusterKey("default", "local", "default")
DISK = Device(path="/dev/vdb", id="S1", size=1 << 30, rotational=False, state="Rejected", reason="ForeignData")
SPARE = Device(path="/dev/vdc", id="S2", size=1 << 30, rotational=False, state="Available")
UUID = file_system_uuid(KEY, "h1", "S1")
VOLUME = VolumeView("pvc-1", 1 << 20, ("h1",), {BASE: f"/var/lib/agents/local/mounts/default/{UUID}"})
ENTRY = {"id": "S1", "uuid": UUID, "path": "/dev/vdb"}


def assignments_of(
    report: Report | None, *, leaving: str = DRAIN, present: tuple[Device, ...] = (DISK, SPARE), volume: bool = True
) -> tuple[Desired, ...]:
    node = StorageNode(
        metadata=ObjectMeta(name="n1", namespace="default"), spec=StorageNodeSpec(type="local", use_all_devices=True)
    )
    seen = NodeView(node, "h1", present=present, leaving=leaving, reports=(report,) if report is not None else ())
    return plan_nodes(
        ClusterView(KEY, Settings(), (seen,), (VOLUME,) if volume else ()), "local", "default"
    ).assignments


def report_of(desired: dict[str, Any] | None) -> Report:
    status = AssignmentStatus(state="succeeded", observed_generation=2)
    return Report("local", "default", 2, desired, desired is None, status)


def test_a_node_that_is_to_go_is_taken_off_its_host_when_it_holds_nothing() -> None:
    (wanted,) = assignments_of(report_of({"devices": [ENTRY], "directories": []}), volume=False)
    assert wanted.config is None


def test_while_it_holds_a_volume_it_offers_what_it_offered() -> None:
    before = {"devices": [ENTRY, {**ENTRY, "id": "S3", "uuid": "u3"}], "directories": ["/srv/a"]}
    (wanted,) = assignments_of(report_of(before))
    assert wanted.config == before


def test_a_service_that_was_asked_to_be_gone_before_its_volume_was_known_is_asked_for_again() -> None:
    """And with it the volume's disk alone: no other disk is begun on a node that is to go."""
    for report in (report_of(None), None):
        (wanted,) = assignments_of(report)
        assert wanted.config == {"devices": [ENTRY], "directories": []}


def test_that_waits_until_the_disk_is_there() -> None:
    assert assignments_of(None, present=(SPARE,)) == ()
    (wanted,) = assignments_of(report_of({"devices": [], "directories": ["/srv/a"]}))
    assert wanted.config == {"devices": [ENTRY], "directories": ["/srv/a"]}


def test_of_a_node_that_was_given_up_nothing_is_asked_for_again() -> None:
    assert assignments_of(None, leaving=ABANDON) == ()


def test_a_consent_is_approved_of_its_disks_whatever_else_their_host_is_told() -> None:
    entry = {"id": "S1", "uuid": "u1", "path": "/dev/vdb", "wipe": "S1"}
    wiping = with_losses(Desired("h1", "a", {"devices": [entry], "directories": []}))
    assert wiping.destroys == "what is on /dev/vdb (S1) is lost, by consent"

    def digest(host: str, *devices: dict[str, str]) -> str:
        return digest_of(with_losses(Desired(host, "a", {"devices": list(devices), "directories": ["/srv"]})))

    assert digest("h1", {**entry, "path": "/dev/vdc"}, {"id": "S3", "uuid": "u3"}) == digest_of(wiping)
    others = [digest("h2", entry), digest("h1", entry, {**entry, "id": "S2"}), digest("h1", {**entry, "uuid": "u2"})]
    assert digest_of(wiping) not in others


def test_nothing_is_lost_where_no_disk_is_wiped() -> None:
    plain = Desired("h1", "a", {"devices": [{"id": "S1", "uuid": "u1", "path": "/dev/vdb"}], "directories": []})
    assert with_losses(plain) == plain
