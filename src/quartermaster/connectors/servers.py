"""Asks a storage system's server something, by the program in `exchange`. See there why it is one."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from quartermaster.connectors.context import Context
from quartermaster.connectors.errors import AuthenticationError, UnreachableError
from quartermaster.host.commands import Command
from quartermaster.support.errors import CommandDeadlineError

_PROGRAM = Path(__file__).with_name("exchange.py")
ANSWER_S = 30.0  # as long as a server may take
LEAST_S = 0.5  # to take something back, though the caller's time is up
_SHARE = 2 / 3  # of the time, for a request that may have to be taken back: the rest is for that


class Answer(msgspec.Struct, frozen=True):
    status: int
    body: str

    @property
    def json(self) -> Any:
        """None where it is not JSON."""
        try:
            return msgspec.json.decode(self.body)
        except msgspec.DecodeError:
            return None


class Server(msgspec.Struct, frozen=True):
    """`verify` is whether its certificate has to be trusted, by the host or by the file `authority`."""

    host: str
    port: int
    verify: bool = True
    authority: str = ""

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


async def ask_http(
    context: Context,
    server: Server,
    method: str,
    path: str,
    *,
    headers: Mapping[str, str],
    body: bytes = b"",
    verb: str,
) -> Answer:
    changes = method != "GET"
    question = {
        **_question(context, server, changes=changes),
        "verify": server.verify,
        "authority": server.authority,
        "method": method,
        "path": path,
        "headers": dict(headers),
        "body": body.decode() if body else None,
    }
    answer = await _ask(context, server, question, verb=verb, changes=changes)
    return Answer(answer["status"], answer["body"])


async def ask_tcp(context: Context, server: Server, request: bytes, *, expect: int, verb: str) -> bytes:
    """`expect` bytes of answer."""
    question = {**_question(context, server, changes=True), "raw": request.hex(), "expect": expect}
    return bytes.fromhex((await _ask(context, server, question, verb=verb, changes=True))["raw"])


def answer_s(left_s: float, *, changes: bool) -> float:
    """How long a server is waited for, of the time that the caller has left."""
    return max(LEAST_S, min(ANSWER_S, left_s * _SHARE if changes else left_s))


def _question(context: Context, server: Server, *, changes: bool) -> dict[str, Any]:
    timeout_s = answer_s(context.caller_left_s(), changes=changes)
    return {"host": server.host, "port": server.port, "timeout_s": timeout_s}


async def _ask(
    context: Context, server: Server, question: dict[str, Any], *, verb: str, changes: bool
) -> dict[str, Any]:
    argv = (sys.executable, "-I", "-S", str(_PROGRAM))
    command = Command(
        argv,
        verb=verb,
        stdin=msgspec.json.encode(question),
        # The program's own limit is for each step of the exchange.
        timeout_s=question["timeout_s"] + 1.0,
        output_limit=1 << 23,
        changes=changes,
    )
    try:
        answer: dict[str, Any] = (await context.commands.run(command)).json(verb=verb)
    except CommandDeadlineError:
        answer = {"kind": "unreachable", "problem": "it did not answer in time"}
    kind = answer.get("kind")
    if kind == "certificate":
        raise AuthenticationError(
            f"cannot {verb}: {server} is not who it says: {answer['problem']}",
            hint="give its authority's file as certificatePath, or verifyCertificate: false on a network you trust",
        )
    if kind == "unreachable":
        raise UnreachableError(
            f"cannot {verb}: {server}: {answer['problem']}",
            hint="look whether it is up, and whether a firewall is between",
        )
    return answer
