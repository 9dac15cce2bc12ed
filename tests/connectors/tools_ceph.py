"""rbd, rbd-nbd and nbd-client, as far as a connector sees them. The fact `images` has the size of each in sectors."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import NoReturn

from quartermaster.testing.arguments import option
from tests.connectors.harness.tool import Answer
from tests.connectors.harness.world import World
from tests.connectors.tools_userspace import stay_instead_of_ending

FSID = "0f1e2d3c-aaaa-bbbb-cccc-123456789abc"
OTHER_FSID = "ffffffff-aaaa-bbbb-cccc-123456789abc"


def rbd(world: World, arguments: list[str], _stdin: str) -> Answer:
    return _map(world, arguments) if arguments[1] == "map" else _unmap(world, arguments)


def getent(world: World, arguments: list[str], _stdin: str) -> Answer:
    address = world.fact("names", {}).get(arguments[-1])
    return (0, f"{address}      STREAM {arguments[-1]}\n{address}      DGRAM\n", "") if address else (2, "", "")


def rbd_nbd(world: World, arguments: list[str], _stdin: str) -> Answer:
    if arguments[0] == "unmap":
        return disconnect(world, Path(arguments[1]))
    problem = _refusal(world, arguments, arguments[-1])
    if problem:
        return 1, "", f"rbd-nbd: {problem}"
    return serve(world, Path(option(arguments, "--device")), world.fact("images")[arguments[-1]])


def nbd_client(world: World, arguments: list[str], _stdin: str) -> Answer:
    if arguments[0] == "-d":
        return disconnect(world, Path(arguments[1]))
    if option(arguments, "-name") not in world.fact("exports", []):
        return 1, "", "Error: Server said no: export unknown\nExiting."
    return serve(world, Path(arguments[-1]), "2048")


def serve(world: World, device: Path, sectors: str) -> Answer:
    """The device is there for as long as this process."""
    directory = world.path("sys/class/block") / device.name
    if (directory / "pid").exists():
        return 1, "", f"{device}: Device or resource busy"
    # From now on a signal ends it in the orderly way, also while it is still connecting.
    signal.signal(signal.SIGTERM, lambda *_: leave(directory))
    (directory / "size").write_text(sectors)
    temporary = directory / ".pid"
    temporary.write_text(str(os.getpid()))
    temporary.rename(directory / "pid")
    # However it ends, the kernel takes the device back.
    stay_instead_of_ending(lambda _code: leave(directory))
    return 0, "", ""


def disconnect(world: World, device: Path) -> Answer:
    directory = world.path("sys/class/block") / device.name
    if not (directory / "pid").exists():
        return 1, "", f"{device}: not connected"
    os.kill(int((directory / "pid").read_text()), signal.SIGTERM)
    return 0, "", ""


def leave(directory: Path) -> NoReturn:
    (directory / "pid").unlink(missing_ok=True)
    (directory / "size").write_text("0")
    os.kill(os.getpid(), signal.SIGKILL)
    raise SystemExit(1)


def _map(world: World, arguments: list[str]) -> Answer:
    pool, namespace, image, snapshot = (
        option(arguments, f"--{name}") for name in ("pool", "namespace", "image", "snap")
    )
    whole = "/".join(part for part in (pool, namespace, image) if part) + (f"@{snapshot}" if snapshot else "")
    problem = _refusal(world, arguments, whole)
    if problem:
        return 1, "", f"rbd: {problem}"
    number = 0
    while world.path(f"sys/class/block/rbd{number}").exists():
        number += 1
    monitors = option(arguments, "--mon_host")
    for name, address in world.fact("names", {}).items():
        monitors = monitors.replace(name, address)
    attributes = {"pool": pool, "pool_ns": namespace, "name": image, "current_snap": snapshot or "-"}
    attributes |= {"cluster_fsid": world.fact("fsid", FSID), "refresh": ""}
    attributes["config_info"] = f"{monitors} name={option(arguments, '--id')},key=client.x {pool} {image} -"
    sectors = world.fact("images")[whole]
    node = world.add_device(
        f"rbd{number}", size=sectors, **{f"device__{key}": value for key, value in attributes.items()}
    )
    return 0, f"{node}\n", ""


def _unmap(world: World, arguments: list[str]) -> Answer:
    device = Path(arguments[-1])
    if str(device) in world.fact("open", []) and "force" not in option(arguments, "--options"):
        return 16, "", "rbd: sysfs write failed\nrbd: unmap failed: (16) Device or resource busy"
    if not device.exists():
        return 22, "", f"rbd: '{device}' is not a block device"
    world.drop_device(device.name)
    return 0, "", ""


def _refusal(world: World, arguments: list[str], image: str) -> str:
    keyring = option(arguments, "--keyring")
    wanted = world.fact("ceph_key", "")
    if wanted and (not keyring or f"key = {wanted}" not in Path(keyring).read_text()):
        return "couldn't connect to the cluster: (1) Operation not permitted"
    return "" if image in world.fact("images", {}) else f"error opening image {image}: (2) No such file or directory"
