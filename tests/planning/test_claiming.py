"""Who has a disk or a directory that several want."""

from __future__ import annotations

from quartermaster.planning.choosing import Offer
from quartermaster.planning.claiming import Claim, Meant, claim_key, first_claims, nested, without_duplicates
from quartermaster.planning.cluster import ChosenDevice


def meant(*, sure: tuple[Claim, ...] = (), claims: tuple[Claim, ...] = ()) -> Meant:
    return Meant(Offer(), (), (), sure, claims, None)


def owner_of(nodes: list[Meant], *services: Claim) -> str:
    return first_claims(nodes, [{claim.key: claim} for claim in services])["A"].owner


def test_the_first_node_has_a_disk_that_two_name_unless_the_other_serves_it_already() -> None:
    first, second = Claim("a", "A", serving=False), Claim("b", "A", serving=False)
    serving = Claim("b", "A", serving=True)
    assert owner_of([meant(claims=(first,)), meant(claims=(second,))]) == "a"
    assert owner_of([meant(claims=(first,)), meant(claims=(serving,))]) == "b"
    assert owner_of([meant(claims=(first,)), meant(sure=(serving,))]) == "b"


def test_a_service_that_nobody_asked_for_has_what_it_has_and_a_node_that_uses_it_comes_first() -> None:
    service = Claim("the service x of host h1", "A", serving=True)
    assert owner_of([meant(claims=(Claim("a", "A", serving=False),))], service) == service.owner
    assert owner_of([meant(sure=(Claim("a", "A", serving=True),))], service) == "a"
    assert owner_of([], service) == service.owner


def test_a_disk_is_one_on_all_hosts_and_a_directory_on_its_own() -> None:
    assert claim_key("h1", "/srv") != claim_key("h2", "/srv")
    assert claim_key("h1", "A") == claim_key("h2", "A")


def test_of_directories_in_each_other_the_first_has_his_unless_the_other_serves() -> None:
    def places(*found: tuple[str, str, bool]) -> list[tuple[str, Claim]]:
        return [(path, Claim(owner, path, serving=serving)) for path, owner, serving in found]

    assert nested(places(("/a", "x", False), ("/a/b", "y", False))) == {"/a/b": ("/a", "x")}
    assert nested(places(("/a", "x", False), ("/a/b", "y", True))) == {"/a": ("/a/b", "y")}
    assert nested(places(("/a", "x", True), ("/a/b", "y", True))) == {"/a/b": ("/a", "x")}
    assert nested(places(("/a", "x", False), ("/a/b", "x", False), ("/ab", "y", False))) == {}
    # Who lost one is in nobody's way.
    found = nested(places(("/a/b/c", "x", False), ("/a/b", "y", False), ("/a/b/d", "z", False)))
    assert found == {"/a/b": ("/a/b/c", "x")}


def test_who_comes_second_is_told_who_came_first() -> None:
    devices = (ChosenDevice("/dev/vdb", "A", 1), ChosenDevice("/dev/vdc", "B", 1))
    lost, kept = without_duplicates("b", devices, ("A", "B"), {"A": Claim("a", "A", serving=True)})
    assert (lost.usable, lost.reason) == (False, "DuplicateDevice")
    assert lost.message == "/dev/vdb (A) belongs to StorageNode a already"
    assert kept is devices[1]
