"""The files behind the disks of virtual hosts, and the loop devices that the kernel has made of them."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path

from quartermaster.host.commands import Command, Commands
from quartermaster.host.files import remove
from quartermaster.host.mounts import Mounts
from quartermaster.testing.lab.state import DiskState, LabError

_BLOCKS = Path("/sys/block")
_LOOK_S = 0.005
_GONE_TIMEOUT_S = 30.0  # what was written is on its way to the disk
_DELETED = " (deleted)"


def disk_file(host_directory: Path, disk: DiskState) -> Path:
    return host_directory / "disks" / f"{disk.number}.img"


def make_disk(host_directory: Path, disk: DiskState) -> None:
    """Sparse: it takes room for what is written to it. One that is there is left as it is."""
    file = disk_file(host_directory, disk)
    file.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError), file.open("xb") as sparse:
        sparse.truncate(disk.size)


def remove_disk(host_directory: Path, disk: DiskState) -> None:
    remove(disk_file(host_directory, disk))


def loops_under(directory: Path) -> dict[str, str]:
    """Loop devices whose file lies in the directory, with that file."""
    found = {}
    for entry in sorted(os.listdir(_BLOCKS)):
        if entry.startswith("loop"):
            with suppress(OSError):
                file = (_BLOCKS / entry / "loop/backing_file").read_text().rstrip("\n").removesuffix(_DELETED)
                if Path(file).is_relative_to(directory):
                    found[f"/dev/{entry}"] = file
    return found


async def until_no_loops(directory: Path, *, timeout_s: float) -> dict[str, str]:
    """Those that are still there in the end: the kernel unmounts behind the back of whoever ended a host."""
    loop = asyncio.get_running_loop()
    ends = loop.time() + timeout_s
    while True:
        left = loops_under(directory)
        if not left or loop.time() >= ends:
            return left
        await asyncio.sleep(_LOOK_S)


async def refuse_loops(host_directory: Path, verb: str) -> None:
    """Two devices on one file would destroy what is on it."""
    for device in await until_no_loops(host_directory, timeout_s=_GONE_TIMEOUT_S):
        raise LabError(
            f"cannot {verb}: its disk {device} is still in use outside of it",
            hint="unmount it, or end the process that has it open",
        )


async def release(commands: Commands, mounts: Mounts, directory: Path) -> None:
    """Take the lab's disks and directory from those outside who have them mounted, and detach what is left."""
    loops = loops_under(directory)
    for mount in reversed(mounts.table()):
        if mount.source in loops or Path(mount.target).is_relative_to(directory):
            await mounts.unmount(mount.target, lazy=True)
    for device in await until_no_loops(directory, timeout_s=0.5):
        # As soon as the last one closes it.
        await commands.run(Command(("losetup", "--detach", device), verb=f"detach {device}", accept=(0, 1)))
    left = await until_no_loops(directory, timeout_s=_GONE_TIMEOUT_S)
    if left:
        raise LabError(
            f"cannot take away the disks of the lab: {', '.join(left)} cannot be detached",
            hint=f"`fuser -v {next(iter(left))}` names who has it open",
        )
