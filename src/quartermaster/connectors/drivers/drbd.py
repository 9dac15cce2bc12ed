"""DRBD: a device whose other copies are on other hosts. The storage system sends the whole configuration of it.

The resource file holds the shared secret, so only root can read it; it stays as long as the volume does, because
`drbdadm` wants it again to take the resource down. `drbdadm` itself hands the secret to `drbdsetup` as an argument:
the one place where a secret of a volume is in an argument list, and not ours to change.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from quartermaster.connectors.context import Context
from quartermaster.connectors.driver import Foreign, Found, Route, Settings
from quartermaster.connectors.mistakes import Mistakes
from quartermaster.connectors.model import DriverType
from quartermaster.connectors.names import file_name
from quartermaster.connectors.nodes import find_node, join_node, leave_node
from quartermaster.connectors.secret import Secret
from quartermaster.host.commands import Command
from quartermaster.host.tools import Tool, register
from quartermaster.support.errors import CommandError

register(
    Tool("drbdadm", "drbd-utils", "configures DRBD resources"),
    Tool("drbdsetup", "drbd-utils", "takes DRBD resources down without their configuration"),
)

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")
# What the tools say where the resource, or DRBD itself, is not in the kernel.
_UNKNOWN = re.compile(r"unknown resource|no such resource|not known|generic netlink family", re.IGNORECASE)
_MARK = re.compile(r"%(\(shared-secret\)s|%)")


class DrbdConnectionData(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """`config` has `%(shared-secret)s` where the secret belongs, and `%%` for a percent sign."""

    config: str
    name: str
    device: str
    provider_auth: Secret = Secret()
    volume_id: str = ""

    def __post_init__(self) -> None:
        wrong = Mistakes()
        if not _NAME.fullmatch(self.name):
            wrong.add("name", "is not the name of a DRBD resource", 'for example "r0"')
        if re.search(r'["\\\n]', self.provider_auth.reveal()):
            wrong.add("providerAuth", "has a quotation mark, a backslash or a line break in it", "choose another")
        wrong.tell()


class DrbdPlace(msgspec.Struct, frozen=True):
    name: str
    device: str

    @property
    def thing(self) -> str:
        return f"resource {self.name}"


class DrbdDriver:
    route = Route(DriverType.DRBD, DrbdConnectionData, DrbdPlace, aliases={"shared_secret": "provider_auth"})

    def identify(self, data: DrbdConnectionData, settings: Settings) -> DrbdPlace:  # noqa: ARG002
        return DrbdPlace(data.name, data.device)

    async def attach(self, context: Context, data: DrbdConnectionData, place: DrbdPlace) -> Found:
        async def bring() -> None:
            context.files.write(_file(context), filled(data).encode())
            await _drbdadm(context, "adjust", place)
            if _needs_promotion(context):
                await _drbdadm(context, "primary", place)

        return await join_node(
            context,
            place.thing,
            lambda: _node(context, place),
            bring,
            directory=context.roots.dev,
            hint=f"look at it: drbdadm status {place.name}",
            # A device has a number and no name: only drbdadm knows whether it is this resource's.
            always=True,
        )

    async def find(self, context: Context, place: DrbdPlace) -> Found | None:
        return find_node(context, place.thing, lambda: _node(context, place))

    async def detach(self, context: Context, place: DrbdPlace, *, force: bool) -> None:
        async def take() -> None:
            try:
                await _down(context, place)
            except CommandError as error:
                if _node(context, place) or not _UNKNOWN.search(error.stderr):
                    raise

        await leave_node(
            context, place.thing, lambda: _node(context, place), take, directory=context.roots.dev, force=force
        )
        context.files.remove(_file(context))

    async def foreign(self, context: Context) -> Sequence[Foreign]:
        names = [name for name in context.files.names(context.roots.sysfs / "class/block") if name.startswith("drbd")]
        return [Foreign(self.route.driver_type, "device", name, str(context.roots.dev / name)) for name in names]


def filled(data: DrbdConnectionData) -> str:
    """The resource file."""
    return _MARK.sub(lambda mark: "%" if mark[1] == "%" else data.provider_auth.reveal(), data.config)


async def _down(context: Context, place: DrbdPlace) -> None:
    if context.files.exists(_file(context)):
        await _drbdadm(context, "down", place)
    elif _node(context, place):
        argv = ("drbdsetup", "down", place.name)
        await context.commands.run(Command(argv, verb=f"take the DRBD resource {place.name} down"))


async def _drbdadm(context: Context, verb: str, place: DrbdPlace) -> None:
    argv = ("drbdadm", verb, "-c", str(_file(context)), place.name)
    await context.commands.run(Command(argv, verb=f"{verb} the DRBD resource {place.name}", timeout_s=60.0))


def _needs_promotion(context: Context) -> bool:
    """DRBD 9 makes a device primary when it is opened; 8.4, which is in the kernel's own tree, does not."""
    return context.files.text(context.roots.proc / "drbd").startswith("version: 8.")


def _node(context: Context, place: DrbdPlace) -> str:
    return place.device if context.files.exists(Path(place.device)) else ""


def _file(context: Context) -> Path:
    return context.directory / "secrets" / file_name(context.volume_id)


DRIVER = DrbdDriver()
