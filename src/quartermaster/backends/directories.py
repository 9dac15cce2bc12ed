"""Volumes that are directories on a host: each is made once.

A directory that should be there and is not may be on a disk that is not mounted, or its host may be another machine by
now. An empty one in its place would look like the volume, and applications would begin anew in it. So what was finished
once is never made again, and nothing is made in a directory that is not the one that was offered.

One that is to be gone while its disk is away is gone for everybody who asks. It is remembered here, and removed when
the disk is back.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path, PurePosixPath

import msgspec

from quartermaster.backends.base import AgentContext
from quartermaster.host.files import remove, write_whole
from quartermaster.host.mountinfo import mounted_at
from quartermaster.support.errors import HostError
from quartermaster.support.files import sync_directory

# In each directory that was offered: by it the directory is known again.
BASE_MARK = ".quartermaster"
MOUNTS = "mounts"
_MADE = ".made"
_DROPPED = "dropped"
# Beside the place where a disk is mounted, while it cannot be used or nobody will mount it: why.
_AWAY = ".away"
_OFFERED = -1  # the number of no file system
_LOCK_S = 30.0


def alone_with(context: AgentContext, base: str) -> AbstractAsyncContextManager[None]:
    """Who makes a volume and who unmounts its disk do not do so at once: it would be made where the disk was."""
    return context.machine.locks.hold(f"base {base}", timeout_s=_LOCK_S)


def mounts_below(directory: Path, instance: str) -> Path:
    """Where the service of an agent mounts disks, given the agent's directory, which has the agent's name."""
    return directory / MOUNTS / (instance or "-")


def is_mount_of(agent: str, path: str, instance: str = "") -> bool:
    """Whether it is where such a service mounts a disk, for whoever knows only the path: a directory that somebody
    declared may have any of these words in it.
    """
    own = mounts_below(Path(agent), instance).parts
    return PurePosixPath(path).parent.parts[-len(own) :] == own


async def make_volume(context: AgentContext, path: str) -> None:
    """Keeps a link to it by its name: who asks for its end does not say where it is."""
    async with alone_with(context, str(Path(path).parent)):
        await _make(context, path)


async def _make(context: AgentContext, path: str) -> None:
    await _refuse_other_base(context, path)
    remove(_dropped_file(context, path))
    made = _made_file(context)
    if not made.exists() and not _was_reported(context):
        _link(context, path)
        await context.machine.directories.ensure(path)
    elif not await context.machine.directories.exists(path):
        raise HostError(
            f"cannot find {path}: the volume was there, and is not made again",
            hint="bring back its disk; if its data are lost for good, delete its claim, or make the directory by hand",
        )
    _link(context, path)
    if not made.exists():
        write_whole(made, b"")


async def remove_volume(context: AgentContext) -> None:
    link = context.directory / context.instance
    if link.is_symlink():
        path = os.readlink(link)
        if await _is_away(context, Path(path).parent):
            remove(_made_file(context))
            dropped = _dropped_file(context, path)
            dropped.parent.mkdir(exist_ok=True)
            link.rename(dropped)
            # Once it is reported as gone nobody asks again: a link that a power cut brings back would keep its disk.
            sync_directory(dropped.parent)
            sync_directory(context.directory)
            return
        await _refuse_other_base(context, path)
        # From here on it is meant to be gone: cut off after this, it may be made again.
        remove(_made_file(context))
        await context.machine.directories.remove(path)
        remove(link)


def volumes_in(directory: Path) -> list[str]:
    """The paths of those that are there, given the directory of the agent that makes them."""
    return [os.readlink(link) for link in sorted(directory.glob("*")) if link.is_symlink()]


async def remove_dropped(context: AgentContext, directory: Path, bases: Sequence[str]) -> None:
    """Removes what was to be gone while its disk was away; `directory` as for `volumes_in`, `bases` are there now."""
    for link in sorted((directory / _DROPPED).glob("*")):
        path = os.readlink(link)
        if str(Path(path).parent) in bases:
            await context.machine.directories.remove(path)
            remove(link)


def mark_away(target: Path, why: str) -> None:
    """`target` is where the disk is mounted, or was."""
    if why_away(target) != why:
        target.parent.mkdir(parents=True, exist_ok=True)  # a modelled machine makes none where it mounts
        write_whole(_away_file(target), why.encode())


def mark_back(target: Path) -> None:
    remove(_away_file(target))


def why_away(target: Path) -> str:
    try:
        return _away_file(target).read_text()
    except FileNotFoundError:
        return ""


def _away_file(target: Path) -> Path:
    return target.with_name(f"{target.name}{_AWAY}")


async def offer_base(context: AgentContext, path: str, file_system: int) -> None:
    """Takes a directory for volumes. One that was taken before has to be the same, also when it was given up meanwhile:
    offered again while its disk is not mounted, it would be taken for an empty one, and hidden when the disk is back.

    On which file system it is to be marked is written down first: cut off in between, it may be marked already.
    """
    bases = _read_bases(context)
    began = bases.get(path, file_system)
    if began != file_system and not await context.machine.directories.exists(f"{path}/{BASE_MARK}"):
        raise _other_base(path)
    if began == _OFFERED:
        return
    _write_bases(context, {**bases, path: began})
    await context.machine.directories.ensure(f"{path}/{BASE_MARK}", mode=0o700)
    _write_bases(context, {**bases, path: _OFFERED})


async def _refuse_other_base(context: AgentContext, path: str) -> None:
    base = Path(path).parent
    if _is_own_mount(context, base):
        if why := why_away(base):
            raise HostError(f"cannot reach {path}: {why}")
        if mounted_at(context.machine.mounts.table(), str(base)) is None:
            raise HostError(
                f"cannot reach {path}: the disk that it is on is not mounted",
                hint="it goes on when the disk is back; `qm devices` shows what is there",
            )
    elif not await context.machine.directories.exists(str(base / BASE_MARK)):
        raise _other_base(str(base))


async def _is_away(context: AgentContext, base: Path) -> bool:
    """Whether its disk is gone, does not answer or was given up. One that is only not mounted yet is waited for."""
    if not _is_own_mount(context, base):
        return False
    if why_away(base):
        return True
    if mounted_at(context.machine.mounts.table(), str(base)) is not None:
        return False
    found = await context.machine.devices.discover()
    return not any(signature.uuid == base.name for device in found for signature in device.signatures)


def _is_own_mount(context: AgentContext, base: Path) -> bool:
    agents = context.directory.parent
    return base.is_relative_to(agents) and base.relative_to(agents).parts[1:2] == (MOUNTS,)


def _other_base(path: str) -> HostError:
    return HostError(
        f"cannot use {path}: it is not the directory that was offered, for {path}/{BASE_MARK} is not there",
        hint=f"mount what belongs there; if it is meant to be empty now, `mkdir {path}/{BASE_MARK}`",
    )


def _was_reported(context: AgentContext) -> bool:
    """Whether it was finished by whoever was this host then: his files may be gone, but his report is not."""
    return context.assignment is not None and bool(context.assignment.status.result)


def _link(context: AgentContext, path: str) -> None:
    with suppress(FileExistsError):
        os.symlink(path, context.directory / context.instance)


def _dropped_file(context: AgentContext, path: str) -> Path:
    """A claim may be served again from another disk before the one it was on is back."""
    return context.directory / _DROPPED / f"{context.instance}@{Path(path).parent.name}"


def _made_file(context: AgentContext) -> Path:
    return context.directory / f"{context.instance}{_MADE}"


def _bases_file(context: AgentContext) -> Path:
    return context.directory / f"offered-{context.instance or '-'}.json"


def _read_bases(context: AgentContext) -> dict[str, int]:
    """By path: the file system on which one is being marked, or `_OFFERED`."""
    path = _bases_file(context)
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, int])
    except FileNotFoundError:
        return {}
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise HostError(
            f"cannot read {path}: {error}",
            hint="see that the directories that the node offers are mounted, then remove it: they are noted anew",
        ) from error


def _write_bases(context: AgentContext, bases: dict[str, int]) -> None:
    if bases != _read_bases(context):
        context.directory.mkdir(parents=True, exist_ok=True)
        write_whole(_bases_file(context), msgspec.json.encode(bases))
