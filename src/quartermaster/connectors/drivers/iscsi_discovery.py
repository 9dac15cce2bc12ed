"""SendTargets: a portal is asked at which other portals its target can be reached.

Nothing of the answer goes into open-iscsi's own list of targets. A portal that wants a name and a password gets them by
a record of its own, for as long as the question takes.
"""

from __future__ import annotations

from collections.abc import Iterator

from quartermaster.connectors.context import Context
from quartermaster.connectors.drivers.iscsi_records import Target, discovery_file, discovery_text, drop_file, put_file
from quartermaster.connectors.drivers.iscsi_sessions import explained, parse_portal
from quartermaster.host.commands import Command
from quartermaster.support.errors import CommandError

_ASKED = "iscsi_discovery"
_ASK_S = 20.0
_NO_TARGETS = 21


async def discover(context: Context, target: Target, *, username: str, password: str) -> list[Target]:
    """The target at every portal that it names, this one first. Some targets do not name the portal that was asked."""
    mode = ("discoverydb", "--discover") if username else ("discovery",)
    argv = ("iscsiadm", "-m", mode[0], "-t", "sendtargets", "-p", target.portal, "-I", target.interface)
    command = Command(
        (*argv, "-o", "nonpersistent", *mode[1:]),
        verb=f"ask {target.portal} for its targets",
        timeout_s=_ASK_S,
        accept=(0, _NO_TARGETS),
        changes=False,
    )
    try:
        if not username:
            result = await context.commands.run(command)
        else:
            # One at a time: the record is the portal's, and another volume may come with another password.
            async with context.locks.hold(f"iscsi discovery {target.portal}", timeout_s=context.left_s()):
                context.note(**{_ASKED: target.portal})
                text = discovery_text(target, username=username, password=password)
                await put_file(context, discovery_file(context, target), text)
                try:
                    result = await context.commands.run(command)
                finally:
                    await drop_file(context, discovery_file(context, target))
    except CommandError as error:
        raise explained(f"ask {target.portal} for its targets", target, error) from error
    return list(dict.fromkeys([target, *parse_answer(result.text, target)]))


async def forget_discovery(context: Context, target: Target) -> None:
    """The record with the password, where whoever asked has died."""
    if context.notes.get(_ASKED) == target.portal:
        async with context.locks.hold(f"iscsi discovery {target.portal}", timeout_s=context.left_s()):
            await drop_file(context, discovery_file(context, target))
        context.note(**{_ASKED: ""})


def parse_answer(text: str, target: Target) -> Iterator[Target]:
    """Of lines like "192.0.2.1:3260,1 iqn.2026-01.org.example:disk"."""
    for line in text.splitlines():
        portal, _, iqn = line.strip().partition(" ")
        if iqn.strip() == target.iqn:
            yield Target(*parse_portal(portal), target.iqn, target.interface)
