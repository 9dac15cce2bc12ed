"""The programs of AoE, DRBD, HGST, Huawei and Virtuozzo, as far as connecting needs them."""

from __future__ import annotations

import re
from pathlib import Path

from quartermaster.testing.arguments import option
from tests.connectors.harness.tool import Answer
from tests.connectors.harness.world import World

_SDS_DEVICE = "vdsds"


def aoe_discover(world: World, _arguments: list[str], _stdin: str) -> Answer:
    """Every target that the network has appears."""
    for name in world.fact("aoe_targets", []):
        if not world.path(f"dev/etherd/{name}").exists():
            world.add_device(f"etherd/{name}")
    return 0, "", ""


def aoe_revalidate(world: World, arguments: list[str], _stdin: str) -> Answer:
    name = arguments[0]
    if not world.path(f"dev/etherd/{name}").exists():
        return 1, "", f"aoe-revalidate: {name}: no such device"
    return 0, "", ""


def aoe_flush(world: World, arguments: list[str], _stdin: str) -> Answer:
    world.drop_device(f"etherd/{arguments[0]}")
    return 0, "", ""


def drbdadm(world: World, arguments: list[str], _stdin: str) -> Answer:
    verb, file = arguments[0], Path(option(arguments, "-c"))
    if not file.is_file() or file.stat().st_mode & 0o077:
        return 10, "", f"drbdadm: cannot use {file}"
    text = file.read_text()
    device = re.search(r"device /\S*/(\w+);", text)
    if f"resource {arguments[-1]} " not in text or device is None:
        return 10, "", f"'{arguments[-1]}' not defined in your config (for this host)."
    if verb == "adjust":
        if world.path(f"dev/{device[1]}").exists() and arguments[-1] not in world.fact("drbd", {}):
            return 10, "", f"{arguments[-1]}: Failure: (161) Minor or volume exists already (delete it first)"
        with world.facts() as known:
            secrets = known.setdefault("drbd", {})[arguments[-1]] = re.findall(r'shared-secret "(.*)"', text)
        for secret in secrets:
            world.log({"started": ["drbdsetup", "net-options", f"--shared-secret={secret}"]})
        world.add_device(device[1])
    elif verb == "down":
        return drbdsetup(world, ["down", arguments[-1]], "")
    return 0, "", ""


def drbdsetup(world: World, arguments: list[str], _stdin: str) -> Answer:
    with world.facts() as known:
        there = known.get("drbd", {}).pop(arguments[1], None)
        if not known.get("drbd", True):
            del known["drbd"]
    if there is None:
        return 10, "", f"{arguments[1]}: Failure: (158) Unknown resource"
    world.drop_device("drbd7")
    return 0, "", ""


def vgc_cluster(world: World, arguments: list[str], _stdin: str) -> Answer:
    if arguments[:2] == ["domain-list", "-1"]:
        return 0, "".join(f"{host}\n" for host in world.fact("domain", ["otherhost", "testhost"])), ""
    space, host, action = option(arguments, "-n"), option(arguments, "-A"), option(arguments, "--action")
    if host not in world.fact("domain", ["otherhost", "testhost"]):
        return 1, "", f"Host {host} is not in the domain"
    if action == "ADD":
        world.add_device(space)
    else:
        world.drop_device(space)
    return 0, "", ""


def sds_cli(world: World, arguments: list[str], _stdin: str) -> Answer:
    """It exits with 0 whatever happens."""
    method = option(arguments, "-c")
    node = world.path(f"dev/{_SDS_DEVICE}")
    code = world.fact("sds_code", {}).get(method, 0)
    if code:
        return 0, f'ret_code={code}\nret_desc="told to fail"\n', ""
    if method == "querydev":
        return 0, f"ret_code=0\ndev_addr={node}\n" if node.exists() else "ret_code=50155007\n", ""
    if method == "attach":
        code = 50151401 if node.exists() else 0
        world.add_device(_SDS_DEVICE)
    else:
        code = 0 if node.exists() else 50155007
        world.drop_device(_SDS_DEVICE)
    return 0, f"ret_code={code}\n", ""


def pstorage(world: World, arguments: list[str], stdin: str) -> Answer:
    wanted = world.fact("cluster_password")
    if wanted is not None and stdin != wanted:
        return 1, "", "authentication failed"
    return 0, "", ""


def timeout(world: World, arguments: list[str], _stdin: str) -> Answer:
    """Starts pstorage-mount, which is not on the PATH of this host: here it is what follows."""
    if world.fact("no_client"):
        return 127, "", f"timeout: failed to run command '{arguments[1]}': No such file or directory"
    cluster, target = option(arguments, "-c"), arguments[-1]
    servers = world.path(f"etc/pstorage/clusters/{cluster}/bs_list")
    if world.fact("needs_servers") and not servers.exists():
        return 1, "", "no servers known"
    world.add_mount(f"pstorage://{cluster}", target, "fuse.pstorage")
    return 0, "", ""


def drv_cfg(world: World, arguments: list[str], _stdin: str) -> Answer:
    if arguments == ["--rescan"]:
        size = world.fact("grown")
        if size:
            (world.path("sys/class/block/scinia") / "size").write_text(str(size))
        return 0, "Calling kernel module to refresh MDM configuration information\n", ""
    return 0, world.fact("guid", "039B8250-2AAA-4B29-AD60-F84BC58F1E4B\n"), ""
