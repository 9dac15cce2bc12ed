"""Volumes that are one device node each: a request makes the node appear, another makes it go.

Such a node says little about itself, and at times stays after the volume was given back. That a volume is attached
therefore follows from the node together with the claim in its record, as for a thing that several volumes share.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from quartermaster.connectors.context import Context
from quartermaster.connectors.driver import Found
from quartermaster.connectors.identity import read_identity, same_identity
from quartermaster.connectors.usage import refuse_if_used
from quartermaster.host.commands import Command, Result
from quartermaster.support.errors import ToolMissingError

Look = Callable[[], str]
"""The node as it is now; empty where there is none."""
Request = Callable[[], Awaitable[object]]

_GONE_S = 30.0


async def join_node(
    context: Context, thing: str, look: Look, request: Request, *, directory: Path, hint: str = "", always: bool = False
) -> Found:
    """Ask for the node unless it is here, and wait for it; `always` where a node that is here may be another's."""

    async def present() -> bool:
        return bool(look())

    async def appeared() -> str | None:
        return look() or None

    async with context.watch(directory) as changes:
        async with context.joining(thing, present=present) as joined:
            if always or not joined.present:
                await request()
        device = await context.until(appeared, changes, what=f"the device of {thing}", hint=hint)
    return found_node(context, device)


def find_node(context: Context, thing: str, look: Look) -> Found | None:
    device = look() if context.uses(thing) else ""
    return found_node(context, device) if device else None


def found_node(context: Context, device: str) -> Found:
    return Found(device=device, identity=read_identity(device, context.roots, context.files))


async def leave_node(
    context: Context, thing: str, look: Look, request: Request, *, directory: Path, force: bool, compare: bool = True
) -> None:
    """Give it back with the last volume that uses it, and wait until the node is gone.

    After a crash it may have been asked for and not have come: it is given back then too. A node that was here before
    this library stays, and so does one that is another volume by now; `compare` is False for a driver with an identity
    of its own, by which it has looked already.
    """
    device = look()
    if device and compare and _is_another(context, device):
        async with context.leaving(thing):
            return
    if device and not force:
        refuse_if_used(context.volume_id, device, context.roots, verb="disconnect")

    async def gone() -> bool | None:
        return None if look() else True

    async with context.watch(directory) as changes:
        async with context.leaving(thing) as leaving:
            asked = leaving.last and (leaving.ours or (leaving.ours is None and bool(device)))
            if asked:
                await request()
        if asked:
            await context.until(gone, changes, what=f"the device of {thing} to go away", most_s=_GONE_S)


def _is_another(context: Context, device: str) -> bool:
    known, found = context.identity, found_node(context, device).identity
    return bool(known and found) and not same_identity(known, found)


async def run_installed(context: Context, command: Command, places: Sequence[str]) -> Result:
    """Of a vendor's program that is on the PATH, or where its package puts it."""
    for place in places:
        try:
            return await context.commands.run(command)
        except ToolMissingError:
            command = Command(
                (place, *command.argv[1:]), verb=command.verb, timeout_s=command.timeout_s, changes=command.changes
            )
    return await context.commands.run(command)
