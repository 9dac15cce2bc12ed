"""Programs on a modelled machine: those that a test has put there."""

from __future__ import annotations

from quartermaster.host.fake.faults import Faults
from quartermaster.host.fake.machine import FakeMachine
from quartermaster.host.programs import Program


class FakePrograms:
    def __init__(self, machine: FakeMachine, faults: Faults | None = None) -> None:
        self._machine = machine
        self._faults = faults or Faults()

    async def running(self, *names: str) -> tuple[Program, ...]:
        async with self._faults.step(f"look for {', '.join(names)}"):
            return tuple(one for one in self._machine.programs if one.name in names)

    async def end(self, program: Program, *, timeout_s: float = 10.0) -> bool:  # noqa: ARG002
        if program not in self._machine.programs:
            return False
        async with self._faults.step(f"end {program.name}"):
            self._machine.programs.remove(program)
        return True
