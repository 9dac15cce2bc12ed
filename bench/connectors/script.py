"""The same commands as an attach, without a library: a bash script that runs them one after another.

It knows how late the device will be, sleeps for so long, and looks every millisecond from then on: nobody could do that
on a host, and nobody could be faster.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from bench.connectors.host import FakeHost, Ran, inside
from bench.connectors.kernel import Target
from bench.connectors.programs.iscsi import write_record
from bench.running import BenchFailedError, require

TIMEOUT_S = 120.0
HEAD = """
LC_ALL=C
exec 9<>{never}
pause() {{ read -r -t "$1" -u 9; }}
until_there() {{ until [[ -e $1 ]]; do pause 0.001; done; }}
"""
BETWEEN = """
attach_{number}() {{
{commands}
}}
"""
TAIL = """
echo ready
read -r go
began=$EPOCHREALTIME
{calls}
wait
ended=$EPOCHREALTIME
echo "$began $ended"
"""


class Step(msgspec.Struct, frozen=True):
    argv: tuple[str, ...]
    stdin: str = ""


class Attach(msgspec.Struct, frozen=True):
    steps: Sequence[Step]
    node: str  # has to be there before the disk can be asked what it is
    late_s: float  # after the scan


def attach_of(commands: Sequence[Ran], target: Target) -> Attach:
    steps = [Step(each.argv, each.stdin) for each in commands]
    return Attach(steps, f"/dev/{target.disk(1)}", target.luns[1].late_s)


def script_text(never: Path, attaches: Sequence[Attach]) -> str:
    parts = [HEAD.format(never=never)]
    for number, attach in enumerate(attaches):
        parts.append(BETWEEN.format(number=number, commands="\n".join(_lines(attach))))
    background = " &" if len(attaches) > 1 else ""
    parts.append(TAIL.format(calls="\n".join(f"attach_{number}{background}" for number in range(len(attaches)))))
    return "".join(parts)


def _lines(attach: Attach) -> list[str]:
    lines = []
    for step in attach.steps:
        given = f" <<< {shlex.quote(step.stdin)}" if step.stdin else ""
        lines.append(f"{shlex.join(step.argv)}{given} > /dev/null")
        if step.argv[0] == "tee":
            lines += [f"pause {attach.late_s}"] if attach.late_s else []
            lines.append(f"until_there {shlex.quote(attach.node)}")
    return lines


class Script:
    """Ready to begin."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def ready(self) -> None:
        require(await self._line() == "ready", "the bare script does not start")

    async def time_ms(self) -> float:
        """By its own clock, from its first command to the end of its last."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"go\n")
        await self._process.stdin.drain()
        began, ended = map(float, (await self._line()).split())
        return 1000 * (ended - began)

    async def _line(self) -> str:
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), TIMEOUT_S)
        if not line:
            raise BenchFailedError("the bare script ended without an answer")
        return line.decode().strip()

    async def end(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()


async def start_script(host: FakeHost, text: str, name: str) -> Script:
    file = host.root / f"{name}.sh"
    file.write_text(text)
    process = await asyncio.create_subprocess_exec(
        *inside(host, ["/bin/bash", str(file)], python=sys.executable),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    script = Script(process)
    await script.ready()
    return script


def prepare_records(host: FakeHost, targets: Sequence[Target]) -> None:
    """What a login needs, which is no command."""
    for target in targets:
        write_record(host.kernel, target.name, target.portal, {"node.name": target.name, "node.session.scan": "manual"})
