"""Programs that many drivers use: mount, umount, stat, tee, losetup, dd."""

from __future__ import annotations

import time
from pathlib import Path

from quartermaster.testing.arguments import option
from tests.connectors.harness.tool import Answer
from tests.connectors.harness.world import World

_SHOWN = {"nfs": "nfs4", "glusterfs": "fuse.glusterfs", "quobyte": "fuse.quobyte", "fuse.ceph": "fuse.ceph-fuse"}

COMMON = {name: f"{__name__}:{name}" for name in ("mount", "umount", "stat", "tee", "losetup", "dd")}


def mount(world: World, arguments: list[str], _stdin: str) -> Answer:
    kind, options = option(arguments, "-t"), option(arguments, "-o").split(",")
    source, target = option(arguments, "--source"), option(arguments, "--target")
    versions = world.fact("nfs_versions")
    wanted = next((value.removeprefix("vers=") for value in options if value.startswith("vers=")), "3")
    if kind == "nfs" and versions is not None and wanted not in versions:
        return 32, "", "mount.nfs: Protocol not supported"
    if source in world.fact("refused", []):
        return 32, "", f"mount.{kind}: access denied by server while mounting {source}"
    for value in options:
        name, _, file = value.partition("=")
        if name in ("credentials", "secretfile", "ceph.keyring") and not Path(file).is_file():
            return 2, "", f"{file}: No such file or directory"
    shown = "ceph-fuse" if kind == "fuse.ceph" else source
    world.add_mount(shown, target, _SHOWN.get(kind, kind))
    return 0, "", ""


def hanging(_world: World, _arguments: list[str], _stdin: str) -> Answer:
    time.sleep(30)
    return 0, "", ""


def umount(world: World, arguments: list[str], _stdin: str) -> Answer:
    target = arguments[-1]
    if target in world.fact("busy", []) and "--lazy" not in arguments:
        return 32, "", f"umount: {target}: target is busy."
    return (0, "", "") if world.drop_mount(target) else (32, "", f"umount: {target}: not mounted.")


def stat(world: World, arguments: list[str], _stdin: str) -> Answer:
    """Files on servers are in the fact `files`: source → names."""
    path = arguments[-1]
    if "--file-system" in arguments:
        reason = world.fact("health", {}).get(path)
        return (
            (1, "", f"stat: cannot read file system information for '{path}': {reason}") if reason else (0, "nfs\n", "")
        )
    for each in reversed(world.mounts()):
        if each["target"] == path:
            return 0, "directory\n", ""
        inside = path.removeprefix(each["target"] + "/")
        if each["target"] != "/" and inside in world.fact("files", {}).get(each["source"], []):
            return 0, "regular file\n", ""
    return 1, "", f"stat: cannot statx '{path}': No such file or directory"


def tee(world: World, arguments: list[str], stdin: str) -> Answer:
    """An attribute of sysfs is written. What that does is the hardware's: the fact `attributes` names a function."""
    path = Path(arguments[-1])
    if not path.exists():
        return 1, "", f"tee: {path}: No such file or directory"
    hooks: dict[str, str] = world.fact("attributes", {})
    for ending, function in hooks.items():
        if str(path).endswith(ending):
            import importlib

            module, _, name = function.partition(":")
            getattr(importlib.import_module(module), name)(world, path, stdin)
    return 0, stdin, ""


def losetup(world: World, arguments: list[str], _stdin: str) -> Answer:
    if "--find" in arguments:
        file = arguments[-1]
        number = 0
        while (world.path("sys/class/block") / f"loop{number}").exists():
            number += 1
        below = world.path("sys/class/block") / Path(file).name / "size"
        size = below.read_text() if below.exists() else str(Path(file).stat().st_size // 512)
        read_only = "1" if "--read-only" in arguments else "0"
        node = world.add_device(f"loop{number}", size=size, ro=read_only, loop__backing_file=file)
        return 0, f"{node}\n", ""
    device = Path(arguments[-1])
    directory = world.path("sys/class/block") / device.name
    backing = directory / "loop/backing_file"
    if not backing.exists():
        return 1, "", f"losetup: {device}: No such device or address"
    if "--set-capacity" in arguments:
        (directory / "size").write_text(str(Path(backing.read_text()).stat().st_size // 512))
    else:
        world.drop_device(device.name)
    return 0, "", ""


def dd(world: World, arguments: list[str], _stdin: str) -> Answer:
    """Reads what the fact `away` does not say to be gone: file → what the program says, empty for one that hangs."""
    file = option(arguments, "if")
    reason = world.fact("away", {}).get(file)
    if reason == "":
        time.sleep(30)
    return (1, "", f"dd: error reading '{file}': {reason}") if reason else (0, "", "")
