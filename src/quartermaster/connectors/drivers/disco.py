"""DISCO: a service on this host makes a device of a volume when it is told to, by a packet of 26 bytes."""

from __future__ import annotations

import struct

import msgspec

from quartermaster.connectors.context import Context
from quartermaster.connectors.driver import Found, Route, Settings
from quartermaster.connectors.errors import ConnectorError
from quartermaster.connectors.model import DriverType
from quartermaster.connectors.nodes import find_node, join_node, leave_node
from quartermaster.connectors.servers import Server, ask_tcp

_PACKET = struct.Struct("!HHQ14s")
_INSTANCE = b"DEFAULT-INSTID"
_LENGTH = _PACKET.size - 2  # what follows the length itself
_ATTACH, _DETACH = 1, 2
_DONE = b"\0\0\0\0"


class DiscoConnectionData(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    disco_id: int
    server_ip: str
    server_port: int = 9898
    volume_id: str = ""


class DiscoPlace(msgspec.Struct, frozen=True):
    number: int
    server_ip: str
    server_port: int

    @property
    def thing(self) -> str:
        return f"disco {self.number}"


class DiscoDriver:
    route = Route(
        DriverType.DISCO,
        DiscoConnectionData,
        DiscoPlace,
        aliases={"conf.server_ip": "server_ip", "conf.server_port": "server_port"},
    )

    def identify(self, data: DiscoConnectionData, settings: Settings) -> DiscoPlace:  # noqa: ARG002
        return DiscoPlace(data.disco_id, data.server_ip, data.server_port)

    async def attach(self, context: Context, data: DiscoConnectionData, place: DiscoPlace) -> Found:  # noqa: ARG002
        return await join_node(
            context,
            place.thing,
            lambda: _node(context, place),
            lambda: _tell(context, place, _ATTACH),
            directory=context.roots.dev,
        )

    async def find(self, context: Context, place: DiscoPlace) -> Found | None:
        return find_node(context, place.thing, lambda: _node(context, place))

    async def detach(self, context: Context, place: DiscoPlace, *, force: bool) -> None:
        def look() -> str:
            return _node(context, place)

        await leave_node(
            context,
            place.thing,
            look,
            lambda: _tell(context, place, _DETACH),
            directory=context.roots.dev,
            force=force,
        )


def packet(operation: int, number: int) -> bytes:
    return _PACKET.pack(_LENGTH, operation, number, _INSTANCE)


async def _tell(context: Context, place: DiscoPlace, operation: int) -> None:
    verb = f"{'attach' if operation == _ATTACH else 'detach'} the DISCO volume {place.number}"
    server = Server(place.server_ip, place.server_port)
    answer = await ask_tcp(context, server, packet(operation, place.number), expect=len(_DONE), verb=verb)
    # A volume that has not come after all cannot be detached; then there is nothing to do.
    if answer != _DONE and (operation == _ATTACH or _node(context, place)):
        raise ConnectorError(f"cannot {verb}: {server} answered with {answer.hex()}", hint="look at its log")


def _node(context: Context, place: DiscoPlace) -> str:
    node = context.roots.dev / f"dms{place.number}"
    return str(node) if context.files.exists(node) else ""


DRIVER = DiscoDriver()
