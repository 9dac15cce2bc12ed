"""What is written to copies, what they know of each other, and what healing makes of it."""

from __future__ import annotations

from .lineage import Copy, Shape, blame_new, heal, is_at_rest, is_split, is_whole, root, take, write

REPLICA = Shape(3)
FILE = "file0"


def written(copies: list[Copy | None], *, newest: int = 0, shape: Shape = REPLICA) -> bool:
    return write(shape, copies, FILE, newest)


def test_a_brick_that_is_away_is_said_to_be_behind_by_the_others_and_is_healed_from_them() -> None:
    first, second, third = copies = [Copy("v") for _ in range(3)]
    assert written([*copies])
    assert written([first, second, None], newest=1)
    assert (first.pending, second.pending, third.pending) == (1, 1, 0)
    assert not is_whole(third, {FILE: 2})
    assert heal(REPLICA, copies, FILE)
    assert is_whole(third, {FILE: 2})
    assert first.pending == second.pending == 0


def test_fewer_than_most_of_the_bricks_take_no_write() -> None:
    assert not written([Copy("v"), None, None])


def test_who_lacks_the_newest_takes_no_write_for_those_who_have_it() -> None:
    first, second, third = (Copy("v") for _ in range(3))
    assert written([first, None, third])
    assert written([first, None, third], newest=1)
    assert not written([None, second, None], newest=2)


def test_an_arbiter_keeps_no_content() -> None:
    shape = Shape(3, arbiter=True)
    first, second, arbiter = (Copy("v") for _ in range(3))
    assert write(shape, [first, None, arbiter], FILE, 0)
    assert not heal(shape, [None, second, arbiter], FILE)
    assert not write(shape, [None, second, arbiter], FILE, 1)


def test_of_an_erasure_coded_file_as_many_parts_are_needed_as_hold_data() -> None:
    shape = Shape(3, data=2)
    first, second, third = (Copy("v") for _ in range(3))
    assert write(shape, [first, second, None], FILE, 0)
    assert not heal(shape, [first, None, third], FILE)
    assert heal(shape, [first, second, third], FILE)


def test_a_new_brick_lacks_everything_and_those_that_run_know_it() -> None:
    first, second, third = copies = [Copy("v") for _ in range(3)]
    assert written([*copies])
    new = Copy("v")
    blame_new([first, second, new], 2, [FILE])
    assert (first.pending, second.pending, third.pending) == (1, 1, 0)
    assert heal(REPLICA, [first, second, new], FILE)
    assert is_whole(new, {FILE: 1})


def test_a_copy_that_was_healed_knows_what_those_lack_that_were_away_meanwhile() -> None:
    first, second, _ = copies = [Copy("v") for _ in range(3)]
    assert written([*copies])
    assert written([first, second, None], newest=1)
    new = Copy("v")
    blame_new([first, None, new], 2, [FILE])
    assert written([first, None, new], newest=2)
    assert heal(REPLICA, [first, None, new], FILE)
    # The one that it was made from is lost, and the one that was away says of its place that it lacks something.
    assert second.blames[FILE] == {2: None}
    assert is_split(REPLICA, [None, second, new], FILE)
    assert not heal(REPLICA, [None, second, new], FILE)
    assert is_whole(new, {FILE: 3})


def test_copies_that_accuse_each_other_are_split_until_one_is_there_that_nobody_accuses() -> None:
    first, second, third = copies = [Copy("v") for _ in range(3)]
    assert written([*copies])
    first.blames[FILE], second.blames[FILE] = {1: None}, {0: None}
    assert is_split(REPLICA, [first, second, None], FILE)
    assert not heal(REPLICA, [first, second, None], FILE)
    assert heal(REPLICA, [first, second, third], FILE)


def test_of_copies_that_accuse_each_other_the_one_is_taken_of_which_somebody_says_so() -> None:
    first, second, third = copies = [Copy("v") for _ in range(3)]
    assert written([*copies])
    assert written([first, second, None], newest=1)
    first.blames[FILE], second.blames[FILE], third.blames[FILE] = {2: None}, {2: None}, {0: None, 1: None}
    assert is_split(REPLICA, copies, FILE)
    take(copies, 0, FILE)
    assert heal(REPLICA, copies, FILE)
    assert is_whole(third, {FILE: 2})


def test_of_an_erasure_coded_set_nobody_blames_a_new_brick_before_its_root_is_healed() -> None:
    shape = Shape(3, data=2)
    first, second, _ = copies = [Copy("v") for _ in range(3)]
    assert written([*copies], shape=shape)
    new = Copy("v", rooted=False)
    assert (first.pending, second.pending) == (0, 0)
    assert not is_at_rest([first, second, new])
    assert written([first, second, new], newest=1, shape=shape)
    assert not is_whole(new, {FILE: 2})
    assert not root(shape, [first, None, new], [FILE])  # too few to make it from
    assert root(shape, [first, second, new], [FILE])
    assert (first.pending, second.pending) == (1, 1)
    assert heal(shape, [first, second, new], FILE)
    assert is_whole(new, {FILE: 2})
