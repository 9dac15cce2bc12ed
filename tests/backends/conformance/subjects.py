"""The backends that are held to the rules. One that is added brings its own subject, and no test changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from quartermaster.backends.base import Backend
from quartermaster.backends.glusterfs.fake import FakeGluster
from quartermaster.backends.registry import backend_of
from quartermaster.host.fake import FakeCommands, FakeMachine, Faults


class World(Protocol):
    def commands(self, address: str, machine: FakeMachine, faults: Faults) -> FakeCommands: ...


@dataclass(frozen=True)
class Subject:
    """`nodes`: with how many the backend comes ONLINE; `world`: its tools, modelled for all hosts together."""

    type: str
    nodes: int = 1
    spec: dict[str, Any] = field(default_factory=lambda: {"devices": ["/dev/vdb"]})
    world: Callable[[], World] | None = None

    @property
    def backend(self) -> Backend:
        return backend_of(self.type)


SUBJECTS = (Subject("local"), Subject("glusterfs", nodes=3, world=FakeGluster))
