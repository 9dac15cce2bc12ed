"""Fibre Channel on every platform, as rows of the table."""

from __future__ import annotations

from typing import Any

from tests.connectors import tools_scsi
from tests.connectors.cases_iscsi import LINK, MAKING_MAP, REMOVING_MAP, asking, deleting, flushing, scanning
from tests.connectors.harness.case import Case
from tests.connectors.harness.world import World
from tests.connectors.tools_scsi import lun, make_host, prepare_scsi

OWN, SECOND_OWN = "21000024ff406cc3", "21000024ff406cc2"
PORT, SECOND_PORT = "500a098280feeba5", "500a098190feeba5"
PCI = "sys/devices/pci0000:00/0000:00:03.0/0000:05:00.{function}/host{host}"
CCW = "sys/devices/css0/0.0.000{function}/0.0.170{function}/host{host}"
ADAPTER = "sys/bus/ccw/drivers/zfcp/0.0.1703"
DS8K_LUN = 0x40104000


def make_port(world: World, host: int, wwn: str, device: str) -> None:
    """One of the host's own."""
    directory = world.path(device.format(host=host, function=host)) / "fc_host" / f"host{host}"
    directory.mkdir(parents=True)
    for name, value in {"port_name": f"0x{wwn}", "port_state": "Online", "node_name": f"0x20{wwn[2:]}"}.items():
        (directory / name).write_text(value)
    world.path("sys/class/fc_host").mkdir(parents=True, exist_ok=True)
    world.path(f"sys/class/fc_host/host{host}").symlink_to(directory)
    make_host(world, host)


def see_port(world: World, host: int, wwn: str) -> None:
    """A port of the storage system, as the host's own port sees it."""
    directory = world.path(f"sys/class/fc_remote_ports/rport-{host}:0-1")
    directory.mkdir(parents=True)
    for name, value in {"port_name": f"0x{wwn}", "scsi_target_id": "2", "port_state": "Online"}.items():
        (directory / name).write_text(value)


def prepare(world: World) -> None:
    prepare_scsi(world, **{PORT: {"1": lun(), "256": lun()}, SECOND_PORT: {"1": lun()}})
    make_port(world, 3, OWN, PCI)
    make_port(world, 4, SECOND_OWN, PCI)
    see_port(world, 3, PORT)
    see_port(world, 4, SECOND_PORT)


def prepare_ppc64(world: World) -> None:
    """An adapter that lists no remote ports."""
    prepare_scsi(world, **{PORT: {"1": lun()}})
    make_port(world, 3, OWN, "sys/devices/vio/30000004/host{host}")
    world.set_fact("hidden", {"3:0:0": PORT})
    world.set_fact("links", {"3:0:0:1": f"fc-0x{PORT}-lun-1"})


def prepare_s390(world: World) -> None:
    # In the kernel's numbers the first level of the LUN is the low half.
    prepare_scsi(world, **{PORT: {"1": lun(), str(0x40004010): lun()}})
    make_port(world, 3, OWN, CCW)
    see_port(world, 3, PORT)
    world.path(ADAPTER).mkdir(parents=True)
    world.path(f"{ADAPTER}/port_rescan").write_text("")


def info(**data: Any) -> Any:
    given = {"targetWwn": PORT, "targetLun": "1", "volumeId": "volume-1"}
    return lambda _world: {"driverVolumeType": "FIBRE_CHANNEL", "data": {**given, **data}}


def writing(attribute: str) -> list[str]:
    return ["tee", f"{{world}}/{ADAPTER}/{attribute}"]


REMOVING = [asking(), asking(), flushing(), deleting()]

CASES = [
    Case(
        "fibre channel",
        info(initiatorTargetMap={OWN.upper(): [PORT]}),
        connect=[scanning(), asking()],
        disconnect=REMOVING,
        path=LINK,
        tools=tools_scsi.TOOLS,
        prepare=prepare,
        looks=["sg_vpd"],
    ),
    Case(
        "fibre channel multipath on aarch64",
        info(targetWwn=[PORT, SECOND_PORT]),
        connect=[scanning(3), scanning(4), asking("sdb"), asking("sdc"), *MAKING_MAP],
        disconnect=[
            *(asking("sdb"), asking("sdb"), asking("sdc")),
            *REMOVING_MAP,
            *(deleting("sdb"), deleting("sdc")),
        ],
        path=LINK,
        tools=tools_scsi.TOOLS,
        prepare=prepare,
        options={"multipath": True, "machine": "aarch64"},
        looks=["sg_vpd"],
        parallel=True,
    ),
    Case(
        "fibre channel on ppc64",
        info(),
        connect=[scanning(), asking()],
        disconnect=REMOVING,
        path=LINK,
        tools=tools_scsi.TOOLS,
        prepare=prepare_ppc64,
        options={"machine": "ppc64le"},
        looks=["sg_vpd"],
    ),
    Case(
        "fibre channel on s390",
        info(targetLun=DS8K_LUN),
        connect=[writing("port_rescan"), writing(f"0x{PORT}/unit_add"), asking()],
        disconnect=[*REMOVING, writing(f"0x{PORT}/unit_remove")],
        path=LINK,
        tools=tools_scsi.TOOLS,
        prepare=prepare_s390,
        options={"machine": "s390x"},
        looks=["sg_vpd"],
        leaves=[f"{ADAPTER}/0x{PORT}"],  # the kernel keeps a remote port that it has seen
    ),
]
