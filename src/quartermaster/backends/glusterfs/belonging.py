"""Which directories are bricks of ours where others may have theirs beside them. What is not known to be ours stays.

A disk is ours with all that is on it. In a directory that somebody declared, and above all in one that was his before,
a name proves nothing: others name their volumes after claims, too. A brick of ours has a name that we give, bears the
mark that glusterd puts on a directory when it becomes a brick, also where making the volume fails after that, and was
not there when the directory was taken, unless it was of a volume that was adopted with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePosixPath

import msgspec

from quartermaster.backends.glusterfs.facts import BRICK_MARK, VOLUME_PREFIX
from quartermaster.backends.glusterfs.model import VolumeInfo
from quartermaster.backends.glusterfs.pool_agent import OWNER_OPTION
from quartermaster.host.directories import Directories

IDENTITY_FILE = ".quartermaster-brick.json"
# A volume; its further sets in the same directory; an attempt to make it after another one; a brick that was moved.
_NAME = re.compile(rf"{VOLUME_PREFIX}[a-z0-9]([-a-z0-9]*[a-z0-9])?((\.s\d+)?(\.[a-z0-9]{{6}})?|\.m\d+)")


class BaseIdentity(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whose bricks are in a directory."""

    cluster: str
    node: str
    uuid: str  # of the glusterd
    strangers: tuple[str, ...] = ()  # what looked like bricks of ours when it was taken, and was of others


async def bricks_of_ours(directories: Directories, base: str, identity: BaseIdentity) -> list[str]:
    """The names of those that are, or were."""
    return [name for name in await _bricks(directories, base) if name not in identity.strangers]


async def is_brick_of_ours(directories: Directories, path: str, identity: BaseIdentity) -> bool:
    name = PurePosixPath(path).name
    return name not in identity.strangers and await _is_brick(directories, path)


async def strangers_in(
    directories: Directories, base: str, volumes: Iterable[VolumeInfo], own: BaseIdentity
) -> tuple[str, ...]:
    """Of a directory that is being taken. Volumes of nobody are adopted with it, and their bricks are ours then."""
    ours = [volume for volume in volumes if volume.options.get(OWNER_OPTION, "") in ("", own.cluster)]
    bricks = [brick for volume in ours for brick in volume.bricks if brick.uuid == own.uuid]
    adopted = {brick.name.partition(":/")[2] for brick in bricks}
    return tuple(name for name in await _bricks(directories, base) if f"{base}/{name}".lstrip("/") not in adopted)


async def _bricks(directories: Directories, base: str) -> list[str]:
    return [name for name in await directories.entries(base) if await _is_brick(directories, f"{base}/{name}")]


async def _is_brick(directories: Directories, path: str) -> bool:
    if _NAME.fullmatch(PurePosixPath(path).name) is None:
        return False
    return await directories.attribute(path, BRICK_MARK) is not None
