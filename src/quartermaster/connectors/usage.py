"""Whether somebody uses a block device: mounts in every mount namespace of this host, swap, and devices built on it.

Taking a device away under a mounted file system loses data, and a container's mounts are not in our own table.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from quartermaster.connectors.driver import Roots
from quartermaster.connectors.errors import VolumeBusyError
from quartermaster.connectors.identity import kernel_name
from quartermaster.host.mountinfo import Mount, parse_mountinfo


def refuse_if_used(volume_id: str, device: str, roots: Roots, *, verb: str) -> None:
    users = users_of(device, roots)
    if users:
        raise VolumeBusyError(
            f"cannot {verb} the volume {volume_id}: {device} is in use: {', '.join(users)}",
            hint="unmount it and stop what uses it first; nothing was changed",
        )


def users_of(device: str, roots: Roots) -> list[str]:
    """What uses the device or one of its partitions, in words."""
    name = kernel_name(device, roots)
    directory = roots.sysfs / "class/block" / (name or "-")
    if not directory.is_dir():
        return []
    related = [name, *(entry for entry in _names(directory) if (directory / entry / "partition").exists())]
    found = [f"{holder} is built on it" for each in related for holder in _names(directory.parent / each / "holders")]
    swaps = _swaps(roots)
    found += [f"{each} is swap" for each in related if each in swaps]
    numbers = {_number(directory.parent / each) for each in related} - {""}
    sources = {str(roots.dev / each.replace("!", "/")) for each in related}
    for mount in _mounts_of_all(roots):
        # btrfs has a number of its own that leads to no device.
        if mount.number in numbers or (mount.type == "btrfs" and os.path.realpath(mount.source) in sources):
            found.append(f"mounted on {mount.target}")
    return list(dict.fromkeys(found))


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


def _names(directory: Path) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []
