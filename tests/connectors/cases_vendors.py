"""AoE, DRBD and the storage systems with a program or a server of their own, as rows of the table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from quartermaster.connectors.mounting import target_of
from tests.connectors import stubs_vendors
from tests.connectors.harness.case import CANARY, Case
from tests.connectors.harness.world import World

TOOLS = "tests.connectors.tools_vendors"
AOE = {name: f"{TOOLS}:{name.replace('-', '_')}" for name in ("aoe-discover", "aoe-revalidate", "aoe-flush")}
DRBD = {name: f"{TOOLS}:{name}" for name in ("drbdadm", "drbdsetup")}
VZ = {name: f"{TOOLS}:{name}" for name in ("pstorage", "timeout")}
SDC = {"drv_cfg": "tests.connectors.tools_vendors:drv_cfg"}
GUID = "039B8250-2AAA-4B29-AD60-F84BC58F1E4B"

CONFIG = """resource my-precious {
    net { shared-secret "%(shared-secret)s"; }
    on testhost { device /dev/drbd7; disk none; address 192.0.2.7:7789; }
}
"""
SOFS = target_of(Path("{world}/state/mounts"), "sofs", "/etc/sfused.conf", ())
VZ_MOUNT = target_of(Path("{world}/state/mounts"), "vzstorage", "stor1", ())
LINK = "{world}/dev/disk/by-id/quartermaster-volume-1"
SDS_ID = "volume-b2911673-863c-4380-a5f2-e1729eecfe3f"


def info(type: str, **data: Any) -> Any:
    return lambda _world: {"driverVolumeType": type, "data": data}


def targets(*names: str, here: bool = False) -> Any:
    def prepare(world: World) -> None:
        world.path("dev/etherd").mkdir()
        world.set_fact("aoe_targets", list(names))
        for name in names if here else ():
            world.add_device(f"etherd/{name}")

    return prepare


def drbd(*, version: str = "") -> Any:
    def prepare(world: World) -> None:
        world.set_fact("volumes", ["volume-1"])
        if version:
            world.path("proc/drbd").write_text(f"version: {version} (api:1/proto:86-101)\n")

    return prepare


def drbd_info(world: World) -> dict[str, Any]:
    device = str(world.path("dev/drbd7"))
    data = {"config": CONFIG, "name": "my-precious", "device": device, "provider_auth": CANARY}
    return {"driver_volume_type": "drbd", "data": {**data, "volume_id": "volume-1"}}


def drbdadm(verb: str) -> list[str]:
    return ["drbdadm", verb, "-c", "{world}/state/secrets/VOLUME", "my-precious"]


def sds(method: str) -> list[str]:
    return ["sds_cli", "-c", method, "-v", SDS_ID]


def apphosts(action: str) -> list[str]:
    return ["vgc-cluster", "space-set-apphosts", "-n", "space10", "-A", "testhost", "--action", action]


def gateway_info(**data: Any) -> Any:
    def made(world: World) -> dict[str, Any]:
        server = {"serverIP": "127.0.0.1", "serverPort": world.fact("http_port", 1), "verify_certificate": False}
        return {"driverVolumeType": "scaleio", "data": {**server, "volume_id": "volume-1", **data}}

    return made


def disco_info(world: World) -> dict[str, Any]:
    conf = {"server_ip": "127.0.0.1", "server_port": str(world.fact("tcp_port", 1))}
    return {"driverVolumeType": "DISCO", "data": {"discoId": "1234", "conf": conf, "volumeId": "volume-1"}}


def connector_file(world: World) -> None:
    text = f"[powerflex]\nsan_username = admin\nsan_password = {CANARY}\n"
    world.path("etc/connector.conf").write_text(text)


def grouped_info(world: World) -> dict[str, Any]:
    return gateway_info(  # type: ignore[no-any-return]
        scaleIO_volname="volume/one", config_group="powerflex", configFile=str(world.path("etc/connector.conf"))
    )(world)


def mapped(world: World) -> None:
    node = world.add_device("scinia")
    world.path(f"dev/disk/by-id/emc-vol-{stubs_vendors.CLUSTER}-3bd1f78800000019").symlink_to(node)


CASES = [
    Case(
        "aoe",
        info("AOE", targetShelf="16", targetLun=241, volumeId="volume-1"),
        connect=[["aoe-discover"]],
        disconnect=[["aoe-flush", "e16.241"]],
        path=LINK,
        tools=AOE,
        prepare=targets("e16.241"),
    ),
    Case(
        "aoe that is here",
        info("AOE", target_shelf=16, target_lun=241, volume_id="volume-1"),
        connect=[["aoe-revalidate", "e16.241"]],
        disconnect=[["aoe-flush", "e16.241"]],
        path=LINK,
        tools=AOE,
        prepare=targets("e16.241", here=True),
        # Every discovery brings all targets, so one that was here is not somebody's.
        leaves=["dev/etherd", "sys/class/block/etherd!e16.241"],
    ),
    Case(
        "drbd",
        drbd_info,
        connect=[drbdadm("adjust")],
        disconnect=[drbdadm("down")],
        path=LINK,
        tools=DRBD,
        prepare=drbd(),
    ),
    Case(
        "drbd of the kernel's tree",
        drbd_info,
        connect=[drbdadm("adjust"), drbdadm("primary")],
        disconnect=[drbdadm("down")],
        path=LINK,
        tools=DRBD,
        prepare=drbd(version="8.4.11"),
    ),
    Case(
        "huaweisdshypervisor",
        info("HUAWEISDSHYPERVISOR", volumeId=SDS_ID),
        connect=[sds("attach"), sds("querydev")],
        disconnect=[sds("detach")],
        path=f"{{world}}/dev/disk/by-id/quartermaster-{SDS_ID}",
        tools={"sds_cli": f"{TOOLS}:sds_cli"},
    ),
    Case(
        "hgst",
        info("HGST", name="space10", noRemoveHost="otherhost", volumeId="volume-1"),
        connect=[["vgc-cluster", "domain-list", "-1"], apphosts("ADD")],
        disconnect=[apphosts("DELETE")],
        path=LINK,
        tools={"vgc-cluster": f"{TOOLS}:vgc_cluster"},
    ),
    Case(
        "hgst on the storage host",
        info("hgst", name="space10", noremovehost="testhost", volume_id="volume-1"),
        connect=[["vgc-cluster", "domain-list", "-1"], apphosts("ADD")],
        disconnect=[],
        path=LINK,
        tools={"vgc-cluster": f"{TOOLS}:vgc_cluster"},
        leaves=["dev/space10", "sys/class/block/space10"],  # the storage system wants it here
    ),
    Case(
        "disco",
        disco_info,
        connect=[],
        disconnect=[],
        path=LINK,
        stub=stubs_vendors.disco,
    ),
    Case(
        "scaleio",
        gateway_info(
            scaleIO_volume_id="3bd1f78800000019",
            scaleIO_volname="volume/one",
            hostIP=None,
            serverUsername="admin",
            serverPassword=CANARY,
            serverToken=f"old-{CANARY}",
            iopsLimit=1000,
            bandwidthLimit=2048,
        ),
        connect=[["drv_cfg", "--query_guid"]],
        disconnect=[],
        path=LINK,
        tools=SDC,
        stub=stubs_vendors.gateway,
    ),
    Case(
        "scaleio by name",
        grouped_info,
        connect=[["drv_cfg", "--query_guid"]],
        disconnect=[],
        path=LINK,
        tools=SDC,
        prepare=connector_file,
        stub=stubs_vendors.gateway,
    ),
    Case(
        "scaleio that is mapped",
        info("SCALEIO", scaleIO_volume_id="3bd1f78800000019", sdc_guid=GUID, volume_id="volume-1"),
        connect=[],
        disconnect=[],
        path=LINK,
        prepare=mapped,
    ),
    Case(
        "scality",
        info("SCALITY", export="cinder", name="volume-1"),
        connect=[
            ["mount", "-t", "sofs", "--source", "/etc/sfused.conf", "--target", SOFS],
            ["stat", "--dereference", "--format=%F", f"{SOFS}/cinder/00/volume-1"],
        ],
        disconnect=[["umount", "--no-canonicalize", SOFS]],
        path=f"{SOFS}/cinder/00/volume-1",
        prepare=lambda world: world.set_fact("files", {"/etc/sfused.conf": ["cinder/00/volume-1"]}),
    ),
    Case(
        "vzstorage",
        info("VZSTORAGE", export=f"10.0.0.1,10.0.0.2:/stor1:{CANARY}", name="volume-1"),
        connect=[
            ["pstorage", "-c", "stor1", "auth-node", "-P"],
            ["timeout", "60", "pstorage-mount", "-c", "stor1", VZ_MOUNT],
            ["stat", "--dereference", "--format=%F", f"{VZ_MOUNT}/volume-1"],
        ],
        disconnect=[["umount", "--no-canonicalize", VZ_MOUNT]],
        path=f"{VZ_MOUNT}/volume-1",
        tools=VZ,
        prepare=lambda world: (
            world.set_fact("files", {"pstorage://stor1": ["volume-1"]}),
            world.set_fact("cluster_password", CANARY),
            world.set_fact("needs_servers", True),
        ),
    ),
    Case(
        "vzstorage that this host knows",
        info("VZSTORAGE", export="stor1"),
        connect=[["timeout", "60", "pstorage-mount", "-c", "stor1", VZ_MOUNT]],
        disconnect=[["umount", "--no-canonicalize", VZ_MOUNT]],
        path=VZ_MOUNT,
        tools=VZ,
    ),
]
