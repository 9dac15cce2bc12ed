"""The programs that this host layer may start, each named once, with the package that brings it.

A missing program is then a sentence with a remedy, and `qm doctor` can list what a host lacks. Whoever starts other
programs (a backend, a connector) adds them with `register`.
"""

from __future__ import annotations

import msgspec


class Tool(msgspec.Struct, frozen=True):
    name: str
    package: str  # Debian's name
    purpose: str


_TOOLS: dict[str, Tool] = {}


def register(*tools: Tool) -> None:
    for tool in tools:
        _TOOLS[tool.name] = tool


def registered() -> tuple[Tool, ...]:
    return tuple(_TOOLS[name] for name in sorted(_TOOLS))


def hint_for(name: str) -> str:
    """What to do about a program that is not there."""
    tool = _TOOLS.get(name)
    return f"install the package {tool.package}" if tool is not None else f"install {name} or add its directory to PATH"


register(
    Tool("blkid", "util-linux", "tells what a device holds"),
    Tool("wipefs", "util-linux", "finds and removes signatures"),
    Tool("mount", "mount", "mounts file systems"),
    Tool("umount", "mount", "unmounts file systems"),
    Tool("nsenter", "util-linux", "runs commands on a virtual host"),
    Tool("cmp", "diffutils", "looks whether a device is blank"),
    Tool("dd", "coreutils", "tells whether a device can be read"),
    Tool("stat", "coreutils", "notices dead mounts"),
    Tool("ip", "iproute2", "lists addresses"),
    Tool("mkfs.xfs", "xfsprogs", "makes XFS file systems"),
    Tool("xfs_admin", "xfsprogs", "labels XFS file systems"),
    Tool("mkfs.ext4", "e2fsprogs", "makes ext4 file systems"),
    Tool("e2label", "e2fsprogs", "labels ext4 file systems"),
    Tool("mkfs.btrfs", "btrfs-progs", "makes btrfs file systems"),
    Tool("btrfs", "btrfs-progs", "labels btrfs file systems"),
    Tool("systemctl", "systemd", "runs daemons as units"),
    Tool("journalctl", "systemd", "shows the logs of units"),
)

# What every host needs; the rest is brought by backends and connectors.
COMMON = registered()
