"""ATA over Ethernet. The kernel asks the network which targets there are; a target has a shelf and a slot, no login."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from quartermaster.connectors.context import Context
from quartermaster.connectors.driver import Foreign, Found, Route, Settings
from quartermaster.connectors.errors import ConnectorError, NotAppearingError
from quartermaster.connectors.mistakes import Mistakes
from quartermaster.connectors.model import DriverType
from quartermaster.connectors.nodes import find_node, found_node
from quartermaster.connectors.usage import refuse_if_used
from quartermaster.host.commands import Command
from quartermaster.host.events import Changes
from quartermaster.host.tools import Tool, register

register(
    Tool("aoe-discover", "aoetools", "asks the network for AoE targets"),
    Tool("aoe-revalidate", "aoetools", "reads an AoE target again"),
    Tool("aoe-flush", "aoetools", "forgets an AoE target"),
)

_AGAIN_S = 2.0  # the question and its answers are single frames, which a busy switch may drop


class AoeConnectionData(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    target_shelf: int
    target_lun: int
    volume_id: str = ""

    def __post_init__(self) -> None:
        wrong = Mistakes()
        if not 0 <= self.target_shelf < 0xFFFF:
            wrong.add("targetShelf", "is not between 0 and 65534", "for example 16")
        if not 0 <= self.target_lun < 0xFF:
            wrong.add("targetLun", "is not between 0 and 254", "for example 1")
        wrong.tell()


class AoePlace(msgspec.Struct, frozen=True):
    name: str  # e16.241

    @property
    def thing(self) -> str:
        return f"device {self.name}"


class AoeDriver:
    route = Route(DriverType.AOE, AoeConnectionData, AoePlace)

    def identify(self, data: AoeConnectionData, settings: Settings) -> AoePlace:  # noqa: ARG002
        return AoePlace(f"e{data.target_shelf}.{data.target_lun}")

    async def attach(self, context: Context, data: AoeConnectionData, place: AoePlace) -> Found:  # noqa: ARG002
        async def present() -> bool:
            return bool(_node(context, place))

        async with context.watch(_directory(context)) as changes:
            async with context.joining(place.thing, present=present) as joined:
                if joined.present:
                    # It may have another size than when the kernel met it.
                    await _run(context, "aoe-revalidate", place.name)
            return found_node(context, await _discovered(context, place, changes))

    async def find(self, context: Context, place: AoePlace) -> Found | None:
        return find_node(context, place.thing, lambda: _node(context, place))

    async def away(self, context: Context, place: AoePlace) -> str:
        state = context.files.text(context.roots.sysfs / "class/block" / f"etherd!{place.name}" / "state")
        return f"the kernel says that {place.name} is {state}" if state.startswith("down") else ""

    async def detach(self, context: Context, place: AoePlace, *, force: bool) -> None:
        """Also a target that was here before: every discovery brings all of them, whoever asked."""
        device = _node(context, place)
        if device and not force:
            refuse_if_used(context.volume_id, device, context.roots, verb="disconnect")
        async with context.leaving(place.thing) as leaving:
            if leaving.last and device:
                await _run(context, "aoe-flush", place.name)

    async def extend(self, context: Context, place: AoePlace) -> None:
        await _run(context, "aoe-revalidate", place.name)

    async def foreign(self, context: Context) -> Sequence[Foreign]:
        directory = _directory(context)
        names = [name for name in context.files.names(directory) if name[:1] == "e" and "." in name and "p" not in name]
        return [Foreign(self.route.driver_type, "device", name, str(directory / name)) for name in names]


async def _discovered(context: Context, place: AoePlace, changes: Changes) -> str:
    async def appeared() -> str | None:
        return _node(context, place) or None

    found = _node(context, place)
    while not found:
        await _run(context, "aoe-discover")
        try:
            found = await context.until(appeared, changes, what=f"the AoE target {place.name}", most_s=_AGAIN_S)
        except NotAppearingError as error:
            if context.left_s() <= 0:
                raise NotAppearingError(
                    f"cannot find the AoE target {place.name}: nobody on the network answers for it",
                    hint="look whether the target exports it to this host's interface (aoe-interfaces) and is up",
                ) from error
    return found


async def _run(context: Context, program: str, *arguments: str) -> None:
    if program == "aoe-discover" and not context.files.exists(_directory(context)):
        raise ConnectorError(
            "cannot ask for AoE targets: the kernel's driver is not loaded", hint="load it: modprobe aoe"
        )
    await context.commands.run(Command((program, *arguments), verb=" ".join((program, *arguments))))


def _node(context: Context, place: AoePlace) -> str:
    node = _directory(context) / place.name
    return str(node) if context.files.exists(node) else ""


def _directory(context: Context) -> Path:
    return context.roots.dev / "etherd"


DRIVER = AoeDriver()
