"""Huawei SDS hypervisor: its command line attaches a volume and says which device it became.

The program always exits with 0; what happened is `ret_code` among the lines that it prints.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from quartermaster.connectors.context import Context
from quartermaster.connectors.driver import Found, Route, Settings
from quartermaster.connectors.errors import ConnectorError
from quartermaster.connectors.model import DriverType
from quartermaster.connectors.nodes import find_node, found_node, leave_node, run_installed
from quartermaster.host.commands import Command
from quartermaster.host.tools import Tool, register

register(Tool("sds_cli", "of the storage system", "attaches volumes of Huawei's SDS hypervisor"))

_PLACES = ("/usr/local/bin/sds/sds_cli",)
_ATTACHED = (0, 50151401, 50151405)  # done, was attached before, is attached by another of its services
_DETACHED = (0, 50151209, 50155007)  # done, the service knows nothing of it, was not attached here


class HuaweiConnectionData(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    volume_id: str


class HuaweiPlace(msgspec.Struct, frozen=True):
    volume: str

    @property
    def thing(self) -> str:
        return f"sds {self.volume}"


class HuaweiDriver:
    route = Route(DriverType.HUAWEISDSHYPERVISOR, HuaweiConnectionData, HuaweiPlace)

    def identify(self, data: HuaweiConnectionData, settings: Settings) -> HuaweiPlace:  # noqa: ARG002
        return HuaweiPlace(data.volume_id)

    async def attach(self, context: Context, data: HuaweiConnectionData, place: HuaweiPlace) -> Found:  # noqa: ARG002
        async def present() -> bool:
            return False  # attaching what is attached is a success

        async def appeared() -> str | None:
            return _node(context) or None

        async with context.watch(context.roots.dev) as changes:
            async with context.joining(place.thing, present=present):
                _require(await _ask(context, "attach", place), _ATTACHED, f"attach the volume {place.volume}")
            answer = await _ask(context, "querydev", place)
            _require(answer, (0,), f"find the device of the volume {place.volume}")
            context.note(device=answer.get("dev_addr", ""))
            return found_node(context, await context.until(appeared, changes, what=f"the device of {place.volume}"))

    async def find(self, context: Context, place: HuaweiPlace) -> Found | None:
        return find_node(context, place.thing, lambda: _node(context))

    async def detach(self, context: Context, place: HuaweiPlace, *, force: bool) -> None:
        if not context.uses(place.thing):
            # Without a record only the program knows whether it is here, and as what.
            answer = await _ask(context, "querydev", place)
            context.note(device=answer.get("dev_addr", "") if _code(answer) == 0 else "")

        async def take() -> None:
            _require(await _ask(context, "detach", place), _DETACHED, f"detach the volume {place.volume}")

        await leave_node(context, place.thing, lambda: _node(context), take, directory=context.roots.dev, force=force)
        context.note(device="")


def parse_answer(text: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in text.splitlines())
    return {key.strip(): value.strip() for key, equals, value in pairs if equals}


async def _ask(context: Context, method: str, place: HuaweiPlace) -> dict[str, str]:
    argv = ("sds_cli", "-c", method, "-v", place.volume)
    command = Command(argv, verb=f"{method} the volume {place.volume}", timeout_s=60.0, changes=method != "querydev")
    return parse_answer((await run_installed(context, command, _PLACES)).text)


def _code(answer: dict[str, str]) -> int | None:
    text = answer.get("ret_code", "")
    return int(text) if text.isdecimal() else None


def _require(answer: dict[str, str], codes: tuple[int, ...], verb: str) -> None:
    if _code(answer) not in codes:
        why = answer.get("ret_desc", "").strip('"')
        said = f"code {answer.get('ret_code', 'missing')}" + (f" ({why})" if why else "")
        raise ConnectorError(f"cannot {verb}: sds_cli answered with {said}", hint="look the code up in its manual")


def _node(context: Context) -> str:
    device = context.notes.get("device", "")
    return device if device and context.files.exists(Path(device)) else ""


DRIVER = HuaweiDriver()
