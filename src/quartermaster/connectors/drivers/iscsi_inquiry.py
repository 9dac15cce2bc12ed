"""What a LUN is, asked of its target by the program in `inquiry`. See there why it is one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec

from quartermaster.connectors import inquiry
from quartermaster.connectors.context import Context
from quartermaster.connectors.errors import AuthenticationError, ConnectorError, UnreachableError
from quartermaster.connectors.identity import designators
from quartermaster.connectors.secret import Secret
from quartermaster.host.commands import Command
from quartermaster.support import entropy
from quartermaster.support.errors import CommandDeadlineError

_PROGRAM = Path(inquiry.__file__)
_RANDOM = "80"  # the kind of session number that nobody has to assign
_NOBODY = "iqn.2008-11.org.linux-kvm"  # as qemu-storage-daemon calls itself on a host that has no name of its own


class Lun(msgspec.Struct, frozen=True):
    host: str
    port: int
    iqn: str
    lun: int
    name: str  # in sentences


async def ask_lun(
    context: Context, lun: Lun, *, initiator: str, username: str, password: Secret, most_s: float
) -> tuple[str, ...]:
    """All by which it names itself, the best first; nothing where it does not say."""
    verb = f"open {lun.name}"
    # A number that no other session of this host has: the target would take that one for ended.
    question = {
        **{"host": lun.host, "port": lun.port, "iqn": lun.iqn, "lun": lun.lun},
        **{"initiator": initiator or _NOBODY, "user": username, "password": password.reveal()},
        **{"isid": f"{_RANDOM}{entropy.source().getrandbits(40):010x}", "timeout_s": most_s},
    }
    command = Command(
        (sys.executable, "-I", "-S", str(_PROGRAM)),
        verb=verb,
        stdin=msgspec.json.encode(question),
        timeout_s=most_s + 1.0,
        changes=False,
    )
    try:
        answer: dict[str, Any] = (await context.commands.run(command)).json(verb=verb)
    except CommandDeadlineError:
        answer = {"kind": "unreachable", "problem": "it did not answer in time"}
    if "kind" in answer:
        raise _failure(verb, answer["kind"], answer["problem"])
    return designators(bytes.fromhex(answer["page"]))


def _failure(verb: str, kind: str, problem: str) -> ConnectorError:
    message = f"cannot {verb}: {problem}"
    match kind:
        case "unreachable":
            return UnreachableError(message, hint="look whether the storage system runs and its address is right")
        case "busy":
            return UnreachableError(message, hint="try again when the storage system has less to do")
        case "authentication":
            return AuthenticationError(message, hint="look whether the user and its secret are right")
        case "absent":
            return ConnectorError(message, hint="look whether the storage system has exported it to this initiator")
        case _:
            return ConnectorError(message, hint="look what the storage system says of it")
