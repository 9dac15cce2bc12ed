"""Which devices a declaration means, and which of them may be used."""

from __future__ import annotations

from typing import Any

import pytest

from quartermaster.planning.choosing import (
    Offer,
    choose_devices,
    is_named,
    offer_of,
)
from quartermaster.resources import StorageCluster, StorageNode, from_document
from quartermaster.resources.devices import Device, DeviceFilter
from quartermaster.resources.orchestration import Wishes

GOOD = Device(path="/dev/vdb", id="A", size=10 << 30, state="Available")
ROTATING = Device(path="/dev/sda", id="R", size="4Ti", rotational=True, state="Available")
FOREIGN = Device(
    path="/dev/vdc",
    id="wwn-0x5000c500a1b2c3d4",
    serial="SER",
    size=10 << 30,
    state="Rejected",
    reason="ForeignData",
    message="/dev/vdc holds data that is not ours (ext4)",
)
MOUNTED = Device(
    path="/dev/vdd", id="M", size=10 << 30, state="Rejected", reason="Mounted", message="/dev/vdd is mounted"
)
OTHERS = Device(
    path="/dev/vde", id="O", size=10 << 30, state="Rejected", reason="OtherCluster", message="/dev/vde holds …"
)
HOST = (ROTATING, GOOD, FOREIGN, MOUNTED, OTHERS)


def node(**spec: Any) -> StorageNode:
    return from_document(StorageNode, {"metadata": {"name": "n"}, "spec": {"type": "local", **spec}})


def cluster(**spec: Any) -> StorageCluster:
    return from_document(StorageCluster, {"metadata": {"name": "c"}, "spec": {"type": "local", **spec}})


def paths(offer: Offer, **options: Any) -> list[str]:
    return [one.path for one in choose_devices(offer, HOST, **options) if one.usable]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"devices": ["/dev/vdb"], "deviceFilter": {"name": "sd"}, "useAllDevices": True}, Offer(("/dev/vdb",))),
        ({"deviceFilter": {"name": "sd"}, "useAllDevices": True}, Offer((), (), DeviceFilter(name="sd"))),
        ({"useAllDevices": True}, Offer((), (), None, True)),
        ({}, Offer()),
    ],
)
def test_a_list_wins_over_a_filter_a_filter_over_all_and_all_over_nothing(
    spec: dict[str, Any], expected: Offer
) -> None:
    assert offer_of(node(**spec)) == expected


def test_the_node_wins_over_its_cluster_and_that_over_what_the_host_was_started_with() -> None:
    settings, wishes = cluster(deviceFilter={"name": "sd"}), Wishes(use_all_devices=True)
    assert offer_of(node(devices=["/dev/vdb"]), settings, wishes).devices == ("/dev/vdb",)
    assert offer_of(node(), settings, wishes).filter == DeviceFilter(name="sd")
    assert offer_of(node(), None, wishes).all
    assert offer_of(node(useAllDevices=False), settings, wishes) == Offer()
    assert offer_of(node(directories=["/srv"]), settings, wishes) == Offer((), ("/srv",))


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (DeviceFilter(name="^vd"), ["/dev/vdb"]),
        (DeviceFilter(rotational=True), ["/dev/sda"]),
        (DeviceFilter(min_size="1Ti"), ["/dev/sda"]),
        (DeviceFilter(max_size="100Gi", rotational=False), ["/dev/vdb"]),
        (DeviceFilter(name="^vd", min_size="1Ti"), []),
    ],
)
def test_everything_that_a_filter_says_must_hold(wanted: DeviceFilter, expected: list[str]) -> None:
    assert paths(Offer(filter=wanted)) == expected


def test_what_may_not_be_used_is_shown_with_the_reason() -> None:
    chosen = {one.path: one for one in choose_devices(Offer(devices=("/dev/vdc", "/dev/vdz")), HOST, host="h1")}
    assert (chosen["/dev/vdc"].reason, chosen["/dev/vdc"].message) == (FOREIGN.reason, FOREIGN.message)
    assert (chosen["/dev/vdz"].reason, chosen["/dev/vdz"].message) == ("NotFound", "host h1 has no device /dev/vdz")


@pytest.mark.parametrize("consent", ["5000c500a1b2c3d4", "0x5000C500A1B2C3D4", "SER", "wwn-0x5000c500a1b2c3d4"])
def test_a_consent_names_a_disk_by_its_serial_number_or_wwn(consent: str) -> None:
    chosen = choose_devices(Offer(devices=("/dev/vdc",)), HOST, consents=[consent])
    assert [(one.usable, one.consent) for one in chosen] == [(True, consent)]


def test_a_consent_helps_a_disk_that_was_taken_while_it_was_blank_and_written_to_since() -> None:
    offer, taken = Offer(devices=("/dev/vdc",)), {FOREIGN.id: "/dev/vdc"}
    chosen = choose_devices(offer, HOST, serving=taken, consents=["SER"])
    assert [(one.usable, one.serving, one.consent) for one in chosen] == [(True, True, "SER")]
    assert [one.consent for one in choose_devices(offer, HOST, serving=taken)] == [""]


@pytest.mark.parametrize("consent", ["/dev/vdc", "vdc", "SE", ""])
def test_nothing_else_is_a_consent(consent: str) -> None:
    assert not is_named(FOREIGN, consent)


@pytest.mark.parametrize(("path", "consent"), [("/dev/vdd", "M"), ("/dev/vde", "O")])
def test_no_consent_helps_where_a_disk_is_in_use_or_of_another_cluster(path: str, consent: str) -> None:
    chosen = choose_devices(Offer(devices=(path,)), HOST, consents=[consent])
    assert [(one.usable, one.consent) for one in chosen] == [(False, "")]


def test_a_disk_in_use_is_found_by_its_identity_wherever_it_is() -> None:
    moved = Device(path="/dev/vdx", id="A", size=10 << 30, state="Rejected", reason="Mounted", message="is mounted")
    newcomer = Device(path="/dev/vdb", id="NEW", size=10 << 30, state="Available")
    chosen = choose_devices(Offer(devices=("/dev/vdb",)), (moved, newcomer), serving={"A": "/dev/vdb"})
    assert [(one.path, one.id, one.usable, one.declared) for one in chosen] == [("/dev/vdx", "A", True, "/dev/vdb")]


def test_two_disks_that_change_places_stay_what_they_are() -> None:
    swapped = (
        Device(path="/dev/vdb", id="B", size=1, state="InUse"),
        Device(path="/dev/vdc", id="A", size=1, state="InUse"),
    )
    serving = {"A": "/dev/vdb", "B": "/dev/vdc"}
    chosen = choose_devices(Offer(devices=("/dev/vdb", "/dev/vdc")), swapped, serving=serving)
    assert {one.id: (one.path, one.declared) for one in chosen} == {
        "A": ("/dev/vdc", "/dev/vdb"),
        "B": ("/dev/vdb", "/dev/vdc"),
    }


def test_a_disk_that_is_gone_is_missing_and_its_successor_takes_its_path() -> None:
    for offer in (Offer(devices=("/dev/vdb",)), Offer(all=True)):
        gone = choose_devices(offer, (), serving={"A": "/dev/vdb"}, host="h1")
        assert [(one.id, one.reason, one.serving) for one in gone] == [("A", "Missing", True)]
        assert gone[0].message == "the disk A, which was /dev/vdb, is not found on host h1 any more"
    successor = Device(path="/dev/vdb", id="NEW", size=1, state="Available")
    now = choose_devices(Offer(devices=("/dev/vdb",)), (successor,), serving={"A": "/dev/vdb"}, host="h1")
    assert [(one.path, one.id, one.usable) for one in now] == [("/dev/vdb", "NEW", True)]


def test_of_disks_that_had_one_path_after_the_other_and_are_all_gone_the_last_is_missing() -> None:
    """A status has one device for a path: with two of them nothing of the cluster could be written any more."""
    gone = choose_devices(Offer(all=True), (), serving={"A": "/dev/vdb", "NEW": "/dev/vdb"}, host="h1")
    assert [(one.path, one.id, one.reason) for one in gone] == [("/dev/vdb", "NEW", "Missing")]


def test_a_disk_that_is_gone_and_not_wanted_any_more_is_not_missed() -> None:
    assert choose_devices(Offer(devices=("/dev/vdb",)), (GOOD,), serving={"X": "/dev/vdx"})[0].id == "A"
    assert choose_devices(Offer(), (), serving={"X": "/dev/vdx"}) == ()


def test_a_disk_may_be_listed_by_the_name_that_carries_its_identity() -> None:
    listed = choose_devices(Offer(devices=("/dev/disk/by-id/virtio-A", "/dev/vdb")), HOST)
    assert [(one.path, one.usable) for one in listed] == [("/dev/vdb", True)]
