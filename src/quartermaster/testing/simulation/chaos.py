"""What happens to processes: paused, killed, told to stop, cut off, given a wrong clock; and to the whole machine.

`Chaos` keeps named processes running: one that was ended is started again, fresh, after a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from quartermaster.stores.kv.memory import MemoryKeyValue
from quartermaster.support import entropy
from quartermaster.testing.simulation.faults import SeededFaults
from quartermaster.testing.simulation.process import Process
from quartermaster.testing.simulation.report import SimulationError, describe_exception
from quartermaster.testing.simulation.run import record, simulation_loop

PROCESS_FAULTS = ("pause", "kill", "stop", "cut-off process", "wrong wall clock", "machine suspended", "compaction")
_STOP_TIMEOUT_S = 60.0


class Chaos:
    """Torments the processes it was given, one fault after the other."""

    def __init__(self, kv: MemoryKeyValue, faults: SeededFaults, *, longest_s: float = 30.0) -> None:
        self.processes: dict[str, Process[None]] = {}
        self.counts = dict.fromkeys(PROCESS_FAULTS, 0)
        self._kv = kv
        self._faults = faults
        self._longest_s = longest_s
        self._factories: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {}

    def start(self, name: str, factory: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run `factory()` as a process; again after each crash."""
        self._factories[name] = factory
        self.processes[name] = simulation_loop().start_process(name, factory())

    async def torment(self, *, faults: int, mean_gap_s: float, least_steps: int = 0) -> None:
        """So many faults, at random moments, to random processes; more if the run has not had so many steps by then."""
        source, loop = entropy.source(), simulation_loop()
        done = 0
        while done < faults or loop.steps < least_steps:
            done += 1
            await asyncio.sleep(source.expovariate(1 / mean_gap_s))
            name = source.choice(list(self.processes))
            kind = source.choice(PROCESS_FAULTS)
            record("fault", kind, name)
            self.counts[kind] += 1
            await self._inflict(kind, name, source.random() * self._longest_s)

    def calm(self) -> None:
        """From now on nothing goes wrong, and whoever is paused goes on."""
        self._faults.calm()
        for process in self.processes.values():
            process.resume()

    async def stop(self) -> None:
        """End all processes in an orderly way."""
        for name in self.processes:
            await self._end(name)

    async def _inflict(self, kind: str, name: str, seconds: float) -> None:
        process = self.processes[name]
        match kind:
            case "pause":
                process.pause(seconds)
            case "kill":
                process.kill()
                await self._restart(name, seconds / 10)
            case "stop":
                await self._end(name)
                await self._restart(name, seconds / 10)
            case "cut-off process":
                self._faults.cut_off(name, seconds)
            case "wrong wall clock":
                process.wall_offset_s = (seconds - self._longest_s / 2) * 1_000
            case "machine suspended":
                simulation_loop().jump(seconds)
            case "compaction":
                await self._kv.compact(await self._kv.revision())

    async def _restart(self, name: str, after_s: float) -> None:
        await asyncio.sleep(after_s)
        if not self.processes[name].task.done():
            self.processes[name].kill()  # somebody else may have started it meanwhile
        self.processes[name] = simulation_loop().start_process(name, self._factories[name]())

    async def _end(self, name: str) -> None:
        process = self.processes[name]
        process.resume()
        process.task.cancel()
        await asyncio.wait([process.task], timeout=_STOP_TIMEOUT_S)
        if not process.task.done():
            raise SimulationError(f"cannot stop {name}: it runs on {_STOP_TIMEOUT_S:.0f} s after it was cancelled")
        self.check(name)

    def check(self, name: str) -> None:
        """A process may end by being told to, and not by an error of its own."""
        task = self.processes[name].task
        if task.done() and not task.cancelled() and (error := task.exception()) is not None:
            raise SimulationError(f"cannot go on: {name} failed: {describe_exception(error)}") from error
