"""What is on the host already, as rows of the table."""

from __future__ import annotations

from typing import Any

from tests.connectors.harness.case import Case
from tests.connectors.harness.world import World


def local(type: str, path: str, **data: Any) -> Any:
    return lambda world: {"driverVolumeType": type, "data": {"devicePath": str(world.path(path)), **data}}


def a_file(world: World) -> None:
    world.path("disk.img").write_bytes(b"\0" * 4096)


CASES = [
    Case(
        "local device",
        local("LOCAL", "dev/vdb", volumeId="local-1"),
        connect=[],
        disconnect=[],
        path="{world}/dev/disk/by-id/quartermaster-local-1",
        prepare=lambda world: world.add_device("vdb", serial="disk-7"),
    ),
    Case(
        "local device to read",
        local("LOCAL", "dev/vdb", volumeId="local-1", accessMode="ro"),
        connect=[["losetup", "--find", "--show", "--nooverlap", "--read-only", "{world}/dev/vdb"]],
        disconnect=[["losetup", "--detach", "{world}/dev/loop0"]],
        path="{world}/dev/disk/by-id/quartermaster-local-1",
        prepare=lambda world: world.add_device("vdb", serial="disk-7"),
    ),
    Case(
        "local directory",
        lambda world: {"driver_volume_type": "local", "data": {"directory": str(world.path("etc"))}},
        connect=[],
        disconnect=[],
        path="{world}/etc",
    ),
    Case(
        "local file",
        local("LOCAL", "disk.img", volumeId="local-1"),
        connect=[["losetup", "--find", "--show", "--nooverlap", "{world}/disk.img"]],
        disconnect=[["losetup", "--detach", "{world}/dev/loop0"]],
        path="{world}/dev/disk/by-id/quartermaster-local-1",
        prepare=a_file,
    ),
    Case(
        "local file to read",
        local("LOCAL", "disk.img", volumeId="local-1", accessMode="ro"),
        connect=[["losetup", "--find", "--show", "--nooverlap", "--read-only", "{world}/disk.img"]],
        disconnect=[["losetup", "--detach", "{world}/dev/loop0"]],
        path="{world}/dev/disk/by-id/quartermaster-local-1",
        prepare=a_file,
    ),
    Case(
        "gpfs",
        local("GPFS", "disk.img"),
        connect=[],
        disconnect=[],
        path="{world}/disk.img",
        prepare=a_file,
    ),
]
