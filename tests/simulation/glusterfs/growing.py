"""A one-copy volume of the modelled GlusterFS gets a brick and gives one up: what becomes of its record, and refusals.

gluster replaces no brick of such a volume. One is added; another one leaves, by force with all that is in it, or after
what is in it was moved to those that stay: `start`, then `commit`.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from .records import TAKEN, BrickRecord, RefusedError, VolumeRecord


def with_brick(
    volume: VolumeRecord, new: BrickRecord, known: Iterable[BrickRecord], asked: str, *, used: bool
) -> VolumeRecord:
    """`known` are the bricks of all volumes, `asked` is the UUID of who was told; `used`: it was a brick before."""
    if new in known:
        raise RefusedError(f"{_told_by(new, asked)}Brick: {new.name} {TAKEN}")
    if used:
        raise RefusedError(f"{_told_by(new, asked)}{new.path} is already part of a volume")
    return replace(volume, bricks=(*volume.bricks, new))


def leaving(volume: VolumeRecord, old: str) -> VolumeRecord:
    """From now on what is in the brick is moved to the others."""
    if not volume.started:
        raise RefusedError(
            f"Volume {volume.name} needs to be started before remove-brick "
            "(you can use 'force' or 'commit' to override this behavior)"
        )
    if volume.leaving:
        raise RefusedError(
            f"An earlier remove-brick task exists for volume {volume.name}. "
            "Either commit it or stop it before starting a new task."
        )
    return replace(volume, leaving=_brick(volume, old).name)


def refuse_status(volume: VolumeRecord, old: str) -> None:
    if not volume.started:
        raise RefusedError(f"Volume {volume.name} needs to be started to perform rebalance")
    if not volume.leaving:
        raise RefusedError(f"remove-brick not started for volume {volume.name}.")
    if volume.leaving != old:
        raise RefusedError(f"Incorrect brick for volume {volume.name}")


def without_moved(volume: VolumeRecord, old: str, asked: str, *, moved: bool) -> VolumeRecord:
    """`moved`: nothing is left in the brick."""
    brick = _brick(volume, old)
    if volume.leaving != old:
        raise RefusedError(f"Brick {old} is not decommissioned. Use start or force option")
    if not moved:
        raise RefusedError(f"{_told_by(brick, asked)}use 'force' option as migration is in progress")
    return without(volume, old)


def without(volume: VolumeRecord, old: str) -> VolumeRecord:
    """By force: what is in the brick goes with it."""
    gone = _brick(volume, old)
    left = tuple(brick for brick in volume.bricks if brick != gone)
    if not left:
        raise RefusedError("Deleting all the bricks of the volume is not allowed")
    return replace(volume, bricks=left, leaving="" if volume.leaving == old else volume.leaving)


def _brick(volume: VolumeRecord, name: str) -> BrickRecord:
    for brick in volume.bricks:
        if brick.name == name:
            return brick
    raise RefusedError(f"Incorrect brick {name} for volume {volume.name}")


def _told_by(brick: BrickRecord, asked: str) -> str:
    """The host of the brick refuses, and whoever was asked says which one that is."""
    return "" if brick.uuid == asked else f"Pre Validation failed on {brick.address}. "
