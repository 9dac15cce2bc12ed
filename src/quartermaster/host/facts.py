"""What kind of host this is: for the inventory that agents report, and for `qm doctor`.

All of it is about the namespaces that this process is in: an agent on a virtual host sees that host's name and
addresses.
"""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path
from typing import Any

import msgspec

from quartermaster.host import procfs
from quartermaster.host.commands import Command, Commands
from quartermaster.host.daemons.systemd import systemd_is_running
from quartermaster.host.tools import registered
from quartermaster.support.addresses import is_loopback
from quartermaster.support.errors import ToolMissingError

_OS_RELEASE = Path("/etc/os-release")
_VERB = "list the addresses of this host"
_FOREIGN = "/proc/sys/net/ipv{}/ip_nonlocal_bind"
_ELSEWHERE = ("198.51.100.1", 9)  # of a network that documents use


class Facts(msgspec.Struct, frozen=True):
    name: str
    addresses: tuple[str, ...]  # that others can reach
    boot: str  # changes with every start of the host
    kernel: str
    architecture: str
    distribution: str
    memory: int  # bytes
    cores: int
    root: bool
    systemd: bool
    tools: dict[str, str]  # where each known program is; empty for one that is missing


async def gather_facts(commands: Commands) -> Facts:
    uname = os.uname()
    return Facts(
        name=uname.nodename,
        addresses=await addresses(commands),
        boot=procfs.boot_id(),
        kernel=uname.release,
        architecture=uname.machine,
        distribution=_distribution(),
        memory=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        cores=len(os.sched_getaffinity(0)),
        root=os.geteuid() == 0,
        systemd=systemd_is_running(),
        tools={tool.name: shutil.which(tool.name) or "" for tool in registered()},
    )


async def addresses(commands: Commands) -> tuple[str, ...]:
    """Those of this host alone: not the loopback's, not link-local ones, nor such as are still being checked."""
    try:
        result = await commands.run(Command(("ip", "-json", "address", "show", "up"), verb=_VERB, changes=False))
    except ToolMissingError:
        return routed_address()
    return parse_addresses(result.json(verb=_VERB))


def routed_address() -> tuple[str, ...]:
    """The one address that this host would use to reach others, where no program says more. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_ELSEWHERE)
        except OSError:
            return ()
        return (str(probe.getsockname()[0]),)


def can_listen_on(address: str) -> bool:
    """Whether this host has the address on any of its links, the loopback included. Nothing is sent.

    Where the kernel lets programs listen on addresses that the host has not, that tells nothing.
    """
    version = 6 if ":" in address else 4
    if not is_loopback(address) and _kernel_says_yes(_FOREIGN.format(version)):
        return False
    with socket.socket(socket.AF_INET6 if version == 6 else socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
            probe.connect((address, _ELSEWHERE[1]))  # refused for the broadcast address of a network
        except OSError:
            return False
    return True


def _kernel_says_yes(path: str) -> bool:
    try:
        return Path(path).read_text().strip() == "1"
    except OSError:
        return False


def parse_addresses(links: list[dict[str, Any]]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for link in links:
        for address in link.get("addr_info", ()):
            if address.get("scope") == "global" and not address.get("tentative") and not address.get("dadfailed"):
                found[address["local"]] = None
    return tuple(found)


def parse_os_release(text: str) -> str:
    values = dict(line.partition("=")[::2] for line in text.splitlines())
    return values.get("PRETTY_NAME", values.get("ID", "")).strip("\"'")


def _distribution() -> str:
    try:
        return parse_os_release(_OS_RELEASE.read_text(errors="replace"))
    except OSError:
        return ""
