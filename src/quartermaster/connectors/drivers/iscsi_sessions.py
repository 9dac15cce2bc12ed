"""Sessions of iSCSI: one per portal and target, shared by every volume that the target has for this host."""

from __future__ import annotations

import os
from collections.abc import Iterator

import msgspec

from quartermaster.connectors.context import Context
from quartermaster.connectors.drivers.iscsi_records import LOGIN_ENDS_S, Target, drop_record, has_our_record, put_record
from quartermaster.connectors.drivers.scsi import addresses
from quartermaster.connectors.errors import AuthenticationError, ConnectorError, NotAnsweringError, UnreachableError
from quartermaster.host.commands import Command
from quartermaster.host.events import wait_until
from quartermaster.host.tools import Tool, register
from quartermaster.support.errors import CommandDeadlineError, CommandError

register(Tool("iscsiadm", "open-iscsi", "logs in to iSCSI targets"))

_PORT = 3260
_THERE = 15  # it is logged in already
_NOTHING = 21  # there is no such session
_REFUSED = 24
_NO_ANSWER = {4: "it cannot be reached", 5: "it ends the login", 8: "it does not answer", 11: "it does not answer"}
_NO_DAEMON = (18, 20)
_UNFINISHED = "iscsi_login"


class Session(msgspec.Struct, frozen=True):
    number: int
    host: int  # of SCSI: each session has its own
    target: int

    def address(self, lun: int) -> str:
        return f"{self.host}:0:{self.target}:{lun}"


def parse_portal(text: str) -> tuple[str, int]:
    """From "192.0.2.1:3260", "[2001:db8::1]:3260,1" or a bare address. ValueError where it is none of these."""
    plain = text.strip().partition(",")[0]
    if plain.startswith("["):
        host, _, port = plain[1:].partition("]")
        port = port.removeprefix(":")
    elif plain.count(":") > 1:
        host, port = plain, ""
        if any(len(group) > 4 for group in plain.partition("%")[0].split(":") if "." not in group):
            raise ValueError(f'"{text}" is no portal; an address of IPv6 stands in brackets before its port')
    else:
        host, _, port = plain.partition(":")
    if not host or any(character.isspace() or character == "/" for character in host):
        raise ValueError(f'"{text}" is no portal; it is ADDRESS:PORT')
    if plain.endswith(":") and host != plain:
        raise ValueError(f'"{text}" has no port number after its address')
    if port and not (port.isdecimal() and 0 < int(port) < 65536):
        raise ValueError(f'the port of "{text}" is not a number between 1 and 65535')
    return _normal(host), int(port or _PORT)


def find_session(context: Context, target: Target) -> Session | None:
    return next((session for session, found in sessions(context, only=target.iqn) if target in found), None)


def sessions(context: Context, *, only: str = "") -> Iterator[tuple[Session, tuple[Target, ...]]]:
    """Every session of this host, with the portal that was asked and, where it has sent us on, the one that serves.

    With `only`, those to one target: a host may have hundreds, and one file of each tells which it is.
    """
    files, classes = context.files, context.roots.sysfs / "class"
    for name in files.names(classes / "iscsi_session"):
        directory = classes / "iscsi_session" / name
        iqn = files.text(directory / "targetname")
        if only and iqn != only:
            continue
        number = name.removeprefix("session")
        host = os.path.basename(os.path.dirname(os.path.realpath(directory / "device"))).removeprefix("host")
        if not iqn or not number.isdecimal() or not host.isdecimal():
            continue
        interface = "iser" if files.text(directory / "ifacename") == "iser" else "default"
        connection = classes / "iscsi_connection" / f"connection{number}:0"
        targets: dict[Target, None] = {}
        for prefix in ("persistent_", ""):
            address, port = (files.text(connection / f"{prefix}{part}") for part in ("address", "port"))
            if address and port.isdecimal():
                targets[Target(_normal(address), int(port), iqn, interface)] = None
        place = files.text(directory / "target_id")
        yield Session(int(number), int(host), int(place) if place.isdecimal() else 0), tuple(targets)


async def join_session(context: Context, target: Target, *, username: str, password: str) -> Session:
    """The session, made if it is not there. The volume uses it from now on."""

    async def present() -> bool:
        return find_session(context, target) is not None

    async with context.joining(target.thing, present=present) as joined:
        if not joined.present:
            await put_record(context, target, username=username, password=password)
            await _log_in(context, target)
    session = find_session(context, target)
    if session is None:
        raise ConnectorError(f"cannot use the session to {target.name}: it went away again")
    return session


async def leave_session(context: Context, target: Target) -> None:
    """Logged out if we have made it and nobody uses it: no other volume of ours, and no other disk."""
    async with context.leaving(target.thing) as leaving:
        if context.notes.get(_UNFINISHED) == target.name:
            await _let_login_end(context, target)
        # Without a record of ours, the one that open-iscsi has tells who made it.
        ours = has_our_record(context, target) if leaving.ours is None else leaving.ours
        if not leaving.last or not ours:
            return
        session = find_session(context, target)
        if session is not None and addresses(context, session.host):
            return
        if session is not None:
            argv = ("iscsiadm", "-m", "session", "-r", str(session.number), "--logout")
            command = Command(argv, verb=f"log out of {target.name}", timeout_s=60.0, accept=(0, _NOTHING))
            await context.commands.run(command)
        await drop_record(context, target)


async def _log_in(context: Context, target: Target) -> None:
    argv = ("iscsiadm", "-m", "node", "-T", target.iqn, "-p", target.portal, "-I", target.interface, "--login")
    command = Command(argv, verb=f"log in to {target.name}", timeout_s=120.0, accept=(0, _THERE))
    try:
        await context.commands.run(command)
    except CommandDeadlineError as error:
        # iscsid goes on without iscsiadm: whoever takes this back has to wait for it.
        context.note(**{_UNFINISHED: target.name})
        raise NotAnsweringError(
            f"cannot log in to {target.name}: it did not answer in time",
            hint=f"look whether {target.portal} is open from this host and serves the target",
        ) from error
    except CommandError as error:
        raise explained(f"log in to {target.name}", target, error) from error


def explained(verb: str, target: Target, error: CommandError) -> ConnectorError | CommandError:
    """What a code of iscsiadm means."""
    begin = f"cannot {verb}"
    if error.exit_code == _REFUSED:
        return AuthenticationError(
            f"{begin}: the target refuses the user name or the password",
            hint="compare the user name and the password of the data with what the target has for this initiator",
        )
    if error.exit_code in _NO_ANSWER:
        cause = _NO_ANSWER[error.exit_code]
        return UnreachableError(
            f"{begin}: {cause}", hint=f"look whether {target.portal} is open from this host and serves the target"
        )
    if error.exit_code in _NO_DAEMON:
        return ConnectorError(f"{begin}: iscsid does not answer", hint="start iscsid")
    return error


async def _let_login_end(context: Context, target: Target) -> None:
    async def there() -> bool | None:
        return True if find_session(context, target) is not None else None

    async with context.watch() as changes:
        await wait_until(there, changes, timeout_s=min(LOGIN_ENDS_S, context.left_s() / 2), poll_s=0.25)
    context.note(**{_UNFINISHED: ""})


def _normal(host: str) -> str:
    """One spelling of an address. A name stays as it is."""
    if ":" not in host:
        return host.lower()
    # Imported here: hardly a host needs it.
    import ipaddress

    address, percent, zone = host.partition("%")
    try:
        return f"{ipaddress.ip_address(address).compressed}{percent}{zone}"
    except ValueError:
        return host
