"""What the demo's scenes share: commands are shown as a person types them, with what they really print."""

import asyncio
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import click

from quartermaster.support.errors import CommandError
from quartermaster.testing.lab import VirtualHost

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
QM = Path(sys.executable).with_name("qm")
COMMAND_TIMEOUT_S = 120.0
_LOOK_S = 0.2


class DemoFailedError(Exception):
    """A step did not do what it shows."""


def ignore_interrupts() -> None:
    """What is taken down is not to be cut off, nor are the programs that do it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


class Tour:
    """Remembers what was shown and how long it took."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.times: list[tuple[str, float]] = []
        self.fetched_s = 0.0  # set-up, downloads and builds, which the next run mostly does without
        # The demo shows its own clusters: neither the person's context nor their files may come into it.
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "PYTHONPATH") if name in os.environ}
        self.environment = {**kept, "HOME": str(directory), "QM_STATE_DIR": str(directory / "state"), "COLUMNS": "110"}

    async def here(self, *arguments: str | Path) -> str:
        """`qm` on this machine."""
        self._show_command("", arguments)
        process = await asyncio.create_subprocess_exec(
            QM,
            *map(str, arguments),
            cwd=self.directory,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(COMMAND_TIMEOUT_S):
                output, errors = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        text = output.decode()
        click.echo(text, nl=False)
        if process.returncode:
            raise DemoFailedError(f"`qm {arguments[0]}` failed: {errors.decode().strip()}")
        return text

    async def on(self, host: VirtualHost, *arguments: str | Path, hidden: str = "", quiet: bool = False) -> str:
        """`qm` on a virtual host. `hidden` is an argument that is a secret, and shown as "$TOKEN"."""
        self._show_command(host.name, (*arguments, "$TOKEN") if hidden else arguments)
        given = [*map(str, arguments), *([hidden] if hidden else [])]
        try:
            result = await host.run([str(QM), *given], timeout_s=COMMAND_TIMEOUT_S, environment={"COLUMNS": "110"})
        except CommandError as error:
            raise DemoFailedError(f"`qm {arguments[0]}` on {host.name} failed: {error.stderr}") from error
        if not quiet:
            click.echo(result.text, nl=False)
        return result.text

    async def follow(self, host: VirtualHost, *arguments: str) -> None:
        """`qm` on a virtual host, with what it prints as it prints it: on a terminal it draws over itself."""
        self._show_command(host.name, arguments)
        process = await asyncio.create_subprocess_exec(
            *host.argv([str(QM), *arguments]), env=self.environment, stdin=subprocess.DEVNULL
        )
        try:
            async with asyncio.timeout(COMMAND_TIMEOUT_S):
                code = await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if code:
            raise DemoFailedError(f"`qm {arguments[0]}` on {host.name} failed")

    async def shell(self, host: VirtualHost, script: str) -> str:
        click.secho(f"{host.name}$ {script}", bold=True)
        result = await host.run(["sh", "-c", script], timeout_s=COMMAND_TIMEOUT_S)
        click.echo(result.text, nl=False)
        return result.text

    async def read(self, host: VirtualHost, *arguments: str) -> str:
        """Looked at, not shown."""
        return (await host.run([str(QM), *arguments], timeout_s=COMMAND_TIMEOUT_S)).text.strip()

    def say(self, text: str) -> None:
        click.secho(f"\n# {text}", fg="cyan")

    def check(self, holds: bool, what: str) -> None:
        if not holds:
            raise DemoFailedError(f"this should hold and does not: {what}")
        click.secho(f"✓ {what}", fg="green")

    async def until(self, what: str, holds: Callable[[], Awaitable[bool]], timeout_s: float = 120.0) -> None:
        said = ""
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    try:
                        if await holds():
                            break
                    except CommandError as error:
                        # While a member of etcd takes the place of another, a command may find none that serves.
                        said = f"; the last look said: {error}"
                    await asyncio.sleep(_LOOK_S)
        except TimeoutError:
            raise DemoFailedError(f"this should happen and does not: {what}{said}") from None
        click.secho(f"✓ {what}", fg="green")

    @asynccontextmanager
    async def timed(self, what: str, *, fetches: bool = False) -> AsyncIterator[None]:
        began = time.monotonic()
        yield
        self.took(what, time.monotonic() - began, fetches=fetches)

    def took(self, what: str, seconds: float, *, fetches: bool = False) -> None:
        self.times.append((what, seconds))
        self.fetched_s += seconds if fetches else 0.0

    def summary(self, all_s: float, bar_s: float) -> None:
        click.secho("\nwhat was shown, and how long it took", bold=True)
        for what, seconds in (*self.times, ("all of it", all_s)):
            click.echo(f"  {what:<62}{seconds:6.1f} s")
        own_s = all_s - self.fetched_s
        beside = f"{own_s:.1f} s beside set-up, downloads and builds, which took {self.fetched_s:.1f} s"
        click.echo(f"{beside}; the bar is {bar_s:.0f} s: {'held' if own_s <= bar_s else 'MISSED'}")

    def _show_command(self, host: str, arguments: tuple[str | Path, ...]) -> None:
        words = [str(word).replace(f"{ROOT}/", "").replace(f"{self.directory}/", "") for word in arguments]
        line = " ".join(word if word == "$TOKEN" else shlex.quote(word) for word in words)
        click.secho(f"{host}$ qm {line}", bold=True)
