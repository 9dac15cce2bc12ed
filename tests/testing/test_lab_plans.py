"""What a lab decides before it makes anything: subnets, names, serial numbers."""

import re
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from quartermaster.host.devices.roots import StandIn
from quartermaster.support.errors import InvalidError
from quartermaster.testing.lab import LabError
from quartermaster.testing.lab.network import candidates, choose_subnet, parse_routes
from quartermaster.testing.lab.plans import plan_of
from quartermaster.testing.lab.state import (
    HostState,
    LabState,
    mac_address,
    new_disk,
    new_host,
    read_state,
    refuse_directory,
    write_state,
)

STAND_IN = StandIn(model="lab disk")


def test_a_lab_takes_the_first_subnet_that_the_machine_does_not_use() -> None:
    assert choose_subnet([]) == "10.200.0.0/24"
    assert choose_subnet([IPv4Network("10.200.0.7/32"), IPv4Network("10.200.1.0/24")]) == "10.200.2.0/24"


def test_a_machine_that_routes_all_private_addresses_gets_those_for_benchmarks() -> None:
    assert choose_subnet([IPv4Network("10.0.0.0/8")]) == "198.18.0.0/24"


@pytest.mark.slow
def test_a_machine_without_a_free_subnet_is_told_so() -> None:
    with pytest.raises(LabError, match="cannot find a free subnet"):
        choose_subnet([IPv4Network("10.0.0.0/8"), IPv4Network("198.0.0.0/8")])
    assert len(list(candidates())) == 256 + 512


def test_a_wanted_subnet_is_taken_if_it_is_free() -> None:
    assert choose_subnet([IPv4Network("10.200.0.0/24")], "192.168.77.0/24") == "192.168.77.0/24"
    with pytest.raises(
        LabError, match=r"cannot use 10\.1\.2\.0/24 as a subnet: this machine has a route to 10\.1\.0\.0/16"
    ):
        choose_subnet([IPv4Network("10.1.0.0/16")], "10.1.2.0/24")


@pytest.mark.parametrize("wanted", ["everything", "10.0.0.1/24", "10.0.0.0/16", "fd00::/64"])
def test_what_is_no_subnet_of_the_right_size_is_refused(wanted: str) -> None:
    with pytest.raises(InvalidError, match=f'cannot use "{wanted}" as a subnet'):
        choose_subnet([], wanted)


def test_routes_are_obstacles_but_for_the_default_one() -> None:
    shown = [{"dst": "default"}, {"dst": "10.1.0.0/16"}, {"dst": "192.0.2.2", "type": "local"}, {"type": "unreachable"}]
    assert parse_routes(shown) == [IPv4Network("10.1.0.0/16"), IPv4Network("192.0.2.2/32")]


def test_hosts_and_disks_are_numbered_and_no_number_comes_twice() -> None:
    state = LabState("id", "lab", "10.200.3.0/24")
    state, one = new_host(state, "")
    state = state.without_host("h1")
    state, two = new_host(state, "")
    assert (one.name, two.name, state.address(two), state.machine_address) == ("h1", "h2", "10.200.3.2", "10.200.3.254")
    two, first = new_disk(two, 1, STAND_IN, lab="lab")
    two, second = new_disk(two, 1, StandIn(serial="WD-1"), lab="lab")
    two, third = new_disk(two, 1, STAND_IN, name="vdb", lab="lab")
    assert [disk.stand_in.serial for disk in (first, second, third)] == ["H2-0001", "WD-1", "H2-0003"]
    assert [disk.number for disk in two.disks] == [3, 2]
    assert mac_address(state, two) == "02:71:0a:c8:03:02"


def test_no_disk_is_that_of_another_lab() -> None:
    host = HostState("h1", 1)
    disks = [new_disk(host, 1, STAND_IN, lab=lab)[1].stand_in for lab in ("one", "two", "two")]
    assert len({disk.serial for disk in disks}) == 1
    assert disks[0].wwn != disks[1].wwn == disks[2].wwn
    assert all(re.fullmatch("naa.5[0-9a-f]{15}", disk.wwn) for disk in disks)


@pytest.mark.parametrize("name", ["H1", "a_b", "-a", "a" * 31, "../etc"])
def test_a_name_that_no_host_can_have_is_refused(name: str) -> None:
    with pytest.raises(InvalidError, match="cannot name a host"):
        new_host(LabState("id", "lab"), name)


def test_two_hosts_of_one_name_are_refused_and_so_is_one_too_many() -> None:
    state, _ = new_host(LabState("id", "lab"), "one")
    with pytest.raises(LabError, match='cannot add the host "one": there is one of that name'):
        new_host(state, "one")
    with pytest.raises(LabError, match="has had 250, and addresses are not used again"):
        new_host(LabState("id", "lab", hosts_made=250), "")
    full = HostState("h1", 1)
    for _ in range(25):
        full, _ = new_disk(full, 1, STAND_IN, lab="lab")
    with pytest.raises(LabError, match="cannot add a disk to h1: it has 25 already"):
        new_disk(full, 1, STAND_IN, lab="lab")


def test_a_disk_is_found_by_name_or_place() -> None:
    host, disk = new_disk(HostState("h1", 1), 1, STAND_IN, lab="lab")
    assert host.disk(0) == host.disk("vdb") == disk
    for which in (1, -1, "vda"):
        with pytest.raises(LabError, match=f'cannot find the disk "{which}" of h1; it has vdb'):
            host.disk(which)


def test_a_lost_disk_is_no_longer_part_of_the_plan(tmp_path: Path) -> None:
    host, _ = new_disk(HostState("h1", 1), 1, STAND_IN, lab="lab")
    host, second = new_disk(host, 1, STAND_IN, lab="lab")
    lost = host.with_disk(type(second)(second.name, second.number, second.size, second.stand_in, lost=True))
    assert [disk.name for disk in plan_of(host, tmp_path, tmp_path).disks] == ["vdb", "vdc"]
    assert [disk.name for disk in plan_of(lost, tmp_path, tmp_path).disks] == ["vdb"]


@pytest.mark.parametrize("directory", ["/etc/lab", "/run/lab", "/var/lib/lab", "/dev/shm/lab", "/tmp/a:b", "/tmp/a,b"])
def test_a_directory_that_hosts_would_not_see_is_refused(directory: str) -> None:
    with pytest.raises(LabError, match=f"cannot keep a lab in {directory}"):
        refuse_directory(Path(directory))


def test_the_state_is_read_as_it_was_written(tmp_path: Path) -> None:
    state, host = new_host(LabState("id", "lab", "10.200.0.0/24"), "")
    host, _ = new_disk(host, 1 << 30, STAND_IN, lab="lab")
    write_state(tmp_path, state.with_host(host))
    assert read_state(tmp_path) == state.with_host(host)
