"""How the disks of a pool are cut into RAID groups, and which numbers of disks can be.

stripe   one group of any number
mirror   groups of an even number, 2 unless said otherwise
raidz    groups of 2^n + 1, 3 unless said otherwise
raidz2   groups of 2^n + 2 with n ≥ 2, 6 unless said otherwise
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from quartermaster.resources.openebs import MIRROR, RAIDZ, RAIDZ2, STRIPE

T = TypeVar("T")

DEFAULT_GROUP_SIZE = {MIRROR: 2, RAIDZ: 3, RAIDZ2: 6}
DEFAULT_DISK_COUNT = {STRIPE: 2, MIRROR: 2, RAIDZ: 3, RAIDZ2: 6}
_LEGAL = {
    STRIPE: "any number of disks",
    MIRROR: "an even number of disks",
    RAIDZ: "2^n + 1 disks: 3, 5, 9, 17, …",
    RAIDZ2: "2^n + 2 disks: 6, 10, 18, …",
}


def is_legal_size(raid_type: str, size: int) -> bool:
    """Whether OpenEBS takes a group of that size."""
    if raid_type == STRIPE:
        return size >= 1
    if raid_type == MIRROR:
        return size >= 2 and size % 2 == 0
    if raid_type == RAIDZ:
        return size >= 3 and _is_power_of_two(size - 1)
    if raid_type == RAIDZ2:
        return size >= 6 and _is_power_of_two(size - 2)
    return False


def _is_power_of_two(number: int) -> bool:
    return number & (number - 1) == 0


def legal_sizes(raid_type: str) -> str:
    """In words, for an error."""
    return _LEGAL[raid_type]


def group_size(raid_type: str, wanted: int | None) -> int:
    """How many disks a group has; 0 for a stripe, which is one group whatever its size."""
    return 0 if raid_type == STRIPE else wanted or DEFAULT_GROUP_SIZE[raid_type]


def nearest_counts(size: int, count: int) -> tuple[int, ...]:
    """The legal numbers of disks on both sides of one that is not."""
    below = count // size * size
    return tuple(number for number in (below, below + size) if number > 0)


def cut(disks: Sequence[T], size: int) -> tuple[tuple[T, ...], ...]:
    """Into groups of that size, in order; 0 puts all into one. What does not fill a group is left out."""
    if not size:
        return (tuple(disks),) if disks else ()
    whole = len(disks) // size * size
    return tuple(tuple(disks[start : start + size]) for start in range(0, whole, size))


def whole(count: int, size: int) -> int:
    """The number of disks, rounded up to whole groups."""
    return count if not size else -(-count // size) * size


def growth(size: int) -> int:
    """How many disks the smallest legal expansion takes."""
    return size or 1
