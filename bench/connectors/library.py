"""A library at work on a fake host, in a process of its own: calls go in, what became of them comes out."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import msgspec

from bench.connectors.host import FakeHost, inside
from bench.connectors.peer import peer_python
from bench.running import ROOT, BenchFailedError, as_installed

OURS, BRICK = "Quartermaster", "os-brick"
START_S = 60.0
LINE_BYTES = 1 << 20


class Call(msgspec.Struct, frozen=True):
    verb: Literal["connect", "disconnect"]
    type: str
    data: dict[str, Any]
    force: bool = False
    timeout_s: float = 60.0  # our deadline; os-brick's calls have none
    machine: str = "x86_64"
    after_s: float = 0.0  # later than the other calls of the group


class Outcome(msgspec.Struct, frozen=True):
    value: str = ""
    error: str = ""
    began_s: float = math.nan
    ended_s: float = math.nan

    @property
    def took_ms(self) -> float:
        return 1000 * (self.ended_s - self.began_s)


NO_ANSWER = Outcome(error="no answer")


class Library:
    def __init__(self, name: str, process: asyncio.subprocess.Process, log_path: Path) -> None:
        self.name = name
        self._process = process
        self._log_path = log_path

    async def make(self, *calls: Call, timeout_s: float = 120.0) -> list[Outcome]:
        """All at once. One that gives no answer in time has `NO_ANSWER` for each of them, and is of no more use."""
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(calls) + b"\n")
        await self._process.stdin.drain()
        try:
            return msgspec.json.decode(await self.line(timeout_s), type=list[Outcome])
        except TimeoutError:
            return [NO_ANSWER] * len(calls)

    async def one(self, call: Call, *, timeout_s: float = 120.0) -> Outcome:
        return (await self.make(call, timeout_s=timeout_s))[0]

    async def well(self, *calls: Call, timeout_s: float = 120.0) -> list[Outcome]:
        """As `make`, where no call may fail."""
        outcomes = await self.make(*calls, timeout_s=timeout_s)
        for call, outcome in zip(calls, outcomes, strict=True):
            if outcome.error:
                raise BenchFailedError(f"{self.name} fails to {call.verb} {call.data}: {outcome.error}{self.said()}")
        return outcomes

    async def line(self, timeout_s: float) -> bytes:
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), timeout_s)
        if not line:
            raise BenchFailedError(f"{self.name} ended without an answer:{self.said()}")
        return line

    def said(self) -> str:
        return f"\n{self._log_path.read_text(errors='replace')[-3000:]}"


@asynccontextmanager
async def start_library(directory: Path, host: FakeHost, name: str) -> AsyncIterator[Library]:
    """Loaded and ready. Its whole process group is killed at the end."""
    python = sys.executable if name == OURS else str(peer_python())
    here = Path(__file__).parent
    program = [python, "-m", "bench.connectors.ours"] if name == OURS else [python, str(here / "brick.py")]
    log_path = host.root / f"{name}-{len(list(host.root.glob('*.log')))}.log"
    environment = as_installed(directory) | {"TMPDIR": str(host.root / "tmp")}
    if name == BRICK:
        environment.pop("PYTHONPYCACHEPREFIX")  # it was compiled when it was installed
    with log_path.open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *inside(host, [*program, str(host.root)], python=python),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            cwd=ROOT,
            env=environment,
            start_new_session=True,
            limit=LINE_BYTES,
        )
    found = Library(name, process, log_path)
    try:
        ready = await found.line(START_S)
        if ready.strip() != b"ready":
            raise BenchFailedError(f"{name} does not start: {ready!r}{found.said()}")
        yield found
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
