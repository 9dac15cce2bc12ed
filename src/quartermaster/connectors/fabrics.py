"""NVMe controllers and their namespaces, as the kernel shows them in sysfs.

With the kernel's own multipath a namespace has one device for all controllers (nvme0n1), and a hidden one for each way
to it (nvme0c1n1). Only the first has a node.
"""

from __future__ import annotations

import re

import msgspec

from quartermaster.connectors.context import Context

_HIDDEN = re.compile(r"(nvme\d+)c\d+(n\d+)")
_NAMESPACE = re.compile(r"nvme\d+(c\d+)?n\d+")


class Portal(msgspec.Struct, frozen=True):
    host: str
    port: int
    transport: str = "tcp"

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.transport} {host}:{self.port}"


class Controller(msgspec.Struct, frozen=True):
    name: str  # nvme0
    nqn: str
    portal: Portal
    host_nqn: str = ""


def parse_portal(text: str, port: int, transport: str) -> Portal:
    """192.0.2.1, 192.0.2.1:4420, 2001:db8::1 or [2001:db8::1]:4420; `port` where the text has none."""
    host, colon, tail = text.rpartition(":")
    if text.startswith("["):
        host, _, tail = text[1:].partition("]")
        return Portal(host, int(tail[1:]) if tail[1:].isdecimal() else port, transport)
    if colon and ":" not in host and tail.isdecimal():
        return Portal(host, int(tail), transport)
    return Portal(text, port, transport)


def controllers(context: Context) -> list[Controller]:
    """Those of fabrics; a controller in a slot has no portal."""
    found = []
    directory = context.roots.sysfs / "class/nvme"
    for name in context.files.names(directory):
        own = directory / name
        transport = context.files.text(own / "transport")
        address = dict(
            part.strip().partition("=")[::2] for part in context.files.text(own / "address").split(",") if "=" in part
        )
        if transport in ("tcp", "rdma") and address.get("traddr"):
            port = address.get("trsvcid", "")
            portal = Portal(address["traddr"], int(port) if port.isdecimal() else 0, transport)
            nqn, host_nqn = context.files.text(own / "subsysnqn"), context.files.text(own / "hostnqn")
            found.append(Controller(name, nqn, portal, host_nqn))
    return found


def namespaces(context: Context, controller: Controller) -> list[str]:
    """The names of the devices that programs use."""
    names = context.files.names(context.roots.sysfs / "class/nvme" / controller.name)
    return [_HIDDEN.sub(r"\1\2", name) for name in names if _NAMESPACE.fullmatch(name)]


def node_of(context: Context, name: str) -> str:
    node = context.roots.dev / name
    return str(node) if context.files.exists(node) else ""


async def rescan(context: Context, controller: Controller) -> None:
    attribute = context.roots.sysfs / "class/nvme" / controller.name / "rescan_controller"
    await context.write_attribute(attribute, "1", verb=f"look for namespaces on {controller.name}")
