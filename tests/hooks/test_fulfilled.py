"""The memory of wishes that were found fulfilled: it never says so of another version, another wish, or another's."""

from __future__ import annotations

from quartermaster.hooks.fulfilled import Fulfilled
from quartermaster.resources import ConfigMap, ObjectMeta

WISH = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"key": "value"}}


def seen(version: str = "1", uid: str = "u") -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name="a", uid=uid, resource_version=version))


def test_it_knows_the_wish_for_the_version_that_was_seen_and_no_other() -> None:
    known = Fulfilled()
    known.note(seen(), WISH, "watch", own=True)
    assert known.has(seen(), {**WISH}, "watch", own=True)
    assert not known.has(seen("2"), WISH, "watch", own=True)
    assert not known.has(seen(uid="another"), WISH, "watch", own=True)
    assert not known.has(seen(), {**WISH, "data": {"key": "another"}}, "watch", own=True)
    assert not known.has(seen(), WISH, "another watch", own=True)
    assert not known.has(seen(), WISH, "watch", own=False)


def test_what_is_not_from_a_store_is_not_remembered() -> None:
    known = Fulfilled()
    known.note(seen(version=""), WISH, "watch", own=True)
    assert not known.has(seen(version=""), WISH, "watch", own=True)


def test_the_oldest_are_forgotten() -> None:
    known = Fulfilled(limit=2)
    for uid in ("a", "b", "c"):
        known.note(seen(uid=uid), WISH, "watch", own=True)
    assert [known.has(seen(uid=uid), WISH, "watch", own=True) for uid in ("a", "b", "c")] == [False, True, True]
