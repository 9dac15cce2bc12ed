"""What is to be healed of a volume, by those of its bricks that answer, and which of them know of less than others."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from quartermaster.backends.glusterfs.facts import VolumeFact
from quartermaster.backends.glusterfs.model import HealCount, VolumeInfo
from quartermaster.backends.glusterfs.tool import Gluster
from quartermaster.support.errors import HostError

_NAMED = 16  # split files of a volume


async def counted(gluster: Gluster, volume: VolumeInfo, fact: VolumeFact) -> VolumeFact:
    if volume.width == 1:
        return replace(fact, pending=0)
    try:
        counts = await gluster.heal_counts(volume)
        if not all(one.connected for one in counts):
            return fact
        split = await gluster.split_files(volume.name) if any(one.split_brain for one in counts) else ()
    except HostError:
        return fact  # right after a start it cannot be asked yet
    behind = _lacking([one.pending for one in counts], volume.width)
    pending = sum(one.pending for one in counts)
    return replace(fact, pending=pending, split=split[:_NAMED], splits=len(split), behind=behind)


async def compared(gluster: Gluster, volume: VolumeInfo, fact: VolumeFact) -> VolumeFact:
    try:
        counts = await gluster.heal_counts(volume)
    except HostError:
        return fact
    return replace(fact, alike=_alike(counts, volume.width, _needed(volume)))


def _alike(counts: Sequence[HealCount], width: int, needed: int) -> tuple[int, ...]:
    """Of a set, those that answer, if none of them knows of anything to be healed, and if they are so many that one of
    them has whatever `needed` bricks without this one have taken.
    """
    found: list[int] = []
    for begin in range(0, len(counts), width):
        heard = [at for at in range(begin, begin + width) if counts[at].connected]
        silent = not any(counts[at].pending or counts[at].split_brain for at in heard)
        found += heard if silent and len(heard) > width - needed else []
    return tuple(found)


def _needed(volume: VolumeInfo) -> int:
    """So many bricks of a set have what was written."""
    if volume.disperse:
        return volume.disperse - volume.redundancy
    return volume.replica // 2 + 1 if volume.replica > 2 else 1


def _lacking(counts: Sequence[int], width: int) -> tuple[int, ...]:
    """A brick knows what others lack, and not what it lacks itself: of a set, those that know less than another one."""
    most = [max(counts[at - at % width : at - at % width + width]) for at in range(len(counts))]
    return tuple(at for at, count in enumerate(counts) if count < most[at])
