"""HGST Solutions: a space is a device on every host that its cluster lists as an application host of it."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import suppress
from typing import Any

import msgspec

from quartermaster.connectors.context import Context
from quartermaster.connectors.driver import Found, Route, Settings
from quartermaster.connectors.errors import ConnectorError
from quartermaster.connectors.mistakes import Mistakes
from quartermaster.connectors.model import DriverType
from quartermaster.connectors.nodes import find_node, join_node, leave_node
from quartermaster.host.commands import Command
from quartermaster.host.tools import Tool, register
from quartermaster.support.deadlines import within

register(Tool("vgc-cluster", "of the storage system", "manages spaces of HGST"))

_RESOLVING_S = 5.0


class HgstConnectionData(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    name: str
    no_remove_host: str = ""  # the storage system needs the space on this host itself
    volume_id: str = ""

    def __post_init__(self) -> None:
        wrong = Mistakes()
        if "/" in self.name or self.name.startswith((".", "-")):
            wrong.add("name", "is not the name of a space", 'for example "space10"')
        wrong.tell()


class HgstPlace(msgspec.Struct, frozen=True):
    name: str
    no_remove_host: str = ""

    @property
    def thing(self) -> str:
        return f"space {self.name}"


class HgstDriver:
    route = Route(DriverType.HGST, HgstConnectionData, HgstPlace)

    def identify(self, data: HgstConnectionData, settings: Settings) -> HgstPlace:  # noqa: ARG002
        return HgstPlace(data.name, data.no_remove_host)

    async def attach(self, context: Context, data: HgstConnectionData, place: HgstPlace) -> Found:  # noqa: ARG002
        async def bring() -> None:
            host = await _this_host(context)
            context.note(host=host)
            await _set_hosts(context, place, host, "ADD")

        return await join_node(
            context,
            place.thing,
            lambda: _node(context, place),
            bring,
            directory=context.roots.dev,
            hint="look whether the cluster's service runs on this host",
        )

    async def find(self, context: Context, place: HgstPlace) -> Found | None:
        return find_node(context, place.thing, lambda: _node(context, place))

    async def detach(self, context: Context, place: HgstPlace, *, force: bool) -> None:
        def look() -> str:
            return _node(context, place)

        asked = bool(context.notes.get("host")) or (not context.uses(place.thing) and bool(look()))
        host = (context.notes.get("host") or await _this_host(context)) if asked else ""
        if not host or host == place.no_remove_host:
            async with context.leaving(place.thing):
                return

        async def take() -> None:
            await _set_hosts(context, place, host, "DELETE")

        await leave_node(context, place.thing, look, take, directory=context.roots.dev, force=force)


async def _set_hosts(context: Context, place: HgstPlace, host: str, action: str) -> None:
    argv = ("vgc-cluster", "space-set-apphosts", "-n", place.name, "-A", host, "--action", action)
    verb = f"{'add' if action == 'ADD' else 'take'} {host} {'to' if action == 'ADD' else 'from'} the space {place.name}"
    await context.commands.run(Command(argv, verb=verb, timeout_s=60.0))


async def _this_host(context: Context) -> str:
    """What the cluster calls this host: its name, or the name that leads to one of its addresses."""
    argv = ("vgc-cluster", "domain-list", "-1")
    answer = await context.commands.run(Command(argv, verb="list the hosts of the cluster", changes=False))
    members = [line.strip() for line in answer.text.splitlines() if line.strip()]
    own = context.settings.host or os.uname().nodename
    for member in members:
        if member == own or member.partition(".")[0] == own.partition(".")[0]:
            return member
    for member in members:
        if await _is_ours(member, context.settings.ip):
            return member
    raise ConnectorError(
        f"cannot use spaces on this host: {own} is not in the cluster's domain",
        hint=f"the domain has {', '.join(members) or 'no hosts'}; add this one to it",
    )


async def _is_ours(member: str, ip: str) -> bool:
    try:
        async with within(_RESOLVING_S):
            found = await asyncio.get_running_loop().getaddrinfo(member, None, type=socket.SOCK_DGRAM)
    except (OSError, TimeoutError):
        return False
    return any(address[0] == ip or _binds(family, address) for family, _, _, _, address in found)


def _binds(family: int, address: Any) -> bool:
    """The kernel lets a socket bind to this host's own addresses only."""
    with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.bind(address)
        return True
    return False


def _node(context: Context, place: HgstPlace) -> str:
    node = context.roots.dev / place.name
    return str(node) if context.files.exists(node) else ""


DRIVER = HgstDriver()
