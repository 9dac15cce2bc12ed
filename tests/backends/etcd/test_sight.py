"""What is seen of etcd: what an earlier leader left undone, and what is looked at again before it is done."""

from __future__ import annotations

from msgspec.structs import replace

from quartermaster.backends.etcd.member import MemberConfig
from quartermaster.backends.etcd.memory import Memory, Seat
from quartermaster.backends.etcd.sight import Sight, caught_up, may_go, quorum_of, wrong_address
from quartermaster.backends.etcd.tool import EtcdMember
from quartermaster.planning.quorum import Member, Place, Quorum
from quartermaster.resources.model import ObjectMeta
from quartermaster.resources.orchestration import Host, HostSpec, HostStatus, Inventory


def seat(number: int, phase: str = "serving") -> Seat:
    config = MemberConfig(member=f"etcd-{number}", address=f"10.0.0.{number}")
    return Seat(config=config, host=f"h{number}", phase=phase)  # type: ignore[arg-type]


def listed(number: int, *, learner: bool = False, name: bool = True) -> EtcdMember:
    url = f"https://10.0.0.{number}:2380"
    return EtcdMember(number, f"etcd-{number}" if name else "", (url,), ("https://x",) if name else (), learner)


def test_a_promotion_that_was_not_written_down_is() -> None:
    memory = Memory(cluster="c", seats=(seat(1), seat(2, "joining")))
    known = caught_up(memory, Sight((listed(1), listed(2)), {}))
    assert [one.phase for one in known.seats] == ["serving", "serving"]
    still = caught_up(memory, Sight((listed(1), listed(2, learner=True)), {}))
    assert [one.phase for one in still.seats] == ["serving", "joining"]


def test_a_member_that_somebody_removed_by_hand_is_cleared_up() -> None:
    memory = Memory(cluster="c", seats=(seat(1), seat(2)))
    assert [one.phase for one in caught_up(memory, Sight((listed(1),), {})).seats] == ["serving", "removing"]


def test_a_member_that_somebody_added_by_hand_is_a_stranger() -> None:
    sight = Sight((listed(1), listed(9), listed(8, name=False)), {})
    assert sight.strangers(Memory(cluster="c", seats=(seat(1),))) == ("etcd-9", "8")


def test_a_member_is_known_by_its_name_and_not_by_an_address_that_another_host_claims() -> None:
    claims = replace(seat(3), config=replace(seat(3).config, address="10.0.0.1"), phase="joining")
    memory = Memory(cluster="c", seats=(seat(1), seat(2), claims))
    sight = Sight((listed(1), listed(2)), {1: True, 2: True})
    assert sight.entry(claims) is None
    assert sight.has_address_of(claims) == listed(1)
    assert [one.phase for one in caught_up(memory, sight).seats] == ["serving", "serving", "joining"]
    assert sight.strangers(memory) == ()
    # Whatever is at its address now, a member that etcd does not name is none.
    assert caught_up(memory, Sight((listed(2), replace(listed(9), peer_urls=listed(1).peer_urls)), {})).seats[
        0
    ].phase == ("removing")


def host(name: str, address: str, *found: str) -> Host:
    meta = ObjectMeta(name=name, namespace="default")
    return Host(
        metadata=meta, spec=HostSpec(addresses=(address,)), status=HostStatus(inventory=Inventory(addresses=found))
    )


def test_no_member_is_placed_at_an_address_that_is_not_the_hosts() -> None:
    memory = Memory(cluster="c", seats=(seat(1), seat(2)))
    assert (
        wrong_address(host("h3", "10.0.0.1", "10.0.0.1"), memory)
        == "its address 10.0.0.1 is that of etcd-1, on host h1"
    )
    assert wrong_address(host("h3", "10.99.0.1", "10.0.0.3", "10.1.0.3"), memory) == (
        "its address 10.99.0.1 is none of those that it has: 10.0.0.3, 10.1.0.3"
    )
    assert wrong_address(host("h3", "10.0.0.3", "10.0.0.3"), memory) == ""
    assert wrong_address(host("h3", "2001:DB8:0::3", "2001:db8::3"), memory) == ""
    assert wrong_address(host("h3", "127.9.0.3", "10.0.0.3"), memory) == ""
    without_ip = Inventory(addresses=("10.0.0.3",), facts={"missing": "drbdadm, ip, zpool"})
    unsure = replace(host("h3", "10.1.0.3"), status=HostStatus(inventory=without_ip))
    assert wrong_address(unsure, memory) == ""
    # A member that serves is left where it is.
    assert wrong_address(host("h1", "10.99.0.1", "10.0.0.1"), memory) == ""


def test_one_that_was_added_and_has_not_started_is_neither_running_nor_ready() -> None:
    memory = Memory(cluster="c", seats=(seat(1), seat(2, "joining")))
    sight = Sight((listed(1), listed(2, learner=True, name=False)), {1: True, 2: False})
    (_, joining) = quorum_of(memory, sight, (Place("h1"), Place("h2")), frozenset()).members
    assert joining == Member("etcd-2", "h2", voting=False, running=False, ready=False)


def test_a_removal_that_was_decided_is_not_done_when_another_member_has_died_since() -> None:
    members = tuple(Member(f"etcd-{number}", f"h{number}") for number in (1, 2, 3))
    assert may_go(Quorum(members, ()), "etcd-1")
    died = (*members[:2], replace(members[2], running=False))
    assert not may_go(Quorum(died, ()), "etcd-1")
    assert may_go(Quorum(died, ()), "etcd-3")
    assert not may_go(Quorum(members[:1], ()), "etcd-1")
    learning = (*members[:1], Member("etcd-9", "h9", voting=False))
    assert may_go(Quorum(learning, ()), "etcd-9")
