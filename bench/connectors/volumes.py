"""The volumes that the rows attach, and how both libraries are told of them: in os-brick's own keys."""

from __future__ import annotations

from typing import Any

from bench.connectors.kernel import Kernel, Lun, Target
from bench.connectors.library import Call

NEVER = float("inf")
PORT, OTHER_PORT = "500a098280feeba5", "500a098190feeba5"
PCI = "pci0000:00/0000:00:03.0/0000:05:00.3"
MONITORS = ("192.0.2.1", "192.0.2.2")


def wwid(number: int) -> str:
    return f"6001405{number:025x}"


def add_iscsi(kernel: Kernel, number: int, *, late_s: float = 0.0, chap: tuple[str, str] | None = None) -> Target:
    """One target with one LUN; the others of a target are added to its `luns`."""
    portal = f"192.0.2.{1 + number % 200}:3260"
    luns = {1: Lun(wwid(number), late_s)}
    return kernel.add_target(f"iqn.2026-01.org.example:target-{number}", luns, portal=portal, chap=chap)


def iscsi_data(target: Target, lun: int | str = 1, **more: Any) -> dict[str, Any]:
    given = {"target_discovered": False, "target_portal": target.portal, "target_iqn": target.name, "target_lun": lun}
    return {**given, "volume_id": f"{target.name}-{lun}", **more}


def rbd_data(name: str, **more: Any) -> dict[str, Any]:
    given = {"name": name, "hosts": list(MONITORS), "ports": ["6789", "6789"], "auth_username": "cinder"}
    return {**given, "cluster_name": "ceph", "auth_enabled": True, "volume_id": name.replace("/", "-"), **more}


def fc_data(port: str = PORT, **more: Any) -> dict[str, Any]:
    return {"target_wwn": [port], "target_lun": 1, "target_discovered": True, "volume_id": f"fc-{port[:16]}", **more}


def nfs_data(name: str = "") -> dict[str, Any]:
    return {"export": "192.0.2.9:/export", "name": name, "options": "", "volume_id": f"nfs-{name}"}


def connect(type: str, data: dict[str, Any], **more: Any) -> Call:
    return Call("connect", type, data, **more)


def disconnect(type: str, data: dict[str, Any], **more: Any) -> Call:
    return Call("disconnect", type, data, **more)
