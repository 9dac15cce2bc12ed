"""The same programs without processes, for tests that take thousands of steps.

A crash is an exception that ends everything: once it was raised, no further step has an effect, whatever the code that
it passes through tries to do. That is what death looks like from the host.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import msgspec

from quartermaster.connectors.connector import Connector
from quartermaster.connectors.files import HostFiles
from quartermaster.host.commands import Command, Result, checked, refuse_secrets
from quartermaster.host.tools import hint_for
from quartermaster.support.errors import ToolMissingError
from tests.connectors.harness.running import connector_in
from tests.connectors.harness.world import World


class Crash(BaseException):
    """The process is dead."""


class Life:
    """Of one process: it ends at a step, before or after its effect."""

    def __init__(self, ends_at: int = -1, *, after: bool = False) -> None:
        self._ends_at = ends_at
        self._after = after
        self.steps = 0
        self.dead = False

    def before(self) -> None:
        if self.dead or (self.steps == self._ends_at and not self._after):
            self.dead = True
            raise Crash
        self.steps += 1

    def after(self) -> None:
        if self.steps - 1 == self._ends_at and self._after:
            self.dead = True
            raise Crash


class InProcessCommands:
    def __init__(self, world: World, tools: dict[str, str], life: Life) -> None:
        self._world = world
        self._tools = tools
        self._life = life

    async def run(self, command: Command) -> Result:
        refuse_secrets(command)
        if command.argv[0] not in self._tools:
            raise ToolMissingError(f"cannot {command.verb}: no {command.argv[0]}", hint=hint_for(command.argv[0]))
        self._life.before()
        module, _, name = self._tools[command.argv[0]].partition(":")
        function = getattr(importlib.import_module(module), name)
        code, out, err = function(self._world, list(command.argv[1:]), command.stdin.decode())
        self._life.after()
        return checked(command, Result(code, out.encode(errors="surrogateescape"), err.encode()))


class MortalFiles:
    def __init__(self, life: Life) -> None:
        self._life = life
        self._files = HostFiles()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def write(self, path: Path, data: bytes, *, lasting: bool = True) -> None:
        self._life.before()
        # Not the fsynced way: thousands of them, and nobody cuts the power here.
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.new")
        temporary.write_bytes(data)
        temporary.rename(path)
        self._life.after()

    def remove(self, path: Path) -> None:
        self._life.before()
        path.unlink(missing_ok=True)
        self._life.after()

    def link(self, path: Path, target: str) -> None:
        self._life.before()
        self._files.link(path, target)
        self._life.after()

    def make_directory(self, path: Path) -> None:
        self._life.before()
        path.mkdir(parents=True, exist_ok=True)
        self._life.after()

    def remove_directory(self, path: Path) -> None:
        self._life.before()
        self._files.remove_directory(path)
        self._life.after()


def connector_without_processes(world: World, tools: dict[str, str], life: Life, **options: Any) -> Connector:
    made = connector_in(world, **options)
    machine = msgspec.structs.replace(
        made._machine, commands=InProcessCommands(world, tools, life), files=MortalFiles(life)
    )
    return Connector(machine, made._settings)
