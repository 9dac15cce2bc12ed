"""The kernel's NVMe over fabrics and its program. What there is to connect to is the fact `subsystems`:
NQN → {"portals": ["192.0.2.1:4420"], "namespaces": {"1": uuid}, "secret": what the host has to know}.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from quartermaster.testing.arguments import option
from tests.connectors.harness.tool import Answer
from tests.connectors.harness.world import World

_BLOCK = 512


def nvme(world: World, arguments: list[str], _stdin: str) -> Answer:
    if arguments[0] == "connect":
        options = {"nqn": "-n", "transport": "-t", "traddr": "-a", "trsvcid": "-s", "hostnqn": "-q"}
        problem = connect(world, {key: option(arguments, name) for key, name in options.items()})
        return (1, "", f"Failed to write to /dev/nvme-fabrics: {problem}") if problem else (0, "device: nvme\n", "")
    if arguments[0] == "id-ns":
        sectors = world.fact("grown", 20480)
        return 0, json.dumps({"nsze": sectors, "flbas": 0, "lbafs": [{"ds": 9}]}), ""
    disconnect(world, option(arguments, "-d"))
    return 0, "", ""


def nvme_without_the_kernel(_world: World, _arguments: list[str], _stdin: str) -> Answer:
    return 1, "", "Failed to scan topology: No such file or directory"


def fabrics(world: World, _path: Path, text: str) -> None:
    """What is written to /dev/nvme-fabrics. `tee` has no way to fail here; the controller is missing then."""
    connect(world, dict(part.partition("=")[::2] for part in text.split(",")))


def rescan(world: World, path: Path, _text: str) -> None:
    own = path.parent
    subsystem = world.fact("subsystems")[(own / "subsysnqn").read_text()]
    show(world, own, subsystem)
    for name in world.path("sys/class/block").glob("nvme*n*"):
        (name / "size").write_text(str(world.fact("grown", 20480)))


def connect(world: World, options: dict[str, str]) -> str:
    """Empty, or what the kernel says."""
    subsystem = world.fact("subsystems", {}).get(options["nqn"])
    if subsystem is None or f"{options['traddr']}:{options['trsvcid']}" not in subsystem["portals"]:
        return "Connection refused"
    if subsystem.get("secret", "") != options.get("dhchap_secret", ""):
        return "Operation not permitted"
    directory = world.path("sys/class/nvme")
    number = 0
    while (directory / f"nvme{number}").exists():
        number += 1
    own = directory / f"nvme{number}"
    own.mkdir()
    (own / "transport").write_text(options["transport"])
    (own / "address").write_text(f"traddr={options['traddr']},trsvcid={options['trsvcid']},src_addr=192.0.2.7")
    (own / "hostnqn").write_text(options.get("hostnqn", ""))
    (own / "rescan_controller").write_text("")
    (own / "state").write_text("live")
    (own / "subsysnqn").write_text(options["nqn"])
    show(world, own, subsystem)
    return ""


def show(world: World, own: Path, subsystem: dict[str, Any]) -> None:
    """Each namespace: one device for all controllers of the subsystem, a hidden one for this."""
    nqn, number = (own / "subsysnqn").read_text(), own.name.removeprefix("nvme")
    siblings = [each for each in sorted(own.parent.iterdir()) if (each / "subsysnqn").read_text() == nqn]
    heads = [child.name for each in siblings for child in each.glob("nvme*n*")]
    first = heads[0].partition("c")[0].removeprefix("nvme") if heads else number
    for nsid, uuid in subsystem["namespaces"].items():
        (own / f"nvme{first}c{number}n{nsid}").mkdir(exist_ok=True)
        if not world.path(f"dev/nvme{first}n{nsid}").exists():
            world.add_device(f"nvme{first}n{nsid}", uuid=uuid, nsid=nsid, nguid=uuid)


def disconnect(world: World, name: str) -> None:
    own = world.path("sys/class/nvme") / name
    hidden = [child.name for child in own.glob("nvme*n*")]
    shutil.rmtree(own, ignore_errors=True)
    for child in hidden:
        first, _, rest = child.partition("c")
        nsid = rest.partition("n")[2]
        if not list(own.parent.glob(f"*/{first}c*n{nsid}")):
            world.drop_device(f"{first}n{nsid}")
