"""One row of the table of drivers: what a test has to know to try everything on a driver."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from tests.connectors.harness.tools import COMMON
from tests.connectors.harness.world import World

CANARY = "canary-5ecret"


@dataclass(frozen=True)
class Case:
    """`{world}` in an argument stands for the directory of the world. Secrets in the data are the CANARY."""

    name: str
    info: Callable[[World], dict[str, Any]]
    connect: Sequence[Sequence[str]]  # every argument vector, in order
    disconnect: Sequence[Sequence[str]]
    path: str  # what Attachment.path is
    tools: dict[str, str] = field(default_factory=dict)
    prepare: Callable[[World], Any] = lambda _world: None
    options: dict[str, Any] = field(default_factory=dict)  # of open_connector
    leaves: Sequence[
        str
    ] = ()  # begins of paths in the world that may stay after a disconnect, with a reason beside them
    looks: Sequence[str] = ()  # programs among them that change nothing, and run again when the volume is looked at
    parallel: bool = False  # several run at once, so their order is open
    stub: Callable[[World], AbstractContextManager[Any]] = lambda _world: nullcontext()  # a server around the test

    def world(self, directory: Any) -> World:
        world = World(directory / "world").make()
        world.install(**{**COMMON, **self.tools})
        self.prepare(world)
        return world

    def kept(self, snapshot: dict[str, str]) -> dict[str, str]:
        return {key: value for key, value in snapshot.items() if not key.startswith(tuple(self.leaves))}

    def ordered(self, commands: Sequence[Sequence[str]]) -> list[list[str]]:
        """As they are to be compared."""
        found = [list(argv) for argv in commands]
        return sorted(found) if self.parallel else found
