"""The kernel's table of mounts, parsed: what is mounted where, from what, and how. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

import msgspec


class Mount(msgspec.Struct, frozen=True):
    """One line of mountinfo."""

    id: int
    parent: int
    number: str  # major:minor of the file system; btrfs and network file systems have one without a device
    root: str  # which part of the file system is mounted; "/" is all of it
    target: str
    options: tuple[str, ...]  # of this mount
    propagation: tuple[str, ...]  # such as shared:12 or master:3
    type: str
    source: str
    super_options: tuple[str, ...]  # of the file system

    @property
    def read_only(self) -> bool:
        return "ro" in self.options or "ro" in self.super_options


def parse_mountinfo(text: str) -> tuple[Mount, ...]:
    """In the kernel's order: of several mounts on one target the last is on top."""
    return tuple(_parse_line(line) for line in text.split("\n") if line)


def _parse_line(line: str) -> Mount:
    before, _, after = line.partition(" - ")
    identity, parent, number, root, target, options, *propagation = before.split(" ")
    # An empty source leaves two spaces in a row, which split(" ") keeps apart.
    type_, source, super_options = after.split(" ", 2)
    return Mount(
        id=int(identity),
        parent=int(parent),
        number=number,
        root=_unescape(root),
        target=_unescape(target),
        options=tuple(options.split(",")),
        propagation=tuple(field for field in propagation if field),
        type=_unescape(type_),
        source=_unescape(source),
        super_options=tuple(super_options.split(",")),
    )


def _unescape(text: str) -> str:
    # Each escape is one byte, so names in UTF-8 are put together as bytes.
    if "\\" not in text:
        return text
    raw = re.sub(rb"\\([0-7]{3})", lambda match: bytes([int(match[1], 8)]), text.encode(errors="surrogateescape"))
    return raw.decode(errors="surrogateescape")


def mounted_at(mounts: Sequence[Mount], target: str) -> Mount | None:
    """What one sees at the target, if it is a mount point."""
    return next((mount for mount in reversed(mounts) if mount.target == target), None)


def mounts_at(mounts: Sequence[Mount], target: str) -> tuple[Mount, ...]:
    """All that is mounted on the target, from the bottom up. A mount that was moved keeps its place in the kernel's
    order, so what lies on what is asked of the parents first.
    """
    found = {mount.id: mount for mount in mounts if mount.target == target}

    def height(mount: Mount) -> int:
        below = found.get(mount.parent)
        return 0 if below is None or below is mount else height(below) + 1

    return tuple(sorted(found.values(), key=height))


def covering(mounts: Sequence[Mount], path: str) -> Mount | None:
    """The mount in which a path lies."""
    for directory in (path, *map(str, PurePosixPath(path).parents)):
        found = mounted_at(mounts, directory)
        if found is not None:
            return found
    return None
