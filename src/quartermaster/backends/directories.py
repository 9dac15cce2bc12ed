"""Volumes that are directories on a host: each is made once.

A directory that should be there and is not may be on a disk that is not mounted, or its host may be another machine by
now. An empty one in its place would look like the volume, and applications would begin anew in it. So what was finished
once is never made again, and nothing is made in a directory that is not the one that was offered.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from quartermaster.backends.base import AgentContext
from quartermaster.host.files import remove, write_whole
from quartermaster.host.mountinfo import mounted_at
from quartermaster.support.errors import HostError

# In each directory that was offered: by it the directory is known again.
BASE_MARK = ".quartermaster"
MOUNTS = "mounts"
_MADE = ".made"


async def make_volume(context: AgentContext, path: str) -> None:
    """Keeps a link to it by its name: who asks for its end does not say where it is."""
    await _refuse_other_base(context, path)
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
        await _refuse_other_base(context, path)
        # From here on it is meant to be gone: cut off after this, it may be made again.
        remove(_made_file(context))
        await context.machine.directories.remove(path)
        link.unlink()


def volumes_in(directory: Path) -> list[str]:
    """The paths of those that are there, given the directory of the agent that makes them."""
    return [os.readlink(link) for link in sorted(directory.glob("*")) if link.is_symlink()]


async def offer_base(context: AgentContext, path: str) -> None:
    """Takes a directory for volumes; one that was taken before has to be the same."""
    mark = f"{path}/{BASE_MARK}"
    if path not in _known_bases(context):
        await context.machine.directories.ensure(mark, mode=0o700)
        _write_bases(context, [*_known_bases(context), path])
    elif not await context.machine.directories.exists(mark):
        raise _other_base(path)


def forget_bases(context: AgentContext, *, keep: Sequence[str] = ()) -> None:
    known = _known_bases(context)
    kept = [path for path in known if path in keep]
    if kept != known:
        _write_bases(context, kept)


async def _refuse_other_base(context: AgentContext, path: str) -> None:
    base = Path(path).parent
    if _is_own_mount(context, base):
        if mounted_at(context.machine.mounts.table(), str(base)) is None:
            raise HostError(
                f"cannot reach {path}: the disk that it is on is not mounted",
                hint="it goes on when the disk is back; `qm devices` shows what is there",
            )
    elif not await context.machine.directories.exists(str(base / BASE_MARK)):
        raise _other_base(str(base))


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


def _made_file(context: AgentContext) -> Path:
    return context.directory / f"{context.instance}{_MADE}"


def _bases_file(context: AgentContext) -> Path:
    return context.directory / f"bases-{context.instance or '-'}.json"


def _known_bases(context: AgentContext) -> list[str]:
    try:
        return msgspec.json.decode(_bases_file(context).read_bytes(), type=list[str])
    except FileNotFoundError:
        return []


def _write_bases(context: AgentContext, paths: list[str]) -> None:
    context.directory.mkdir(parents=True, exist_ok=True)
    write_whole(_bases_file(context), msgspec.json.encode(paths))
