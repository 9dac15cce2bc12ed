"""iSCSI and iSER, by one path and by several, as rows of the table."""

from __future__ import annotations

from typing import Any

from tests.connectors import tools_iscsi
from tests.connectors.harness.case import CANARY, Case
from tests.connectors.harness.world import World
from tests.connectors.tools_scsi import WWID, lun, prepare_scsi

IQN, SECOND_IQN = "iqn.2026-01.org.example:one", "iqn.2026-01.org.example:two"
PORTAL, SECOND_PORTAL = "192.0.2.1:3260", "192.0.2.2:3260"
LINK = "{world}/dev/disk/by-id/quartermaster-volume-1"
MAP = f"3{WWID}"


def prepare(world: World) -> None:
    world.path(tools_iscsi.SESSIONS).mkdir(parents=True)
    world.path(tools_iscsi.CONNECTIONS).mkdir(parents=True)
    world.path("sys/devices/platform").mkdir(parents=True)
    prepare_scsi(world, **{IQN: {"1": lun(), "2": lun()}, SECOND_IQN: {"4": lun()}})
    world.set_fact("portals", {IQN: [PORTAL], SECOND_IQN: [SECOND_PORTAL]})
    world.set_fact("chap", {IQN: ["alice", CANARY], SECOND_IQN: ["alice", CANARY]})
    world.path("etc/iscsi/iscsid.conf").write_text(
        "# defaults\nnode.startup = automatic\nnode.session.queue_depth = 64\n"
    )


def info(type: str = "ISCSI", **data: Any) -> dict[str, Any]:
    given = {
        "targetDiscovered": False,
        "targetIqn": IQN,
        "targetPortal": PORTAL,
        "targetLun": "1",
        "volumeId": "volume-1",
        "authUsername": "alice",
        "authPassword": CANARY,
    }
    return {"driverVolumeType": type, "data": {**given, **data}}


def logging_in(portal: str = PORTAL, iqn: str = IQN, interface: str = "default") -> list[str]:
    return ["iscsiadm", "-m", "node", "-T", iqn, "-p", portal, "-I", interface, "--login"]


def logging_out(number: int = 1) -> list[str]:
    return ["iscsiadm", "-m", "session", "-r", str(number), "--logout"]


def scanning(host: int = 3) -> list[str]:
    return ["tee", f"{{world}}/sys/class/scsi_host/host{host}/scan"]


def asking(disk: str = "sdb") -> list[str]:
    return ["sg_vpd", "--page=0x83", "--raw", f"{{world}}/dev/{disk}"]


def flushing(disk: str = "sdb") -> list[str]:
    return ["blockdev", "--flushbufs", f"{{world}}/dev/{disk}"]


def deleting(disk: str = "sdb") -> list[str]:
    return ["tee", f"{{world}}/sys/class/block/{disk}/device/delete"]


def discovering(*more: str, mode: str = "discovery") -> list[str]:
    asked = ["iscsiadm", "-m", mode, "-t", "sendtargets", "-p", PORTAL, "-I", "default", "-o", "nonpersistent"]
    return [*asked, *more]


def prepare_discovery(world: World) -> None:
    """Both portals are the target's, and tell of each other to whoever has the password."""
    world.path("etc/iscsi/send_targets").mkdir()
    world.set_fact("portals", {IQN: [PORTAL, SECOND_PORTAL]})
    world.set_fact("discovery_chap", ["asker", CANARY])


MAKING_MAP = [
    ["multipath", "-a", "{world}/dev/sdb"],
    ["multipathd", "add", "path", "sdb"],
    ["multipathd", "add", "path", "sdc"],
]
REMOVING_MAP = [
    ["dmsetup", "message", MAP, "0", "fail_if_no_path"],
    flushing("dm-0"),
    ["multipath", "-f", MAP],
    ["multipath", "-w", "{world}/dev/sdb"],
]
SEVERAL = {
    "target_portals": [PORTAL, SECOND_PORTAL],
    "target_iqns": [IQN, SECOND_IQN],
    "target_luns": [1, 4],
    "wwid": MAP,
}

CASES = [
    Case(
        "iscsi",
        lambda _world: info(),
        connect=[logging_in(), scanning(), asking()],
        disconnect=[asking(), asking(), flushing(), deleting(), logging_out()],
        path=LINK,
        tools=tools_iscsi.TOOLS,
        prepare=prepare,
        looks=["sg_vpd"],
    ),
    Case(
        "iser to read",
        lambda _world: info("iser", accessMode="ro", wwid=f"naa.{WWID}"),
        connect=[
            logging_in(interface="iser"),
            scanning(),
            asking(),
            ["blockdev", "--setro", "{world}/dev/sdb"],
        ],
        disconnect=[asking(), asking(), flushing(), deleting(), logging_out()],
        path=LINK,
        tools=tools_iscsi.TOOLS,
        prepare=prepare,
        looks=["sg_vpd"],
    ),
    Case(
        "iscsi multipath",
        lambda _world: info(**SEVERAL),
        connect=[
            logging_in(),
            logging_in(SECOND_PORTAL, SECOND_IQN),
            scanning(3),
            scanning(4),
            asking("sdb"),
            asking("sdc"),
            *MAKING_MAP,
        ],
        disconnect=[
            *(asking("sdb"), asking("sdb"), asking("sdc")),
            *REMOVING_MAP,
            *(deleting("sdb"), deleting("sdc")),
            *(logging_out(1), logging_out(2)),
        ],
        path=LINK,
        tools=tools_iscsi.TOOLS,
        prepare=prepare,
        options={"multipath": True},
        looks=["sg_vpd"],
        parallel=True,
    ),
    Case(
        "iscsi multipath by discovery",
        lambda _world: info(discoveryAuthUsername="asker", discoveryAuthPassword=CANARY),
        connect=[
            discovering("--discover", mode="discoverydb"),
            *(logging_in(), logging_in(SECOND_PORTAL)),
            *(scanning(3), scanning(4)),
            *(asking("sdb"), asking("sdc")),
            *MAKING_MAP,
        ],
        disconnect=[
            *(asking("sdb"), asking("sdb"), asking("sdc")),
            *REMOVING_MAP,
            *(deleting("sdb"), deleting("sdc")),
            *(logging_out(1), logging_out(2)),
        ],
        path=LINK,
        tools=tools_iscsi.TOOLS,
        prepare=lambda world: (prepare(world), prepare_discovery(world)),
        options={"multipath": True},
        looks=["sg_vpd"],
        parallel=True,
    ),
]
