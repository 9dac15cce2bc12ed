"""Whether somebody uses a block device: mounts in every mount namespace of this host, swap, devices built on it, and
processes that have it open.

Taking a device away under a mounted file system loses data, and a container's mounts are not in our own table. A
virtual machine or a database mounts nothing: it has the device open.
"""

from __future__ import annotations

import asyncio
import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from quartermaster.connectors.driver import Roots
from quartermaster.connectors.errors import VolumeBusyError
from quartermaster.connectors.identity import kernel_name
from quartermaster.host.mountinfo import Mount, parse_mountinfo

_MOMENT_S = 2.0
_LOOK_S = 0.1
_SERVERLESS = ("overlay", "tmpfs", "devtmpfs", "ramfs", "rootfs", "ext2", "ext3", "ext4", "xfs", "btrfs")
# They have a device open for as long as it is there, or for a moment after each change of it.
_SERVANTS = ("nbd-client", "rbd-nbd", "qemu-nbd", "multipathd", "systemd-udevd", "(udev-worker)", "udevd")


def refuse_if_used(volume_id: str, device: str, roots: Roots, *, verb: str) -> None:
    users = users_of(device, roots)
    if users:
        raise VolumeBusyError(
            f"cannot {verb} the volume {volume_id}: {device} is in use: {', '.join(users)}",
            hint="unmount it and stop what uses it first; nothing was changed",
        )


async def refuse_if_open(volume_id: str, device: str, roots: Roots, *, verb: str) -> None:
    """Programs that only look, as `blkid` does, have it open for a moment; they are waited for."""
    loop = asyncio.get_running_loop()
    ends = loop.time() + _MOMENT_S
    while openers := openers_of(device, roots):
        if loop.time() >= ends:
            raise VolumeBusyError(
                f"cannot {verb} the volume {volume_id}: {device} is in use: {', '.join(openers)}",
                hint="stop what uses it first; nothing was changed",
            )
        await asyncio.sleep(_LOOK_S)


def openers_of(device: str, roots: Roots) -> list[str]:
    """Processes that have the device or one of its partitions open, in words; without those that serve it, or look at
    every device there is."""
    name = kernel_name(device, roots)
    directory = roots.sysfs / "class/block" / (name or "-")
    numbers = _numbers(directory, _with_partitions(directory))
    nodes = ("/dev/", f"{roots.dev}/")
    mounts = _Mounts(roots)
    found = []
    for process in _names(roots.proc):
        if process.isdecimal() and _has_open(process, numbers, nodes, mounts, roots):
            called = _text(roots.proc / process / "comm")
            if called not in _SERVANTS:
                found.append(f"opened by process {process} ({called})")
    if not found and name.startswith("loop") and not users_of(device, roots) and _is_claimed(device):
        found.append("a file system on it that was unmounted lazily is still in use")
    return found


class _Mounts:
    """The types of the mounts that processes see, by the number that an open file has; read once per namespace."""

    def __init__(self, roots: Roots) -> None:
        self._proc = roots.proc
        self._known: dict[str, dict[str, str]] = {}

    def type_of(self, process: str, mount: str) -> str:
        with suppress(OSError):
            namespace = os.readlink(self._proc / process / "ns/mnt")
            if namespace not in self._known:
                text = (self._proc / process / "mountinfo").read_text(errors="surrogateescape")
                self._known[namespace] = {str(each.id): each.type for each in parse_mountinfo(text)}
            return self._known[namespace].get(mount, "")
        return ""


def _has_open(process: str, numbers: set[str], nodes: tuple[str, ...], mounts: _Mounts, roots: Roots) -> bool:
    directory = roots.proc / process / "fd"
    for name in _names(directory):
        with suppress(OSError):
            path = os.readlink(directory / name)
            # A look at a file itself hangs where its server is dead. A node in /dev has no server; one elsewhere, as
            # a container may have it, is looked at where its file system has none.
            if path.startswith(nodes) or (
                path.startswith("/") and mounts.type_of(process, _mount_of(roots.proc, process, name)) in _SERVERLESS
            ):
                told = os.stat(directory / name)
                if stat.S_ISBLK(told.st_mode) and f"{os.major(told.st_rdev)}:{os.minor(told.st_rdev)}" in numbers:
                    return True
    return False


def _mount_of(proc: Path, process: str, name: str) -> str:
    """The number of the mount through which a file was opened."""
    for line in (proc / process / "fdinfo" / name).read_text(errors="replace").splitlines():
        key, _, value = line.partition(":")
        if key == "mnt_id":
            return value.strip()
    return ""


def _is_claimed(device: str) -> bool:
    try:
        os.close(os.open(device, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC))
    except OSError as error:
        return error.errno == errno.EBUSY
    return False


def users_of(device: str, roots: Roots) -> list[str]:
    """What uses the device or one of its partitions, in words."""
    name = kernel_name(device, roots)
    directory = roots.sysfs / "class/block" / (name or "-")
    if not directory.is_dir():
        return []
    related = _with_partitions(directory)
    found = [f"{holder} is built on it" for each in related for holder in _names(directory.parent / each / "holders")]
    swaps = _swaps(roots)
    found += [f"{each} is swap" for each in related if each in swaps]
    numbers = _numbers(directory, related)
    sources = {str(roots.dev / each.replace("!", "/")) for each in related}
    for mount in _mounts_of_all(roots):
        # btrfs has a number of its own that leads to no device.
        if mount.number in numbers or (mount.type == "btrfs" and os.path.realpath(mount.source) in sources):
            found.append(f"mounted on {mount.target}")
    return list(dict.fromkeys(found))


def _with_partitions(directory: Path) -> list[str]:
    """The names of a disk, whose directory in sysfs it is, and of its partitions."""
    return [directory.name, *(each for each in _names(directory) if (directory / each / "partition").exists())]


def _numbers(directory: Path, names: Sequence[str]) -> set[str]:
    return {_number(directory.parent / each) for each in names} - {""}


def _mounts_of_all(roots: Roots) -> Iterator[Mount]:
    seen: dict[str, None] = {}
    for process in ("self", *(name for name in _names(roots.proc) if name.isdecimal())):
        with suppress(OSError):
            namespace = os.readlink(roots.proc / process / "ns/mnt") if process != "self" else _own(roots)
            if namespace not in seen:
                seen[namespace] = None
                text = (roots.proc / process / "mountinfo").read_text(errors="surrogateescape")
                yield from parse_mountinfo(text)


def _own(roots: Roots) -> str:
    with suppress(OSError):
        return os.readlink(roots.proc / "self/ns/mnt")
    return "own"


def _swaps(roots: Roots) -> Sequence[str]:
    with suppress(OSError):
        lines = (roots.proc / "swaps").read_text().splitlines()[1:]
        return [kernel_name(line.split()[0], roots) for line in lines]
    return ()


def _number(directory: Path) -> str:
    with suppress(OSError):
        return (directory / "dev").read_text().strip()
    return ""


def _text(file: Path) -> str:
    with suppress(OSError):
        return file.read_text(errors="replace").strip()
    return ""


def _names(directory: Path) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []
