"""A connector in a world: with counted file operations, and in a process of its own that may be killed."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec

from quartermaster.connectors.connector import Connector, open_connector
from quartermaster.connectors.driver import Roots
from quartermaster.connectors.files import HostFiles
from tests.connectors.harness.world import FAIL_AFTER, FAIL_BEFORE, InjectedError, World

ROOTS = {"sysfs": "sys", "dev": "dev", "proc": "proc", "etc": "etc", "modules": "modules"}


class SteppedFiles:
    """The host's files, each change one step of the world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._files = HostFiles()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def write(self, path: Path, data: bytes, *, lasting: bool = True) -> None:
        self._step(f"write {path.name}", lambda: self._files.write(path, data, lasting=lasting))

    def remove(self, path: Path) -> None:
        if path.is_symlink() or path.exists():
            self._step(f"remove {path.name}", lambda: self._files.remove(path))

    def link(self, path: Path, target: str) -> None:
        self._step(f"link {path.name}", lambda: self._files.link(path, target))

    def make_directory(self, path: Path) -> None:
        self._step(f"make {path.name}", lambda: self._files.make_directory(path))

    def remove_directory(self, path: Path) -> None:
        self._step(f"remove {path.name}", lambda: self._files.remove_directory(path))

    def _step(self, name: str, change: Callable[[], None]) -> None:
        with self._world.step(name) as how:
            if how == FAIL_BEFORE:
                raise InjectedError(errno.EIO, "injected fault before the effect")
            change()
            if how == FAIL_AFTER:
                raise InjectedError(errno.EIO, "injected fault after the effect")


def connector_in(world: World, **options: Any) -> Connector:
    options.setdefault("machine", "x86_64")
    connector = open_connector(
        roots=Roots(**{name: world.path(place) for name, place in ROOTS.items()}),
        search_path=str(world.path("bin")),
        directory=world.path("state"),
        host="testhost",
        ip="192.0.2.7",
        **options,
    )
    machine = msgspec.structs.replace(connector._machine, files=SteppedFiles(world))
    # On a machine with too much work a dozen programs take longer than on a host that hangs.
    return Connector(machine, msgspec.structs.replace(connector._settings, rollback_timeout_s=300.0))


def in_process(world: World, work: Callable[[], Coroutine[Any, Any, Any]]) -> Callable[[], tuple[int, Any]]:
    """Start the work in a child; the function that is returned waits for it: exit status, and what it answered."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(reading)
            answer = asyncio.run(work())
            os.write(writing, msgspec.json.encode(answer))
            code = 0
        except BaseException as error:
            os.write(writing, msgspec.json.encode(f"{type(error).__name__}: {error}"))
        finally:
            os._exit(code)
    os.close(writing)

    def wait() -> tuple[int, Any]:
        with os.fdopen(reading, "rb") as pipe:
            text = pipe.read()
        _, status = os.waitpid(pid, 0)
        return os.waitstatus_to_exitcode(status), msgspec.json.decode(text) if text else None

    return wait


def killed_in(world: World, work: Callable[[], Coroutine[Any, Any, Any]]) -> bool:
    """Run the work in a child that the plan may kill. Whether it was."""

    async def as_victim() -> Any:
        world.path("victim").write_text(str(os.getpid()))
        return await work()

    status, _ = in_process(world, as_victim)()
    world.path("victim").unlink(missing_ok=True)
    return status == -9
