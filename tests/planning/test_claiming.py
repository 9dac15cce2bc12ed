"""Who has a disk or a directory that several want."""

from __future__ import annotations

from quartermaster.planning.claiming import Claim, claim_key, first_claims, without_duplicates
from quartermaster.planning.cluster import ChosenDevice


def test_the_first_node_has_a_disk_that_two_name_unless_the_other_serves_it_already() -> None:
    claims = [Claim("a", "A", serving=False), Claim("b", "A", serving=False)]
    assert first_claims(claims) == {"A": "a"}
    assert first_claims([claims[0], Claim("b", "A", serving=True)]) == {"A": "b"}
    assert first_claims([Claim("b", "A", serving=True), claims[0]]) == {"A": "b"}


def test_a_disk_is_one_on_all_hosts_and_a_directory_on_its_own() -> None:
    assert claim_key("h1", "/srv") != claim_key("h2", "/srv")
    assert claim_key("h1", "A") == claim_key("h2", "A")


def test_who_comes_second_is_told_who_came_first() -> None:
    devices = (ChosenDevice("/dev/vdb", "A", 1), ChosenDevice("/dev/vdc", "B", 1))
    lost, kept = without_duplicates("b", devices, ("A", "B"), {"A": "a", "B": "b"})
    assert (lost.usable, lost.reason) == (False, "DuplicateDevice")
    assert lost.message == "/dev/vdb (A) belongs to StorageNode a already"
    assert kept is devices[1]
