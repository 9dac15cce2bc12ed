"""What the bricks of a volume may come to hold, by what it says of itself.

Of a volume that somebody has a PersistentVolume of, the leader knows that. One that was retained and whose object is
deleted is still there, may be written to up to its limit, and nobody else remembers how much that is.
"""

from __future__ import annotations

from quartermaster.backends.glusterfs.facts import SIZE_OPTION
from quartermaster.backends.glusterfs.layouts import layout_made
from quartermaster.backends.glusterfs.model import VolumeInfo
from quartermaster.backends.glusterfs.seeing import share_of


def promised_by(volume: VolumeInfo) -> tuple[int, ...]:
    """By position in a set, and once where all are alike; nothing where the volume does not say its size."""
    said, layout = volume.options.get(SIZE_OPTION, ""), layout_made(volume)
    if not said.isdecimal():
        return ()
    shares = [share_of(layout, int(said), len(volume.bricks), position) for position in range(layout.width)]
    return tuple(shares[:1] if len(set(shares)) == 1 else shares)
