"""File systems of a server: mounted once however many volumes lie on them, and unmounted with the last.

The directory follows from the type, the source and the options, so two volumes on one export meet in one mount, and
two that want it differently do not. Losing a race for a mount is no failure: it is mounted, whoever did it.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path, PurePosixPath

import msgspec

from quartermaster.connectors.context import Context
from quartermaster.connectors.driver import Foreign, Found
from quartermaster.connectors.errors import NotAnsweringError
from quartermaster.connectors.mistakes import Mistakes
from quartermaster.connectors.names import digest_of
from quartermaster.host.commands import Command
from quartermaster.host.mountinfo import Mount, mounted_at
from quartermaster.host.mounts import MountState, canonical
from quartermaster.support.errors import CommandDeadlineError, CommandError, HostError, MountConflictError

_LOOK_S = 5.0


class MountPlace(msgspec.Struct, frozen=True):
    """A volume on a mounted file system. `options` are those without a secret."""

    source: str
    target: str
    types: tuple[str, ...]  # as the kernel's table may call it
    options: tuple[str, ...] = ()
    name: str = ""  # of the volume in it; empty for the whole
    file: str = ""  # where inside the mount it lies, if not at its name

    @property
    def thing(self) -> str:
        return f"mount {self.target}"

    @property
    def path(self) -> str:
        inside = self.file or self.name
        return str(Path(self.target) / inside) if inside else self.target


def check_inside(wrong: Mistakes, base: str, **names: str) -> None:
    """A volume has to lie in what is mounted, and that somewhere for sure."""
    if base and not base.startswith("/"):
        wrong.add("mountPointBase", f'"{base}" does not begin with /', 'for example "/mnt"')
    for key, text in names.items():
        if text.startswith("/") or ".." in PurePosixPath(text).parts:
            outside = f'"{text}" leads out of the file system that is mounted'
            wrong.add(key, outside, "name it by its path inside, without / in front and without ..")


def target_of(base: Path, type: str, source: str, options: Sequence[str]) -> str:
    return str(base / f"{type}-{digest_of(chr(0).join([type, source, *sorted(options)]))}")


async def join_mount(context: Context, place: MountPlace, make: Callable[[], Awaitable[None]]) -> Found:
    """Use the mount, which `make` makes where it is not there."""

    async def present() -> bool:
        return mounted(context, place) is not None

    async with context.joining(place.thing, present=present) as joined:
        there = joined.present
        if there and joined.ours and await is_corrupted(context, place):
            await context.mounts.unmount(place.target, lazy=True)
            there = False
        if not there:
            try:
                await make()
            except HostError as error:
                if mounted(context, place) is None:
                    raise _explained(place, error) from error
    await _require_file(context, place)
    return Found(path=place.path)


def _explained(place: MountPlace, error: HostError) -> HostError:
    if isinstance(error, CommandDeadlineError):
        return NotAnsweringError(
            f"cannot mount {place.source} on {place.target}: the server did not answer in time",
            hint="look whether it is up, and whether a firewall is between",
        )
    hint = "look whether the server answers, and whether it exports this to the host"
    if isinstance(error, CommandError) and "unknown filesystem type" in error.stderr:
        hint = "this kernel does not have it; load its module, or choose another client if the type has one"
    error.hint = error.hint or hint
    return error


async def leave_mount(context: Context, place: MountPlace, *, force: bool) -> None:
    async with context.leaving(place.thing) as leaving:
        # Without a record it is still ours by its name: nobody else mounts on a directory that is called like that.
        if leaving.last and leaving.ours is not False:
            await context.mounts.unmount(place.target, lazy=force, remove=True, timeout_s=context.left_s())


def find_mount(context: Context, place: MountPlace) -> Found | None:
    if context.uses(place.thing) and mounted(context, place) is not None:
        return Found(path=place.path)
    return None


async def mount_away(context: Context, place: MountPlace) -> str:
    health = await context.mounts.health(place.target, timeout_s=min(_LOOK_S, context.left_s() / 2))
    if health.state is MountState.CORRUPTED:
        return f"{place.source} is gone ({health.reason}); connecting it again mounts it anew"
    return f"{place.source} does not answer" if health.state is MountState.UNRESPONSIVE else ""


def foreign_mounts(context: Context, driver: str, types: Sequence[str]) -> list[Foreign]:
    table = context.mounts.table()
    # Files by which userspace clients show their volumes are mounts too, of no server.
    own = Path(os.path.realpath(context.directory)) / "userspace"
    found = [mount for mount in table if mount.type in types and not Path(mount.target).is_relative_to(own)]
    return [Foreign(driver, "mount", mount.source, mount.target) for mount in found]


def mounted(context: Context, place: MountPlace) -> Mount | None:
    """What is mounted for the place; MountConflictError where it is something else."""
    table = context.mounts.table()
    found = mounted_at(table, canonical(table, place.target))
    if found is not None and found.type not in place.types:
        raise MountConflictError(
            f"cannot mount {place.source} on {place.target}: {found.source} ({found.type}) is mounted there",
            hint="unmount it first",
        )
    return found


async def is_corrupted(context: Context, place: MountPlace) -> bool:
    """The server or the daemon behind it is gone for good."""
    health = await context.mounts.health(place.target, timeout_s=min(_LOOK_S, context.left_s()))
    return health.state is MountState.CORRUPTED


async def _require_file(context: Context, place: MountPlace) -> None:
    """The server may be dead by now, so the look has a deadline."""
    if not place.name:
        return
    command = Command(
        ("stat", "--dereference", "--format=%F", place.path), verb=f"find {place.path}", timeout_s=30.0, changes=False
    )
    try:
        await context.commands.run(command)
    except CommandError as error:
        if "No such file" not in error.stderr:
            raise
        raise HostError(
            f"cannot find the volume {place.name}: there is no such file on {place.source}",
            hint="look whether the storage system has made it, and under which name",
        ) from error
