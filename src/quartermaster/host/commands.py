"""The only door through which programs are started: argument vectors, never a shell; a deadline; bounded output.

`Commands` is the seam. `HostCommands` runs them here or, with a prefix, on a virtual host; `FakeCommands` is its twin.
A command says whether it changes the host, so that a test can count: a second run must change nothing.

Secrets go in by standard input, the environment or a private file. A command whose argument list holds one of its
declared `secrets` is refused, and they are cut out of every error text.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from quartermaster.host.processes import run_process
from quartermaster.host.tools import hint_for
from quartermaster.support.backoff import Backoff
from quartermaster.support.errors import CommandDeadlineError, CommandError, HostError, InvalidError, ToolMissingError
from quartermaster.support.redaction import HIDDEN, redact

_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_SHORTEST = 4  # that a secret has to be for a part of a word to be one
_TAIL_LINES = 5


class Retry(msgspec.Struct, frozen=True):
    """Exit codes that mean "not now"; all attempts share the command's deadline."""

    exit_codes: tuple[int, ...]
    attempts: int = 5
    backoff: Backoff = Backoff(first_s=0.1, limit_s=2.0)


class Command(msgspec.Struct, frozen=True):
    """What to run, and why: `verb` completes the sentence "cannot …"."""

    argv: tuple[str, ...]
    verb: str
    timeout_s: float = 30.0
    stdin: bytes = b""
    environment: dict[str, str] = {}
    secrets: tuple[str, ...] = ()
    accept: tuple[int, ...] = (0,)  # exit codes that are answers and not failures
    retry: Retry | None = None
    changes: bool = True  # False for a command that only looks
    output_limit: int = 1 << 20
    grace_s: float = 1.0  # between SIGTERM and SIGKILL


class Result(msgspec.Struct, frozen=True):
    """What a command answered. `truncated`: standard output was longer than the limit, and only its start is here."""

    exit_code: int = 0
    stdout: bytes = b""
    stderr: bytes = b""
    truncated: bool = False

    @property
    def text(self) -> str:
        return self.stdout.decode(errors="replace")

    def json(self, *, verb: str) -> Any:
        if self.truncated:
            raise HostError(f"cannot {verb}: the answer is longer than its limit")
        try:
            return msgspec.json.decode(self.stdout)
        except msgspec.DecodeError as error:
            raise HostError(f"cannot {verb}: the answer is not JSON: {error}") from error


class Commands(Protocol):
    """Runs commands.

    Raises CommandError when the exit code is not accepted, CommandDeadlineError when the time was up (the process group
    was killed), ToolMissingError when there is no such program. A cancelled caller ends the process group too.
    """

    async def run(self, command: Command) -> Result: ...


class HostCommands:
    """`prefix` goes before every argument list: `inside(pid)` enters a virtual host."""

    def __init__(self, *, search_path: str = "", prefix: Sequence[str] = ()) -> None:
        self._search_path = search_path or f"{os.environ.get('PATH', '')}:{_SYSTEM_PATH}".lstrip(":")
        self._prefix = tuple(prefix)

    async def run(self, command: Command) -> Result:
        refuse_secrets(command)
        retry = command.retry
        loop = asyncio.get_running_loop()
        ends = loop.time() + command.timeout_s
        failures = 0
        while True:
            result = await self._once(command, ends - loop.time())
            if retry is None or result.exit_code not in retry.exit_codes or failures + 1 >= retry.attempts:
                return checked(command, result)
            pause_s = retry.backoff.delay_s(failures)
            if loop.time() + pause_s >= ends:
                return checked(command, result)
            failures += 1
            await asyncio.sleep(pause_s)

    async def _once(self, command: Command, timeout_s: float) -> Result:
        try:
            ending = await run_process(
                self._resolved(command),
                environment=self._environment(command.environment),
                stdin=command.stdin,
                timeout_s=max(timeout_s, 0.001),
                output_limit=command.output_limit,
                grace_s=command.grace_s,
            )
        except OSError as error:
            raise CommandError(
                f"cannot {command.verb}: {command.argv[0]} does not start: {error.strerror}", argv=shown(command)
            ) from error
        result = Result(
            exit_code=ending.exit_code if ending.exit_code is not None else 0,
            stdout=ending.stdout,
            stderr=ending.stderr,
            truncated=ending.truncated,
        )
        if ending.deadline:
            raise deadline_error(command, result, stuck_pid=ending.pid if ending.exit_code is None else 0)
        return result

    def _resolved(self, command: Command) -> list[str]:
        argv = [*self._prefix, *command.argv]
        programs = {0: argv[0], len(self._prefix): command.argv[0]}
        for place, name in programs.items():
            found = _executable(name, self._search_path)
            if found is None:
                raise ToolMissingError(f"cannot {command.verb}: {name} is not installed", hint=hint_for(name))
            argv[place] = found
        return argv

    def _environment(self, own: Mapping[str, str]) -> dict[str, str]:
        return {"PATH": self._search_path, "LC_ALL": "C", "HOME": os.environ.get("HOME", "/"), **own}


def _executable(name: str, search_path: str) -> str | None:
    """As shutil.which, whose module brings three compression libraries into every program that runs a command."""
    directories = [""] if "/" in name else search_path.split(os.pathsep)
    for directory in directories:
        path = os.path.join(directory, name)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None


def inside(pid: int) -> tuple[str, ...]:
    """The prefix that runs a command in the mount, network and name namespaces of a process: on its virtual host."""
    return ("nsenter", f"--target={pid}", "--mount", "--uts", "--net", "--")


def refuse_secrets(command: Command) -> None:
    if any(_shows(argument, secret) for secret in command.secrets if secret for argument in command.argv):
        raise InvalidError(
            f"cannot {command.verb}: a secret would stand in the argument list of {command.argv[0]}, "
            "or is a word that stands there anyway",
            hint="every user of the host could read it; give it by standard input, the environment or a private file, "
            "and choose one that is no plain word",
        )


def _shows(argument: str, secret: str) -> bool:
    """A very short one is in many words by chance, so there it has to be a whole one."""
    return secret in argument if len(secret) >= _SHORTEST else secret in (argument, argument.partition("=")[2])


def checked(command: Command, result: Result) -> Result:
    """The result, unless its exit code is a failure."""
    if result.exit_code in command.accept:
        return result
    code = result.exit_code
    tail = _tail(command, result.stderr or result.stdout)
    how = f"ended by signal {-code}" if code < 0 else f"exited with {code}"
    # An indented line goes on with the one before it and is seldom the point.
    words = [line for line in tail.splitlines() if not line[0].isspace()] or tail.splitlines()
    cause = f"{command.argv[0]} {how}" + (f": {words[-1].strip()}" if words else "")
    raise CommandError(f"cannot {command.verb}: {cause}", argv=shown(command), exit_code=code, stderr=tail)


def deadline_error(command: Command, result: Result, *, stuck_pid: int = 0) -> CommandDeadlineError:
    stuck = f" and is stuck in the kernel as process {stuck_pid}" if stuck_pid else ""
    error = CommandDeadlineError(
        f"cannot {command.verb}: {command.argv[0]} took longer than {command.timeout_s:g} s{stuck}",
        hint="a disk or server behind it does not answer" if stuck_pid else "",
        argv=shown(command),
        exit_code=None if stuck_pid else result.exit_code,
        stderr=_tail(command, result.stderr),
    )
    error.stuck_pid = stuck_pid
    return error


def shown(command: Command) -> tuple[str, ...]:
    """The argument list as it may be shown."""
    hidden: list[str] = []
    key = ""
    for argument in command.argv:
        name, equals, value = argument.partition("=")
        hidden.append(f"{name}={redact(value, key=name)}" if equals else redact(argument, key=key))
        key = argument if argument.startswith("-") and not equals else ""
    return tuple(hidden)


def _tail(command: Command, output: bytes) -> str:
    text = output.decode(errors="replace")
    for secret in command.secrets:
        if secret:
            text = text.replace(secret, HIDDEN)
    lines = [line for line in redact(text).splitlines() if line.strip()]
    return "\n".join(_without_usage(lines, Path(command.argv[0]).name)[-_TAIL_LINES:])


def _without_usage(lines: list[str], program: str) -> list[str]:
    """Some say what is wrong before or after pages of how they are used."""
    usage = next((place for place, line in enumerate(lines) if line.lower().startswith("usage:")), len(lines))
    return lines[:usage] + [line for line in lines[usage:] if line.startswith(f"{program}:")] or lines
