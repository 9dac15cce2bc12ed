"""NVMe over fabrics, as rows of the table."""

from __future__ import annotations

from typing import Any

from tests.connectors.harness.case import CANARY, Case
from tests.connectors.harness.world import World

NQN = "nqn.2014-08.org.example:volumes"
UUIDS = {"1": "11111111-aaaa-4bbb-8ccc-000000000001", "10": "11111111-aaaa-4bbb-8ccc-000000000010"}
ONE, TWO = "192.0.2.1:4420", "192.0.2.2:4420"
TOOLS = {"nvme": "tests.connectors.tools_nvmeof:nvme"}
LINK = "{world}/dev/disk/by-id/quartermaster-volume-1"


def subsystem(*portals: str, secret: str = "", namespaces: dict[str, str] | None = None) -> Any:
    def prepare(world: World) -> None:
        world.path("sys/class/nvme").mkdir(parents=True)
        world.path("etc/nvme").mkdir()
        world.path("etc/nvme/hostnqn").write_text("nqn.2014-08.org.nvmexpress:uuid:host\n")
        there = {"portals": list(portals), "namespaces": namespaces or UUIDS, "secret": secret}
        world.set_fact("subsystems", {NQN: there})
        prefix = "tests.connectors.tools_nvmeof"
        world.set_fact("attributes", {"nvme-fabrics": f"{prefix}:fabrics", "rescan_controller": f"{prefix}:rescan"})
        if secret:
            world.path("dev/nvme-fabrics").write_text("")

    return prepare


def connecting(portal: str) -> list[str]:
    host, _, port = portal.partition(":")
    return ["nvme", "connect", "-t", "tcp", "-n", NQN, "-a", host, "-s", port]


def info(**data: Any) -> Any:
    portals = [["192.0.2.1", "4420", "tcp"], ["192.0.2.2", 4420, "tcp"]]
    whole = {"targetNqn": NQN, "portals": portals, "volumeId": "volume-1", **data}
    return lambda _world: {"driverVolumeType": "NVMEOF", "data": whole}


CASES = [
    Case(
        "nvmeof",
        info(volUuid=UUIDS["10"]),
        connect=[connecting(ONE)],
        disconnect=[["nvme", "disconnect", "-d", "nvme0"]],
        path=LINK,
        tools=TOOLS,
        prepare=subsystem(ONE, TWO),
    ),
    Case(
        "nvmeof whose first portal is down",
        info(nsid="10"),
        connect=[connecting(ONE), connecting(TWO)],
        disconnect=[["nvme", "disconnect", "-d", "nvme0"]],
        path=LINK,
        tools=TOOLS,
        prepare=subsystem(TWO),
    ),
    Case(
        "nvmeof over two portals",
        info(volume_nguid=UUIDS["10"].replace("-", "")),
        connect=[connecting(ONE), connecting(TWO)],
        disconnect=[["nvme", "disconnect", "-d", "nvme0"], ["nvme", "disconnect", "-d", "nvme1"]],
        path=LINK,
        tools=TOOLS,
        prepare=subsystem(ONE, TWO),
        options={"multipath": True},
    ),
    Case(
        "nvmeof with secrets",
        info(volUuid=UUIDS["1"], dhchapSecret=f"DHHC-1:00:{CANARY}:", dhchapCtrlSecret=f"DHHC-1:01:{CANARY}:"),
        connect=[["tee", "{world}/dev/nvme-fabrics"]],
        disconnect=[["nvme", "disconnect", "-d", "nvme0"]],
        path=LINK,
        tools=TOOLS,
        prepare=subsystem(ONE, TWO, secret=f"DHHC-1:00:{CANARY}:"),
    ),
]
