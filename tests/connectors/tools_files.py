"""What looks at devices, makes file systems and encrypts. The fact `contents` says what is on a device that somebody
recognises, the fact `noise` names those that are not blank."""

from __future__ import annotations

import json
from pathlib import Path

from quartermaster.testing.arguments import option
from tests.connectors.harness.tool import Answer
from tests.connectors.harness.world import World

NAMES = {"blkid": "blkid", "wipefs": "wipefs", "dd": "dd", "mkfs.ext4": "make_ext4", "e2label": "label"}
NAMES |= {"cmp": "compare", "fsck.ext4": "dd", "resize2fs": "dd", "cryptsetup": "cryptsetup"}
TOOLS = {program.replace(".", "__"): f"{__name__}:{function}" for program, function in NAMES.items()}
WRONG_KEY, ABSENT = 2, 4


def dd(_world: World, _arguments: list[str], _stdin: str) -> Answer:
    return 0, "", ""


def compare(world: World, arguments: list[str], _stdin: str) -> Answer:
    return int(arguments[-1] in world.fact("noise", [])), "", ""


def blkid(world: World, arguments: list[str], _stdin: str) -> Answer:
    found = world.fact("contents", {}).get(arguments[-1])
    if not found:
        return 2, "", ""
    return 0, "".join(f"{key.upper()}={value}\n" for key, value in found.items() if key != "key"), ""


def wipefs(world: World, arguments: list[str], _stdin: str) -> Answer:
    with world.facts() as known:
        if "--all" in arguments:
            known.get("contents", {}).pop(arguments[-1], None)
            return 0, "", ""
        found = known.get("contents", {}).get(arguments[-1])
    return 0, json.dumps({"signatures": [found]}) if found else "", ""


def make_ext4(world: World, arguments: list[str], _stdin: str) -> Answer:
    put(
        world,
        arguments[-1],
        type="ext4",
        usage="filesystem",
        uuid=option(arguments, "-U"),
        label=option(arguments, "-L"),
    )
    return 0, "", ""


def fails_at_once(_world: World, _arguments: list[str], _stdin: str) -> Answer:
    return 1, "", "the device is too small"


def fails_after_a_block(world: World, arguments: list[str], _stdin: str) -> Answer:
    add_noise(world, arguments[-1])
    return 1, "", "Input/output error"


def label(world: World, arguments: list[str], _stdin: str) -> Answer:
    with world.facts() as known:
        known["contents"][arguments[0]]["label"] = arguments[1]
    return 0, "", ""


def cryptsetup(world: World, arguments: list[str], stdin: str) -> Answer:
    verb, device = arguments[0], arguments[-1]
    if verb == "luksFormat":
        own = {"uuid": option(arguments, "--uuid"), "label": option(arguments, "--label"), "key": stdin}
        put(world, device, type="crypto_LUKS", usage="crypto", **own)
        add_noise(world, device)
    elif verb == "config":
        return label(world, [device, option(arguments, "--label")], "")
    elif verb == "open":
        below = Path(arguments[-2])
        if world.fact("contents", {})[str(below)]["key"] != stdin:
            return WRONG_KEY, "", "No key available with this passphrase."
        world.add_device(f"mapper/{device}", slaves__placeholder="")
        slaves = world.path(f"sys/class/block/mapper!{device}/slaves")
        (slaves / "placeholder").rename(slaves / below.name)
        add_noise(world, str(world.path(f"dev/mapper/{device}")))
    elif verb == "close":
        if not world.path(f"dev/mapper/{device}").exists():
            return ABSENT, "", f"Device {device} is not active."
        world.drop_device(f"mapper/{device}")
    return 0, "", ""


def put(world: World, device: str, **signature: str) -> None:
    with world.facts() as known:
        known.setdefault("contents", {})[device] = signature


def add_noise(world: World, device: str) -> None:
    with world.facts() as known:
        known["noise"] = sorted({*known.get("noise", []), device})
