"""What can be told of the next change of etcd's members without asking them."""

from __future__ import annotations

from msgspec.structs import replace

from quartermaster.backends.etcd.member import MemberConfig
from quartermaster.backends.etcd.memory import Memory, first_memory, with_new_seat, with_seat
from quartermaster.orchestration.joining.foreseeing import foresee
from quartermaster.resources.marks import LEAVING
from quartermaster.resources.model import ObjectMeta
from quartermaster.resources.orchestration import Host, HostStatus


def hosts(*names: str, leaving: str = "") -> list[Host]:
    return [
        Host(
            metadata=ObjectMeta(name=name, annotations={LEAVING: "now"} if name == leaving else {}),
            status=HostStatus(state="Ready"),
        )
        for name in names
    ]


def memory(*names: str) -> Memory:
    """Of members that all serve."""
    config = MemberConfig(member="etcd-1", address="10.0.0.1")
    made = first_memory("c", names[0], config)
    for name in names[1:]:
        made = with_new_seat(made, name, config, "")
        made = with_seat(made, replace(made.seats[-1], phase="serving"))
    return made


def test_one_host_has_one_member_and_nothing_is_to_be_done() -> None:
    found = foresee(memory("h1"), hosts("h1"))
    assert (found.members, found.steps) == (("h1",), ())


def test_with_three_hosts_the_second_gets_a_member_next() -> None:
    found = foresee(memory("h1"), hosts("h1", "h2", "h3"))
    ((what, why),) = found.steps
    assert what == "add a member on host h2"
    assert why.endswith("host h2 gets one")


def test_what_is_under_way_comes_before_what_would_be_next() -> None:
    growing = with_new_seat(memory("h1"), "h2", MemberConfig(member="", address="10.0.0.2"), "3 are wanted")
    found = foresee(growing, hosts("h1", "h2", "h3"))
    assert (found.members, found.steps) == (("h1",), (("get host h2 ready for etcd-2", "3 are wanted"),))


def test_the_member_of_a_host_that_leaves_goes_when_another_host_has_taken_its_place() -> None:
    found = foresee(memory("h1", "h2", "h3"), hosts("h1", "h2", "h3", "h4", leaving="h2"))
    assert found.steps == (("add a member on host h4", "host h2, which carries etcd-2, is leaving: host h4 gets one"),)
