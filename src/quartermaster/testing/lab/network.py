"""The network of a lab: a switch in a namespace of its own, a cable to each host, and one to this machine.

The cable to the machine gives it an address among the hosts, so that a terminal or a test reaches them as it reaches
real ones. Hosts have no way further out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from ipaddress import IPv4Network, ip_network
from typing import Any

from quartermaster.host.commands import Command, Commands
from quartermaster.support.errors import CommandError, InvalidError
from quartermaster.testing.lab.state import HostState, LabError, LabState, mac_address

_BRIDGE = "br0"
_PREFIX = 24
# Private addresses first; then those for benchmarks, for machines that have a route to all private ones.
_POOLS = (IPv4Network("10.200.0.0/16"), IPv4Network("198.18.0.0/15"))


def candidates() -> Iterator[IPv4Network]:
    for pool in _POOLS:
        yield from pool.subnets(new_prefix=_PREFIX)


def choose_subnet(taken: Sequence[IPv4Network], wanted: str = "") -> str:
    """The first that meets none of those that are taken."""
    if not wanted:
        for subnet in candidates():
            if not any(subnet.overlaps(other) for other in taken):
                return str(subnet)
        raise LabError("cannot find a free subnet: this machine has routes to all that a lab would use")
    try:
        subnet = IPv4Network(wanted)
    except ValueError as error:
        raise InvalidError(f'cannot use "{wanted}" as a subnet: {error}') from error
    if subnet.prefixlen != _PREFIX:
        raise InvalidError(f'cannot use "{wanted}" as a subnet: a lab has a /{_PREFIX}')
    for other in taken:
        if subnet.overlaps(other):
            raise LabError(f"cannot use {subnet} as a subnet: this machine has a route to {other}")
    return str(subnet)


def parse_routes(routes: Sequence[dict[str, Any]]) -> list[IPv4Network]:
    """Where the machine sends something already; the default route is no obstacle."""
    found = []
    for route in routes:
        destination = route.get("dst", "default")
        if destination != "default":
            network = ip_network(destination, strict=False)
            if isinstance(network, IPv4Network):
                found.append(network)
    return found


async def taken_subnets(commands: Commands) -> list[IPv4Network]:
    verb = "list the routes of this machine"
    argv = ("ip", "-json", "-4", "route", "show", "table", "all")
    result = await commands.run(Command(argv, verb=verb, changes=False))
    return parse_routes(result.json(verb=verb))


async def lay_switch(commands: Commands, in_hub: Commands, state: LabState, hub_pid: int) -> None:
    """The switch, and the machine's own cable to it."""
    switch = ["link set lo up", f"link add {_BRIDGE} type bridge", f"link set {_BRIDGE} up"]
    await _batch(in_hub, switch, "make a switch")
    cable = [
        f"link add {state.link} type veth peer name machine netns {hub_pid}",
        f"address add {state.machine_address}/{_PREFIX} dev {state.link}",
        f"link set {state.link} up",
    ]
    await _batch(commands, cable, f"connect this machine to the lab {state.name}")
    await _batch(in_hub, [f"link set machine master {_BRIDGE} up"], "connect this machine to the switch")


async def lay_cable(in_hub: Commands, on_host: Commands, state: LabState, host: HostState, host_pid: int) -> None:
    cable = cable_name(host)
    await pull_cable(in_hub, host)
    lines = [
        f"link add {cable} type veth peer name eth0 address {mac_address(state, host)} netns {host_pid}",
        f"link set {cable} master {_BRIDGE}",
        f"link set {cable} {'down' if host.cut else 'up'}",
    ]
    await _batch(in_hub, lines, f"connect {host.name}")
    lines = ["link set lo up", f"address add {state.address(host)}/{_PREFIX} dev eth0", "link set eth0 up"]
    await _batch(on_host, lines, f"give {host.name} its address")


async def pull_cable(in_hub: Commands, host: HostState) -> None:
    """It may be gone: the kernel takes it away with the host, only not always at once."""
    argv = ("ip", "link", "delete", cable_name(host))
    await in_hub.run(Command(argv, verb=f"disconnect {host.name}", accept=(0, 1, 2)))


async def set_cable(in_hub: Commands, host: HostState, *, up: bool) -> None:
    verb = f"{'heal' if up else 'cut'} the cable of {host.name}"
    await in_hub.run(Command(("ip", "link", "set", cable_name(host), "up" if up else "down"), verb=verb))


async def remove_machine_cable(commands: Commands, state: LabState) -> None:
    command = Command(("ip", "link", "delete", state.link), verb=f"disconnect from the lab {state.name}")
    try:
        await commands.run(command)
    except CommandError as error:
        # The second answer is that of a moment in which the kernel takes it away by itself.
        if "Cannot find device" not in error.stderr and "No such device" not in error.stderr:
            raise


def cable_name(host: HostState) -> str:
    return f"v{host.number}"


async def _batch(commands: Commands, lines: Sequence[str], verb: str) -> None:
    await commands.run(Command(("ip", "-batch", "-"), verb=verb, stdin="".join(f"{line}\n" for line in lines).encode()))
