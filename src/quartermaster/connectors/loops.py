"""Loop devices: a file as a block device. The userspace routes end in one too.

Which file is behind a loop device is read from sysfs, by path. A device whose file was deleted has the file's old path
with a mark behind it. One that was detached while somebody used it goes with its last user, whoever that is: it is
nobody's volume any more.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from quartermaster.connectors.context import Context
from quartermaster.connectors.identity import device_directory
from quartermaster.connectors.usage import refuse_if_open, refuse_if_used
from quartermaster.host.commands import Command
from quartermaster.host.tools import Tool, register

register(Tool("losetup", "mount", "makes a file a block device"))

_GONE_S = 10.0
_DELETED = " (deleted)"
_NOTE = "loops"


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


def noted_loops(context: Context) -> list[str]:
    """The devices that the volume was given, also when there was another file of that name."""
    return context.notes.get(_NOTE, "").split()


def note_loops(context: Context, devices: Sequence[str]) -> None:
    context.note(**{_NOTE: " ".join(dict.fromkeys(devices))})


def own_loops(context: Context, path: str) -> list[str]:
    """The loop devices of the volume, that of the present file first.

    Those of a file that was there are the volume's if the note says so: somebody else may have had one on that too. A
    process that died may have made the present one without a note.
    """
    wanted, noted = os.path.realpath(path), noted_loops(context)
    backings = dict(loops(context))
    present = [device for device, backing in backings.items() if backing == wanted]
    own = [device for device in present if device in noted] or present[:1]
    return own + [device for device in noted if backings.get(device) == f"{wanted}{_DELETED}"]


def is_read_only(context: Context, device: str) -> bool:
    return context.files.text(device_directory(device, context.roots) / "ro") == "1"


def is_leaving(context: Context, device: str) -> bool:
    """It goes with its last user."""
    return context.files.text(device_directory(device, context.roots) / "loop/autoclear") == "1"


async def attach_loop(context: Context, path: str, *, read_only: bool = False, direct: bool = False) -> str:
    """`path` without symbolic links: by it the device is found again."""
    flags = [*(["--read-only"] if read_only else []), *(["--direct-io=on"] if direct else [])]
    argv = ("losetup", "--find", "--show", "--nooverlap", *flags, path)
    return (await context.commands.run(Command(argv, verb=f"make {path} a block device"))).text.strip()


async def detach_loop(context: Context, path: str, *, force: bool) -> None:
    """Nothing where the file has none. A device in use would stay until its last user goes: that is refused."""
    devices, present = own_loops(context, path), find_loop(context, path)
    if not devices:
        return
    if not force:
        for device in devices:
            refuse_if_used(context.volume_id, device, context.roots, verb="disconnect")
            # Whoever has the present one open was looked for before, but for one that was taken away by force.
            if device != present or is_leaving(context, device):
                await refuse_if_open(context.volume_id, device, context.roots, verb="disconnect")

    async def gone() -> bool | None:
        return True if not set(devices).intersection(own_loops(context, path)) else None

    async with context.watch(context.roots.dev) as changes:
        for device in devices:
            await context.commands.run(Command(("losetup", "--detach", device), verb=f"detach {device}"))
        if not force:
            await context.until(gone, changes, what=f"{' and '.join(devices)} to go away", most_s=_GONE_S)


async def grow_loop(context: Context, path: str) -> None:
    device = find_loop(context, path)
    await context.commands.run(Command(("losetup", "--set-capacity", device), verb=f"grow {device}"))
