"""Run a coroutine under a seed, and insist that it leaves nothing behind."""

from __future__ import annotations

import asyncio
import functools
import gc
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Generic, TypeVar

import msgspec

from quartermaster.testing.simulation.loop import Record, SimulationLoop, generator_name
from quartermaster.testing.simulation.report import SimulationError, describe_task

T = TypeVar("T")


class Run(msgspec.Struct, Generic[T], frozen=True):
    """What came of a run. Two runs of one seed are equal in everything."""

    value: T
    seed: int
    steps: int
    time_s: float
    fingerprint: int
    trace: tuple[Record, ...]


def run(
    main: Callable[[], Coroutine[Any, Any, T]],
    *,
    seed: int,
    shuffle: bool = True,
    max_steps: int = 1_000_000,
    trace: list[Record] | None = None,
) -> Run[T]:
    """Run `main()` to its end in virtual time.

    Its error is raised as it is, with the seed as a note. SimulationError says that it hangs, takes more than
    `max_steps` callbacks, or ended leaving tasks, unseen errors or open generators. `shuffle=False` keeps asyncio's
    own order of callbacks. `trace` is filled while it runs, for those who want it although the run fails.
    """
    loop = SimulationLoop(seed, shuffle=shuffle, max_steps=max_steps)
    if trace is not None:
        loop.trace = trace
    collecting = gc.isenabled()
    # Finalizers run where the collector happens to; without it they run where the last reference goes.
    gc.disable()
    try:
        try:
            value = loop.run_until_complete(main())
        except SimulationError:
            raise
        except BaseException as error:
            error.add_note(f"in the simulation of seed {seed}, at step {loop.steps}, {loop.time():.3f} s")
            raise
        result = Run(value, seed, loop.steps, loop.time(), loop.fingerprint, tuple(loop.trace))
        _check_clean(loop)
        return result
    finally:
        loop.unwind()
        loop.close()
        if collecting:
            gc.enable()


def record(*parts: Any) -> None:
    """Add a line to the trace of the running simulation; outside of one, nothing."""
    loop = asyncio.get_running_loop()
    if isinstance(loop, SimulationLoop):
        loop.record(*parts)


def simulation_loop() -> SimulationLoop:
    """The running loop, for code that only makes sense in a simulation."""
    loop = asyncio.get_running_loop()
    if not isinstance(loop, SimulationLoop):
        raise SimulationError("cannot find the simulation: the running loop is another one", hint="use simulation.run")
    return loop


def simulated(
    seeds: Iterable[int] = (1,), *, max_steps: int = 1_000_000
) -> Callable[[Callable[..., Coroutine[Any, Any, None]]], Callable[..., None]]:
    """Make an `async def test_…` run in a simulation, once per seed."""
    chosen = tuple(seeds)

    def decorate(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
        @functools.wraps(test)
        def wrapper(*args: Any, **kwargs: Any) -> None:
            for seed in chosen:
                run(functools.partial(test, *args, **kwargs), seed=seed, max_steps=max_steps)

        return wrapper

    return decorate


def _check_clean(loop: SimulationLoop) -> None:
    problems = [
        *loop.problems,
        *loop.unretrieved_errors(),
        *(f"a task was left running: {describe_task(task)}" for task in loop.leftover_tasks()),
        *(f"{generator_name(g)} was left open; use contextlib.aclosing" for g in loop.open_generators()),
    ]
    if problems:
        raise SimulationError(f"cannot accept the simulation of seed {loop.seed}: it did not end cleanly", problems)
