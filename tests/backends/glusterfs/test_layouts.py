"""Where bricks go: on different nodes and zones, where the most room is, and a refusal with the numbers."""

from __future__ import annotations

from pathlib import Path

from quartermaster.backends.base import Refusal
from quartermaster.backends.glusterfs.layouts import Layout, Room, choose_rooms, choose_substitute
from quartermaster.planning.cluster import Verdict

from .modelled import GIB, VOLUME, Cluster


def room(node: str, free: int = 10, zone: int = 1, base: str = "/b1") -> Room:
    return Room(node, node, f"10.0.0.{node[1:]}", zone, base, free * GIB)


def nodes(chosen: tuple[Room, ...] | Verdict) -> list[str]:
    assert not isinstance(chosen, Verdict), chosen
    return [one.node for one in chosen]


def test_three_copies_are_on_three_nodes_with_the_most_room() -> None:
    rooms = [room("n1", 5), room("n2", 9), room("n3", 7), room("n4", 6)]
    assert nodes(choose_rooms(rooms, Layout(), GIB)) == ["n2", "n3", "n4"]


def test_of_equal_rooms_the_first_by_name_are_taken() -> None:
    assert nodes(choose_rooms([room(f"n{n}") for n in (4, 3, 2, 1)], Layout(), GIB)) == ["n1", "n2", "n3"]


def test_copies_are_in_different_zones_where_there_are_several() -> None:
    rooms = [room("n1", 9, 1), room("n2", 8, 1), room("n3", 5, 2), room("n4", 4, 3)]
    assert nodes(choose_rooms(rooms, Layout(), GIB)) == ["n1", "n3", "n4"]


def test_more_copies_than_zones_are_refused_with_the_numbers() -> None:
    refused = choose_rooms([room("n1", zone=1), room("n2", zone=2), room("n3", zone=2)], Layout(), GIB)
    assert refused == Verdict(False, "TooFewZones", "3 copies need 3 zones, and there are 2: 1, 2")


def test_more_copies_than_nodes_are_refused_with_the_numbers() -> None:
    refused = choose_rooms([room("n1"), room("n1", base="/b2"), room("n2")], Layout(), GIB)
    assert refused == Verdict(False, "TooFewNodes", "3 copies need 3 nodes, and 2 are ready")


def test_a_volume_that_fits_on_no_disk_is_spread_over_several_sets() -> None:
    rooms = [room(f"n{n}", 10, base=base) for n in (1, 2, 3) for base in ("/b1", "/b2")]
    chosen = choose_rooms(rooms, Layout(), 15 * GIB)
    assert not isinstance(chosen, Verdict)
    assert len(chosen) == 6
    assert sorted(one.node for one in chosen[:3]) == sorted(one.node for one in chosen[3:]) == ["n1", "n2", "n3"]
    assert len({(one.node, one.base) for one in chosen}) == 6


def test_too_large_is_refused_with_what_there_is() -> None:
    refused = choose_rooms([room("n1", 10), room("n2", 4), room("n3", 7)], Layout(), 90 * GIB)
    assert isinstance(refused, Verdict)
    assert (refused.reason, "90 GiB" in refused.message, "4 GiB" in refused.message) == ("NoSpace", True, True)


def test_an_arbiter_needs_next_to_nothing() -> None:
    rooms = [room("n1", 10), room("n2", 10), room("n3", 1)]
    assert nodes(choose_rooms(rooms, Layout(3, arbiter=True), 8 * GIB)) == ["n1", "n2", "n3"]


def test_a_zone_that_is_away_is_not_taken_for_none() -> None:
    refused = choose_rooms([room(f"n{n}", zone=1) for n in (1, 2, 3)], Layout(), GIB, declared=[1, 1, 1, 2, 3])
    assert refused == Verdict(False, "TooFewZones", "3 copies need 3 zones, and 1 of 3 can take one now: 1")


async def test_a_volume_waits_for_the_zones_of_silent_nodes(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    for name, zone in {"h1": 1, "h2": 1, "h3": 1, "h4": 2, "h5": 3}.items():
        cluster.bench.add(name, devices=["/dev/vdb"], glusterfs={"zone": zone})
    await cluster.rounds(4)
    cluster.bench.silent += ["h4", "h5"]
    await cluster.rounds(2)
    placed = cluster.bench.backend.volumes().place(cluster.bench.request("pvc-z", GIB), await cluster.bench.view())
    assert isinstance(placed, Refusal)
    assert placed.reason == "TooFewZones"


def test_of_an_erasure_coded_volume_a_zone_holds_no_more_parts_than_may_be_lost() -> None:
    rooms = [room(f"n{n}", 10, zone=(n - 1) // 2 + 1) for n in range(1, 7)]
    chosen = choose_rooms(rooms, Layout(data=4, redundancy=2), 8 * GIB)
    assert not isinstance(chosen, Verdict)
    assert [sum(one.zone == zone for one in chosen) for zone in (1, 2, 3)] == [2, 2, 2]


def test_a_substitute_is_in_a_zone_of_its_own() -> None:
    rooms = [room("n4", 9, 1), room("n5", 3, 3)]
    found = choose_substitute(rooms, Layout(), GIB, 2, [("n1", 1), ("n2", 2)])
    assert isinstance(found, Room)
    assert found.node == "n5"


def test_without_a_substitute_it_is_said_what_is_needed() -> None:
    found = choose_substitute([room("n1", 9)], Layout(), GIB, 2, [("n1", 1), ("n2", 1)])
    assert found == Verdict(False, "NoSubstitute", "there is no other node to take it: 3 copies need a node each")


async def test_volumes_whose_copies_share_a_zone_since_zones_were_changed_are_named(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    for zone, name in enumerate(("h1", "h2", "h3", "h4"), 1):
        cluster.bench.add(name, devices=["/dev/vdb"], glusterfs={"zone": zone})
    await cluster.bench.settle()
    cluster.bench.online = True
    await cluster.bench.make(VOLUME, GIB)
    first, second, _ = cluster.bench.volumes[VOLUME].hosts
    assert "sharedZones" not in (await cluster.rounds(2)).details
    zone = {"h1": 1, "h2": 2, "h3": 3, "h4": 4}[first]
    cluster.bench.declare(second, devices=["/dev/vdb"], glusterfs={"zone": zone})
    assert (await cluster.rounds(2)).details["sharedZones"] == f"pvc-1 in zone {zone}"
    for name in cluster.bench.machines:
        cluster.bench.declare(name, devices=["/dev/vdb"], glusterfs={"zone": 1})  # then there are none to spread over
    assert "sharedZones" not in (await cluster.rounds(2)).details
