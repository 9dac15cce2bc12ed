"""`qm down` asks first whether the others can do without this host's member of etcd."""

from __future__ import annotations

import pytest

from quartermaster.cli.stopping import Standing, objection


@pytest.mark.parametrize(
    ("voters", "answering", "why"),
    [
        (3, 3, ""),
        (3, 2, "1 of 3 members would be left, and it takes 2: h2, h3 would be without a store"),
        (5, 4, ""),
        (5, 3, "2 of 5 members would be left, and it takes 3: h2, h3 would be without a store"),
        (1, 1, "0 of 1 members would be left, and it takes 1: h2, h3 would be without a store"),
        (3, 1, ""),  # there is no majority that could be lost
    ],
)
def test_the_last_member_of_a_majority_is_not_stopped_while_others_need_it(
    voters: int, answering: int, why: str
) -> None:
    assert objection(Standing(voters, answering, ours=True, needed_by=("h2", "h3"))) == why


def test_a_host_without_a_member_or_without_others_stops_at_once() -> None:
    assert objection(Standing(3, 2, ours=False, needed_by=("h2",))) == ""
    assert objection(Standing(1, 1, ours=True, needed_by=())) == ""
