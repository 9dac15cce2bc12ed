"""Loop devices: a file as a block device. The userspace routes end in one too.

Which file is behind a loop device is read from sysfs, by path; a device whose file was deleted has no path any more.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from quartermaster.connectors.context import Context
from quartermaster.connectors.usage import refuse_if_used
from quartermaster.host.commands import Command
from quartermaster.host.tools import Tool, register

register(Tool("losetup", "mount", "makes a file a block device"))

_GONE_S = 10.0


def loops(context: Context) -> Iterator[tuple[str, str]]:
    """Every loop device that has a file, with the file."""
    directory = context.roots.sysfs / "class/block"
    for name in context.files.names(directory):
        if name.startswith("loop"):
            backing = context.files.text(directory / name / "loop/backing_file")
            if backing:
                yield str(context.roots.dev / name), backing


def find_loop(context: Context, path: str) -> str:
    """The loop device of a file; empty without one."""
    wanted = os.path.realpath(path)
    return next((device for device, backing in loops(context) if backing == wanted), "")


async def attach_loop(context: Context, path: str, *, read_only: bool = False, direct: bool = False) -> str:
    """`path` without symbolic links: by it the device is found again."""
    flags = [*(["--read-only"] if read_only else []), *(["--direct-io=on"] if direct else [])]
    argv = ("losetup", "--find", "--show", "--nooverlap", *flags, path)
    return (await context.commands.run(Command(argv, verb=f"make {path} a block device"))).text.strip()


async def detach_loop(context: Context, path: str, *, force: bool) -> None:
    """Nothing where the file has none. A device in use would stay until its last user goes: that is refused."""
    device = find_loop(context, path)
    if not device:
        return
    if not force:
        refuse_if_used(context.volume_id, device, context.roots, verb="disconnect")

    async def gone() -> bool | None:
        return True if find_loop(context, path) != device else None

    async with context.watch(context.roots.dev) as changes:
        await context.commands.run(Command(("losetup", "--detach", device), verb=f"detach {device}"))
        if not force:
            await context.until(gone, changes, what=f"{device} to go away", most_s=_GONE_S)


async def grow_loop(context: Context, path: str) -> None:
    device = find_loop(context, path)
    await context.commands.run(Command(("losetup", "--set-capacity", device), verb=f"grow {device}"))
