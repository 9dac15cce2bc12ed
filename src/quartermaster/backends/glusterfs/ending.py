"""Which volumes were deleted, so that one that comes back is deleted again; and which are nobody's, and stay: pure.

Whoever was away while a volume was deleted brings it back into the pool. But that somebody was asked to delete a volume
does not say that he has: he may wait for a host, and the volume be kept after all, and its PersistentVolume be gone
before anybody has looked. So what is being deleted is remembered apart, and counts as deleted only when the coordinator
was told to look for it and does not find it in the pool any more. One that nobody has in his books and that is found
there all the same was never deleted.
"""

from __future__ import annotations

from collections.abc import Sequence

from quartermaster.backends.glusterfs.keeping import is_ending
from quartermaster.backends.glusterfs.seeing import Seen, owner_of

_REMEMBERED = 64  # ids of deleted volumes, and volumes of which it is not known yet whether they were


def deleted_volumes(seen: Seen) -> list[str]:
    """Of ours in the pool, as it was last looked at, and in nobody's books any more."""
    known, owner = _in_books(seen), owner_of(seen.view.key)
    return sorted(name for name, fact in seen.facts.volumes.items() if fact.owner == owner and name not in known)


def ending_volumes(seen: Seen) -> dict[str, str]:
    """Volume → id of all that somebody was asked to delete, until it is known what became of them."""
    kept, known, gone = _kept(seen), _in_books(seen), _gone(seen)
    found = {**seen.memory.ending, **_being_deleted(seen)}
    open_ends = {
        name: identity
        for name, identity in found.items()
        if name not in kept and identity not in gone and not _has_stayed(seen, name, identity)
    }
    left = sorted(name for name in open_ends if name not in known)
    return {name: one for name, one in open_ends.items() if name not in left[_REMEMBERED:]}


def ended_volumes(seen: Seen) -> tuple[str, ...]:
    """The ids of the last that were deleted, without one that is to be kept after all."""
    kept = _kept(seen)
    ids = {fact.id for name in kept if (fact := seen.fact(name)) is not None}
    before = [one for one in seen.memory.ended if one not in ids]
    gone = _gone(seen).difference(before)
    now = [one for name, one in sorted(seen.memory.ending.items()) if one in gone and name not in kept]
    return (*before, *now)[-_REMEMBERED:]


def kept_by_nobody(seen: Seen, volumes: Sequence[str]) -> list[str]:
    """Those in nobody's books that are not being deleted either: what becomes of them is for a person to say."""
    known, going = _in_books(seen), {*seen.memory.ended, *seen.memory.ending.values()}
    return [name for name in volumes if name not in known and seen.facts.volumes[name].id not in going]


def _in_books(seen: Seen) -> set[str]:
    return {volume.name for volume in seen.view.volumes}


def _kept(seen: Seen) -> set[str]:
    return {volume.name for volume in seen.view.volumes if volume.kept}


def _being_deleted(seen: Seen) -> dict[str, str]:
    ending = [volume.name for volume in seen.view.volumes if is_ending(volume, seen.view)]
    return {name: fact.id for name in ending if (fact := seen.fact(name)) is not None and fact.id}


def _gone(seen: Seen) -> set[str]:
    """In the pool when somebody was asked to delete them, and not shown by a look that was told of that."""
    there = {fact.id for fact in seen.facts.volumes.values()}
    return set(seen.ending) - there if seen.facts_current else set()


def _has_stayed(seen: Seen, name: str, identity: str) -> bool:
    """It is in the pool, by a look from after it was in nobody's books any more: whoever was asked to delete it was
    told not to, or somebody took its object away. What is in it may be wanted.
    """
    fact = seen.fact(name)
    if name in _in_books(seen) or fact is None or fact.id != identity:
        return False
    return fact.owner != owner_of(seen.view.key) or (seen.facts_current and name in seen.gone)
