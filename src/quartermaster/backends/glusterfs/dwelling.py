"""Which bricks of a volume are on this host, and which of these may be removed with it. Pure.

Directories often have the same path on every host, and in a pool that was made by hand a path may be a brick of one
volume here and of another one there. So a path says nothing without its host, and the host of a brick is known by the
UUID of its peer: a name of a brick has one of several addresses.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from quartermaster.backends.glusterfs.model import Brick, VolumeInfo


def bricks_here(bricks: Iterable[Brick], uuid: str, placed: Collection[str] = ()) -> tuple[str, ...]:
    """Their names. Of one whose peer gluster did not name it is known from whoever `placed` it here; an attempt to make
    the volume that came after another one has added something to the name.
    """
    return tuple(
        brick.name
        for brick in bricks
        if (brick.uuid and brick.uuid == uuid) or (not (brick.uuid and uuid) and _is_one_of(brick.name, placed))
    )


def bricks_by_address(names: Iterable[str], volumes: Iterable[VolumeInfo], uuid: str) -> tuple[str, ...]:
    """The same of bricks of a volume that is gone, where nobody wrote down which of them are here: those with an
    address that other bricks of this host have. What is not known for sure is left to the node of this host.
    """
    others = [brick for volume in volumes for brick in volume.bricks if brick.uuid]
    known = {_address(brick.name) for brick in others if brick.uuid == uuid}
    known -= {_address(brick.name) for brick in others if brick.uuid != uuid}
    return tuple(name for name in names if _address(name) in known)


def paths_to_remove(here: Iterable[str], volumes: Iterable[VolumeInfo], uuid: str) -> list[str]:
    """Without those that another volume has on this host, itself or in a directory below, and where nobody says whose
    a brick is also those that it has anywhere.
    """
    bricks = [brick for volume in volumes for brick in volume.bricks if brick.uuid in ("", uuid)]
    return [path for path in dict.fromkeys(map(_path, here)) if not _is_used(path, [_path(one.name) for one in bricks])]


def _is_used(path: str, used: Sequence[str]) -> bool:
    return any(one == path or one.startswith(f"{path}/") for one in used)


def _is_one_of(name: str, placed: Collection[str]) -> bool:
    return any(name == one or name.startswith(f"{one}.") for one in placed)


def _address(name: str) -> str:
    return name.partition(":/")[0]


def _path(name: str) -> str:
    """An address may have colons of its own."""
    return f"/{name.partition(':/')[2]}"
