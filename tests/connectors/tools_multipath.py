"""multipath, multipathd and dmsetup: several disks that say they are one become one device."""

from __future__ import annotations

from pathlib import Path

from tests.connectors.harness.tool import Answer
from tests.connectors.harness.world import World

BLOCK = "sys/class/block"
WWIDS = "etc/multipath/wwids"

TOOLS = {name: f"{__name__}:{name}" for name in ("multipath", "multipathd", "dmsetup")}


def multipath(world: World, arguments: list[str], _stdin: str) -> Answer:
    if arguments[0] == "-f":
        return _drop_map(world, arguments[1])
    wwid = _page(world, Path(arguments[1]).name)
    with world.alone():
        file = world.path(WWIDS)
        lines = [line for line in file.read_text().splitlines() if line != f"/3{wwid}/"]
        lines += [f"/3{wwid}/"] if arguments[0] == "-a" else []
        file.write_text("".join(f"{line}\n" for line in lines))
    return 0, f"wwid '3{wwid}' done\n", ""


def multipathd(world: World, arguments: list[str], _stdin: str) -> Answer:
    if arguments[:2] == ["resize", "map"]:
        directory = _map(world, arguments[2])
        if directory is None:
            return 1, "fail\n", ""
        path = next(world.path(BLOCK).glob(f"sd*/holders/{directory.name}"))
        (directory / "size").write_text((path.parents[1] / "size").read_text())
        return 0, "ok\n", ""
    disk = arguments[-1]
    with world.facts() as known:
        if disk in known.get("unknown_to_udev", []):
            known["unknown_to_udev"].remove(disk)
            return 1, "fail\n", ""
    wwid = _page(world, disk)
    if f"/3{wwid}/" not in world.path(WWIDS).read_text():
        return 0, "ok\n", ""
    with world.alone():
        found = _map(world, f"3{wwid}")
        name = found.name if found is not None else "dm-0"
        if found is None:
            size = (world.path(BLOCK) / disk / "size").read_text()
            world.add_device(name, size=size, dm__uuid=f"mpath-3{wwid}", dm__name=f"3{wwid}")
        (world.path(BLOCK) / disk / "holders" / name).mkdir(parents=True, exist_ok=True)
        (world.path(BLOCK) / name / "slaves" / disk).mkdir(parents=True, exist_ok=True)
    return 0, "ok\n", ""


def dmsetup(world: World, arguments: list[str], _stdin: str) -> Answer:
    name = arguments[-1] if arguments[0] == "remove" else arguments[1]
    if arguments[0] == "remove":
        return _drop_map(world, name)
    return (0, "", "") if _map(world, name) is not None else (1, "", f"Device {name} does not exist.")


def _page(world: World, disk: str) -> str:
    return (world.path(BLOCK) / disk / "device/vpd_pg83").read_bytes()[8:].hex()


def _map(world: World, name: str) -> Path | None:
    found = world.path(BLOCK).glob("dm-*")
    return next((path for path in found if (path / "dm/name").read_text() == name), None)


def _drop_map(world: World, name: str) -> Answer:
    with world.alone():
        directory = _map(world, name)
        if directory is None:
            return 1, "", f"{name}: not found"
        for holder in world.path(BLOCK).glob(f"sd*/holders/{directory.name}"):
            holder.rmdir()
        world.drop_device(directory.name)
    return 0, "", ""
