"""Contenders as processes of their own, so that their time and memory are theirs; bounded, and gone afterwards."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TypeVar

import msgspec

T = TypeVar("T")
ROOT = Path(__file__).resolve().parent.parent
_SHOWN_CHARACTERS = 4000


class BenchFailedError(Exception):
    """Something was not done that the benchmark asks for: no figure of it means anything."""


def require(condition: bool, message: str) -> None:
    if not condition:
        raise BenchFailedError(message)


def as_installed(directory: Path) -> dict[str, str]:
    """The environment of a program that was installed: its bytecode is there, and kept outside of the sources."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return environment | {"PYTHONPYCACHEPREFIX": str(directory / "bytecode")}


def say(message: str) -> None:
    print(f"  .. {message}", flush=True)


class Job:
    """A running process that answers with lines on standard output."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, log_path: Path) -> None:
        self.name = name
        self._process = process
        self._log_path = log_path

    async def line(self, timeout_s: float) -> str:
        """The next line it prints; BenchFailedError when there is none in time."""
        assert self._process.stdout is not None
        try:
            line = await asyncio.wait_for(self._process.stdout.readline(), timeout_s)
        except TimeoutError:
            self._fail(f"said nothing within {timeout_s:.0f} s")
        if not line:
            self._fail("ended without an answer")
        return line.decode().strip()

    async def report(self, kind: type[T], timeout_s: float) -> T:
        """The JSON document with which it ends."""
        deadline = time.monotonic() + timeout_s
        line = await self.line(timeout_s)
        while not line.startswith("{"):
            line = await self.line(deadline - time.monotonic())
        return msgspec.json.decode(line, type=kind)

    def _fail(self, cause: str) -> None:
        raise BenchFailedError(f"{self.name} {cause}:\n{self._log_path.read_text()[-_SHOWN_CHARACTERS:]}")


@asynccontextmanager
async def job(
    directory: Path, module: str, *arguments: str, environment: Mapping[str, str] | None = None
) -> AsyncIterator[Job]:
    """`python -m module`, told when it began. Its whole process group is killed at the end."""
    log_path = directory / f"{module.rpartition('.')[2]}-{time.monotonic_ns()}.log"
    with log_path.open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", module, f"--began={time.monotonic():.6f}", *arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            cwd=ROOT,
            env=as_installed(directory) | dict(environment or {}),
            start_new_session=True,
        )
    try:
        yield Job(module, process, log_path)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


async def run_job(
    directory: Path,
    module: str,
    *arguments: str,
    answer: type[T],
    timeout_s: float,
    environment: Mapping[str, str] | None = None,
) -> T:
    async with job(directory, module, *arguments, environment=environment) as running:
        return await running.report(answer, timeout_s)
