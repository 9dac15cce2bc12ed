"""The rules of services that decide by majority: how many members, on which hosts, and what is never done."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from quartermaster.planning.quorum import Decision, Member, Move, Place, Quorum, decide, majority, wanted_size


def places(*names: str, zones: str = "") -> tuple[Place, ...]:
    """Healthy hosts; `zones` gives each a letter."""
    return tuple(Place(name, zones[number] if zones else "") for number, name in enumerate(names))


def members(*hosts: str) -> tuple[Member, ...]:
    return tuple(Member(f"etcd-{number}", host) for number, host in enumerate(hosts, 1))


def changed(items: Sequence[Place], host: str, **facts: object) -> tuple[Place, ...]:
    return tuple(replace(item, **facts) if item.host == host else item for item in items)


def but(items: Sequence[Member], member: str, **facts: object) -> tuple[Member, ...]:
    return tuple(replace(item, **facts) if item.id == member else item for item in items)


@pytest.mark.parametrize(
    ("hosts", "size"),
    [(0, 0), (1, 1), (2, 1), (3, 3), (20, 3), (21, 5), (100, 5), (101, 7), (5000, 7)],
)
def test_the_number_of_members_follows_the_number_of_hosts(hosts: int, size: int) -> None:
    assert wanted_size(hosts) == size


def test_three_hosts_grow_one_member_to_three_one_at_a_time() -> None:
    hosts = places("h1", "h2", "h3")
    assert decide(Quorum(members("h1"), hosts)).move == Move("add", "h2")
    learning = (*members("h1"), Member("etcd-2", "h2", voting=False))
    assert decide(Quorum(learning, hosts)).move is None
    assert decide(Quorum(but(learning, "etcd-2", ready=True), hosts)).move == Move("promote", "h2", "etcd-2")
    assert decide(Quorum(members("h1", "h2"), hosts)).move == Move("add", "h3")
    assert decide(Quorum(members("h1", "h2", "h3"), hosts)).move is None


def test_it_does_not_begin_to_grow_with_one_host_of_a_pair() -> None:
    hosts = changed(places("h1", "h2", "h3", "h4"), "h3", unfit="etcd is not installed")
    busy = changed(hosts, "h4", healthy=False)
    assert decide(Quorum(members("h1"), busy)).move is None
    assert decide(Quorum(members("h1"), hosts)).move == Move("add", "h2")


def test_zones_are_filled_evenly() -> None:
    hosts = places("h1", "h2", "h3", "h4", zones="aabb")
    assert decide(Quorum(members("h1"), hosts)).move == Move("add", "h3")


def test_a_member_moves_to_a_zone_that_has_none_by_adding_first() -> None:
    hosts = places("h1", "h2", "h3", "h4", zones="aaab")
    decision = decide(Quorum(members("h1", "h2", "h3"), hosts))
    assert decision == Decision(Move("add", "h4"), "3 of 3 members are in zone a: host h4 gets one")
    assert decide(Quorum(members("h1", "h2", "h3", "h4"), hosts)).move == Move("remove", "h3", "etcd-3")
    assert decide(Quorum(members("h1", "h2", "h4"), hosts)).move is None


def test_a_silent_host_changes_nothing_until_it_is_given_up() -> None:
    hosts = changed(places("h1", "h2", "h3", "h4"), "h3", healthy=False)
    silent = but(members("h1", "h2", "h3"), "etcd-3", running=False)
    assert decide(Quorum(silent, hosts)).move is None


def test_a_dead_member_is_removed_before_its_successor_comes() -> None:
    hosts = changed(places("h1", "h2", "h3", "h4"), "h3", healthy=False)
    dead = but(members("h1", "h2", "h3"), "etcd-3", running=False, dead=True)
    decision = decide(Quorum(dead, hosts))
    assert decision.move == Move("remove", "h3", "etcd-3")
    assert "host h4 takes its place" in decision.why
    assert decide(Quorum(members("h1", "h2"), hosts)).move == Move("add", "h4")


def test_a_dead_member_stays_while_nobody_can_take_its_place() -> None:
    hosts = changed(places("h1", "h2", "h3"), "h3", healthy=False)
    dead = but(members("h1", "h2", "h3"), "etcd-3", running=False, dead=True)
    assert decide(Quorum(dead, hosts)).move is None


def test_the_loss_of_a_host_never_makes_the_service_smaller_but_taking_it_out_does() -> None:
    two = members("h1", "h2")
    lost = changed(places("h1", "h2", "h3"), "h3", healthy=False)
    assert decide(Quorum(two, lost)).move is None
    assert decide(Quorum(two, places("h1", "h2"))).move == Move("remove", "h2", "etcd-2")


def test_a_leaving_hosts_member_is_replaced_by_adding_first() -> None:
    hosts = changed(places("h1", "h2", "h3", "h4"), "h1", leaving=True)
    assert decide(Quorum(members("h1", "h2", "h3"), hosts)).move == Move("add", "h4")
    four = (*members("h1", "h2", "h3"), Member("etcd-4", "h4"))
    assert decide(Quorum(four, hosts)).move == Move("remove", "h1", "etcd-1")


def test_the_only_member_moves_from_a_leaving_host_to_the_other() -> None:
    hosts = changed(places("h1", "h2"), "h1", leaving=True)
    assert decide(Quorum(members("h1"), hosts)).move == Move("add", "h2")
    both = (*members("h1"), Member("etcd-2", "h2"))
    assert decide(Quorum(both, hosts)).move == Move("remove", "h1", "etcd-1")


def test_the_last_host_keeps_its_member() -> None:
    decision = decide(Quorum(members("h1"), changed(places("h1"), "h1", leaving=True)))
    assert decision == Decision(None, "host h1 cannot give up etcd-1: no other host can take its place")


def test_a_member_that_is_joining_is_taken_back_when_its_host_cannot_go_on() -> None:
    hosts = places("h1", "h2", "h3")
    learning = (*members("h1"), Member("etcd-2", "h2", voting=False, running=False))
    assert decide(Quorum(learning, hosts)).move is None
    for facts in ({"healthy": False}, {"leaving": True}, {"unfit": "its disk is full"}):
        assert decide(Quorum(learning, changed(hosts, "h2", **facts))).move == Move("remove", "h2", "etcd-2")
    assert decide(Quorum(learning, places("h1", "h2"))).move == Move("remove", "h2", "etcd-2")


def test_nothing_is_added_while_a_member_is_down() -> None:
    hosts = places("h1", "h2", "h3", "h4", "h5", *(f"x{number}" for number in range(20)))
    down = but(members("h1", "h2", "h3"), "etcd-2", running=False)
    decision = decide(Quorum(down, hosts))
    assert decision == Decision(None, "3 of 5 members: nobody can be added while etcd-2 does not answer")


def test_a_leaving_member_stays_while_its_going_would_cost_the_majority() -> None:
    hosts = changed(changed(places("h1", "h2", "h3"), "h1", leaving=True), "h2", healthy=False)
    silent = but(members("h1", "h2", "h3"), "etcd-2", running=False)
    assert decide(Quorum(silent, hosts)).move == Move("remove", "h2", "etcd-2")


def test_without_a_majority_nothing_is_changed() -> None:
    hosts = changed(changed(places("h1", "h2", "h3", "h4"), "h2", healthy=False), "h3", healthy=False)
    dead = but(but(members("h1", "h2", "h3"), "etcd-2", running=False, dead=True), "etcd-3", running=False, dead=True)
    decision = decide(Quorum(dead, hosts))
    assert decision.move is None
    assert "only 1 of 3 members are known to run, not etcd-2, etcd-3" in decision.why


def test_a_leader_that_knows_no_hosts_changes_nothing() -> None:
    assert decide(Quorum(members("h1", "h2", "h3"), ())).move is None


def applied(quorum: Quorum, move: Move, number: int) -> Quorum:
    """What the service does with a move."""
    if move.kind == "add":
        joined = Member(f"etcd-{number}", move.host, voting=False, ready=True)
        return replace(quorum, members=(*quorum.members, joined))
    if move.kind == "promote":
        return replace(quorum, members=but(quorum.members, move.id, voting=True))
    return replace(quorum, members=tuple(member for member in quorum.members if member.id != move.id))


@st.composite
def situations(draw: st.DrawFn) -> Quorum:
    names = [f"h{number:02}" for number in range(draw(st.integers(1, 26)))]
    hosts = tuple(
        Place(
            name,
            draw(st.sampled_from(["", "a", "b", "c"])),
            healthy=draw(st.integers(0, 5)) > 0,
            leaving=draw(st.integers(0, 7)) == 0,
            unfit="no etcd" if draw(st.integers(0, 9)) == 0 else "",
        )
        for name in names
    )
    carrying = draw(st.lists(st.sampled_from([*names, "gone"]), min_size=1, max_size=7, unique=True))
    known = {place.host: place for place in hosts}
    seats = []
    for number, host in enumerate(carrying, 1):
        place = known.get(host)
        alive = place is not None and (place.healthy or draw(st.booleans()))
        voting = number == 1 or draw(st.integers(0, 6)) > 0
        dead = not alive and draw(st.booleans())
        seats.append(Member(f"etcd-{number}", host, voting, running=alive, ready=alive, dead=dead))
    return Quorum(tuple(seats), hosts)


def alive(quorum: Quorum) -> bool:
    voters = [member for member in quorum.members if member.voting]
    return sum(member.running for member in voters) >= majority(len(voters))


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(situations())
def test_no_move_costs_the_majority_and_each_is_one_change(quorum: Quorum) -> None:
    number = len(quorum.members)
    for _ in range(60):
        move = decide(quorum).move
        if move is None:
            return
        before = {member.id: member for member in quorum.members}
        assert alive(quorum), "a service without a majority was changed"
        number += move.kind == "add"
        quorum = applied(quorum, move, number)
        after = {member.id: member for member in quorum.members}
        assert alive(quorum), f"{move} costs the majority"
        assert sum(before.get(name) != after.get(name) for name in before | after) == 1
        hosts = [member.host for member in quorum.members]
        assert len(hosts) == len(set(hosts)), "a host carries two"
        joining = [member for member in quorum.members if not member.voting]
        assert len(joining) <= max(1, sum(not member.voting for member in before.values()))
    pytest.fail("it never comes to rest")


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(situations())
def test_with_all_hosts_well_it_comes_to_rest_at_the_wanted_size(quorum: Quorum) -> None:
    hosts = tuple(replace(place, healthy=True, unfit="", leaving=False) for place in quorum.places)
    seats = tuple(
        replace(member, running=True, ready=True, dead=False) for member in quorum.members if member.host != "gone"
    )
    if not any(member.voting for member in seats):
        seats = (Member("etcd-1", hosts[0].host),)
    quorum, number = Quorum(seats, hosts), 10
    while (move := decide(quorum).move) is not None:
        number += 1
        quorum = applied(quorum, move, number)
        assert number < 80, "it never comes to rest"
    assert [member.voting for member in quorum.members] == [True] * wanted_size(len(hosts))
