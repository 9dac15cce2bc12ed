"""Tells of bricks of an erasure-coded volume what only their file system says: nothing is changed.

gluster does not count what a new brick of such a volume lacks before the daemon that heals has healed its root, and a
count of directories that are being healed may miss what is in them (see `filling`). An assignment of its own, so that
whoever asks does not have a node configured anew, and so that the answer is one to this question.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from quartermaster.backends.base import AgentContext
from quartermaster.backends.glusterfs.facts import BRICK_MARK, PENDING, PENDING_BASE, ROOT
from quartermaster.backends.glusterfs.pool_agent import AGAIN_S
from quartermaster.host import Directories
from quartermaster.support.errors import HostError

ROOT_VERSION = "trusted.ec.version"  # two numbers: changes of what is in it, and of its own attributes
_NUMBER = 8  # bytes
_ROOT_ID = "00000000-0000-0000-0000-000000000001"
_LOOKS = 10
_LOOK_S = 0.2


class RootConfig(msgspec.Struct, frozen=True):
    new: tuple[str, ...]  # the bricks for whose sake it is asked
    paths: tuple[str, ...]
    rooted: tuple[str, ...] = ()  # those among them whose roots are known to have been healed


class RootAgent:
    name = ROOT

    async def initialize(self, context: AgentContext) -> None:
        """Nothing is kept here."""

    async def configure_local_service(self, context: AgentContext) -> dict[str, Any]:
        config, directories = msgspec.convert(context.desired, RootConfig), context.machine.directories
        roots = {path: await _is_filled(directories, path) for path in config.paths}
        clear = {path: await _is_clear(directories, path) for path in config.paths if config.rooted}
        is_settled = all(roots.values()) and all(clear.values())
        told: dict[str, Any] = {"roots": roots, "clear": clear}
        return told if is_settled else {**told, "againSeconds": AGAIN_S}

    async def destroy_local_service(self, context: AgentContext) -> None:
        """Nothing is kept here."""


async def _is_filled(directories: Directories, path: str) -> bool:
    """Whoever may not read such attributes is told that there are none: so one is read that has to be there."""
    if await directories.attribute(path, BRICK_MARK) is None:
        raise HostError(
            f"cannot look into the root of {path}: it has no {BRICK_MARK}, or the agent may not read it",
            hint="the agent needs CAP_SYS_ADMIN; a brick that is gone is replaced",
        )
    version = await directories.attribute(path, ROOT_VERSION)
    return version is not None and any(version[:_NUMBER])


async def _is_clear(directories: Directories, path: str) -> bool:
    """Whether at one moment no directory is marked there. Whoever writes marks some, too, and not for long."""
    for _ in range(_LOOKS):
        marked = [one for one in await directories.entries(f"{path}/{PENDING}") if not one.startswith(PENDING_BASE)]
        if not any([await _is_directory(directories, path, one) for one in marked if one != _ROOT_ID]):
            return True
        await asyncio.sleep(_LOOK_S)
    return False


async def _is_directory(directories: Directories, path: str, entry: str) -> bool:
    """gluster keeps a link of the identity of each directory, and of a file the file itself."""
    return await directories.is_link(f"{path}/.glusterfs/{entry[:2]}/{entry[2:4]}/{entry}")
