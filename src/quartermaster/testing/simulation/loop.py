"""An event loop with virtual time whose every choice follows from one seed.

It never waits and touches nothing outside: when no callback is ready, time jumps to the next timer. Which of the
ready callbacks runs next is drawn from the seed, so each seed is one interleaving, and the same one every time.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import heapq
import random
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, NoReturn, TypeVar, TypeVarTuple

from quartermaster.testing.simulation.process import PROCESS, Process
from quartermaster.testing.simulation.report import SimulationError, describe_exception, describe_task

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")
Record = tuple[Any, ...]

# 2026-01-01T00:00:00Z; any fixed day would do
WALL_START_S = 1_767_225_600.0
_TASKS_BETWEEN_PRUNINGS = 1_000
_CANCELLED_TIMERS_KEPT = 100
_STEPS_BETWEEN_COLLECTIONS = 200_000


class SimulationTask(asyncio.Task[T]):
    """A task whose hash is its number: the sets of tasks that asyncio itself keeps then have the same order again."""

    def __init__(self, number: int, process: Process[Any] | None, coroutine: Any, **facts: Any) -> None:
        self.number = number
        self.process = process
        super().__init__(coroutine, **facts)

    def __hash__(self) -> int:
        return self.number


class SimulationLoop(asyncio.BaseEventLoop):
    """See the module. `random` and `wall_time` are what `support.entropy` and `support.clock` look for in a loop."""

    _ready: list[asyncio.Handle]
    _stopping: bool

    def __init__(self, seed: int, *, shuffle: bool = True, max_steps: int = 1_000_000) -> None:
        super().__init__()
        self.seed = seed
        self.random = random.Random(seed)
        self.steps = 0
        self.fingerprint = 0  # of every scheduling decision, so that a difference shows even where nothing is recorded
        self.trace: list[Record] = []
        self.problems: list[str] = []
        self._order = random.Random(f"order of {seed}") if shuffle else None
        self._max_steps = max_steps
        self._now = 0.0
        self._ready = []
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._timers_set = 0
        self._timers_cancelled = 0
        self._tasks: dict[int, SimulationTask[Any]] = {}
        self._tasks_started = 0
        self._processes: list[Process[Any]] = []
        self._generators: dict[int, tuple[weakref.ref[AsyncGenerator[Any, Any]], Process[Any] | None]] = {}

    def time(self) -> float:
        return self._now

    def wall_time(self) -> float:
        """Seconds since 1970, as the clock of the current process shows them."""
        process = PROCESS.get()
        return WALL_START_S + self._now + (process.wall_offset_s if process else 0.0)

    def jump(self, seconds: float) -> None:
        """The whole world was suspended for so long: every timer that fell due meanwhile is late."""
        self._now += seconds

    def record(self, *parts: Any) -> None:
        """Add a line to the trace: the time, the process and `parts`, which should be plain values."""
        process = PROCESS.get()
        self.trace.append((round(self._now, 6), process.name if process else "", *parts))

    def start_process(self, name: str, work: Coroutine[Any, Any, T]) -> Process[T]:
        """Start the first task of a process; whatever it starts belongs to the process too."""
        process: Process[T] = Process(name, self.run_again)
        context = contextvars.copy_context()
        context.run(PROCESS.set, process)
        process.task = self.create_task(work, name=name, context=context)
        self._processes.append(process)
        return process

    def create_task(self, coro: Any, *, name: object = None, context: Any = None, **_: Any) -> asyncio.Task[Any]:
        number = self._tasks_started = self._tasks_started + 1
        if number % _TASKS_BETWEEN_PRUNINGS == 0:
            self._tasks = {n: t for n, t in self._tasks.items() if not t.done() or t._log_traceback}
        process = PROCESS.get() if context is None else context.get(PROCESS)
        task: SimulationTask[Any] = SimulationTask(
            number, process, coro, loop=self, name=str(name or f"task-{number}"), context=context
        )
        # asyncio holds tasks weakly: one that nobody awaits would vanish whenever the collector happens to run
        self._tasks[number] = task
        return task

    def call_at(
        self,
        when: float,
        callback: Callable[[*Arguments], object],
        *args: *Arguments,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._timers_set += 1
        heapq.heappush(self._timers, (when, self._timers_set, handle))
        return handle

    def run_again(self, handles: list[asyncio.Handle]) -> None:
        """Callbacks that were ready once and held back."""
        self._ready.extend(handles)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        text = str(context.get("message", "unhandled exception"))
        self.problems.append(f"{text}: {describe_exception(error)}" if isinstance(error, BaseException) else text)

    def leftover_tasks(self) -> list[asyncio.Task[Any]]:
        """Tasks that are not done, in the order in which they were started, without those of killed processes."""
        tasks = [task for task in self._tasks.values() if not task.done()]
        return [task for task in tasks if task.process is None or not task.process.killed]

    def unretrieved_errors(self) -> list[str]:
        """Failed tasks whose error nobody looked at; asking settles them."""
        found = []
        for task in self._tasks.values():
            if task.done() and task._log_traceback:
                task._log_traceback = False
                error = task.exception()
                assert error is not None
                found.append(f"{task.get_name()} failed and nobody looked: {describe_exception(error)}")
        return found

    def open_generators(self) -> list[AsyncGenerator[Any, Any]]:
        """Async generators that were started and neither ended nor closed, without those of killed processes."""
        entries = [(reference(), process) for reference, process in self._generators.values()]
        alive = [generator for generator, process in entries if generator and not (process and process.killed)]
        return [generator for generator in alive if generator.ag_frame is not None]  # type: ignore[attr-defined]

    def unwind(self, max_steps: int = 100_000) -> None:
        """Cancel whatever is left, or it would unwind later, in the middle of some other run."""
        self._max_steps = self.steps + max_steps
        for process in self._processes:
            process.revive()
        leftover = self.leftover_tasks()
        for task in leftover:
            task.cancel()
        # What refuses to end was reported already, or something worse was.
        with contextlib.suppress(SimulationError):
            if leftover:
                self.run_until_complete(asyncio.wait(leftover))
            for generator in self.open_generators():
                self.run_until_complete(generator.aclose())
        self.unretrieved_errors()

    def _run_once(self) -> None:
        """One callback. Time moves only when there is none."""
        if not self._ready or (self._timers and self._timers[0][0] <= self._now):
            self._wake_timers()
        ready = self._ready
        count = len(ready)
        if self._order is not None and count > 1:
            chosen = int(self._order.random() * count)
            ready[chosen], ready[-1] = ready[-1], ready[chosen]
            handle = ready.pop()
            self.fingerprint = (self.fingerprint * 1_000_003 + count * 8_191 + chosen) & 0xFFFFFFFFFFFFFFFF
        else:
            handle = ready.pop(0)
        if handle.cancelled():
            return
        process: Process[Any] | None = handle._context.get(PROCESS)  # type: ignore[attr-defined]
        if process is not None and process.holds(handle):
            return
        self.steps += 1
        if self.steps > self._max_steps:
            self._fail(f"it is not over after {self._max_steps} steps", "raise max_steps if that is too few")
        if self.steps % _STEPS_BETWEEN_COLLECTIONS == 0:
            gc.collect()
        handle._run()

    def _wake_timers(self) -> None:
        timers = self._timers
        while timers and timers[0][2].cancelled():
            heapq.heappop(timers)
            self._timers_cancelled -= 1
        if not self._ready:
            if not timers:
                self._fail("nothing is ready and no timer is set: a deadlock", "the lines below say who waits where")
            self._now = max(self._now, timers[0][0])
            self.fingerprint = (self.fingerprint * 1_000_003 + hash(self._now)) & 0xFFFFFFFFFFFFFFFF
        while timers and timers[0][0] <= self._now:
            handle = heapq.heappop(timers)[2]
            if handle.cancelled():
                self._timers_cancelled -= 1
            else:
                self._ready.append(handle)

    def _fail(self, cause: str, hint: str) -> NoReturn:
        waiting = [describe_task(task) for task in self.leftover_tasks()]
        raise SimulationError(
            f"cannot finish the simulation of seed {self.seed} at step {self.steps}, {self._now:.3f} s: {cause}",
            [*self.problems, *waiting],
            hint=hint,
        )

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:  # noqa: ARG002
        self._timers_cancelled += 1
        if self._timers_cancelled > _CANCELLED_TIMERS_KEPT and self._timers_cancelled * 2 > len(self._timers):
            self._timers = [timer for timer in self._timers if not timer[2].cancelled()]
            heapq.heapify(self._timers)
            self._timers_cancelled = 0

    def _asyncgen_firstiter_hook(self, agen: AsyncGenerator[Any, Any]) -> None:
        key = id(agen)
        self._generators[key] = weakref.ref(agen, lambda _: self._generators.pop(key, None)), PROCESS.get()

    def _asyncgen_finalizer_hook(self, agen: AsyncGenerator[Any, Any]) -> None:
        # When the collector comes by is nobody's decision, so whatever the generator's `finally` does is not exact.
        self.problems.append(f"{generator_name(agen)} was dropped without aclose(); use contextlib.aclosing")
        if not self.is_closed():
            self.call_soon(self.create_task, agen.aclose())

    def _process_events(self, event_list: list[Any]) -> None:
        """There is no selector."""

    def _write_to_self(self) -> None:
        """There is no selector to wake."""


def generator_name(generator: AsyncGenerator[Any, Any]) -> str:
    return f"async generator {getattr(generator, '__qualname__', generator)}"


def _refuse(name: str) -> Callable[..., NoReturn]:
    def refused(*_: Any, **__: Any) -> NoReturn:
        raise SimulationError(
            f"cannot call {name}() in a simulation: it reaches outside of virtual time",
            hint="give the code under test a part that lives in memory",
        )

    return refused


_OUTSIDE = (
    "add_reader remove_reader add_writer remove_writer add_signal_handler remove_signal_handler run_in_executor "
    "getaddrinfo getnameinfo create_connection create_server create_unix_connection create_unix_server "
    "create_datagram_endpoint connect_read_pipe connect_write_pipe subprocess_exec subprocess_shell start_tls sendfile "
    "sock_recv sock_recv_into sock_recvfrom sock_sendall sock_sendto sock_connect sock_accept sock_sendfile"
)
for _outside in _OUTSIDE.split():
    setattr(SimulationLoop, _outside, _refuse(_outside))
