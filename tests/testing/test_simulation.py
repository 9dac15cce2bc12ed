"""The simulation loop: virtual time, interleavings from a seed, exact replay, and nothing left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncGenerator

import pytest

from quartermaster.stores.kv.base import Compare, Put
from quartermaster.stores.kv.memory import PROGRESS_S, MemoryKeyValue
from quartermaster.support import clock, entropy
from quartermaster.support.errors import ExpiredError, UnavailableError
from quartermaster.support.tasks import TaskGroup
from quartermaster.testing.simulation import (
    Chaos,
    Rates,
    Run,
    SeededFaults,
    SimulationError,
    record,
    run,
    simulated,
    simulation_loop,
)
from quartermaster.testing.simulation.chaos import PROCESS_FAULTS


async def busy() -> list[str]:
    """Uses what the engine uses: queue, event, condition, gather, wait, timeout, groups and sets of tasks."""
    queue: asyncio.Queue[int] = asyncio.Queue(maxsize=3)
    condition = asyncio.Condition()
    seen: list[str] = []

    async def produce(name: int) -> None:
        for number in range(10):
            await queue.put(name * 100 + number)
            await asyncio.sleep(entropy.source().random())

    async def consume(name: str) -> None:
        while True:
            try:
                async with asyncio.timeout(4):
                    item = await queue.get()
            except TimeoutError:
                record("idle", name)
                return
            record(name, item, entropy.new_uid())
            async with condition:
                seen.append(f"{name}{item}")
                condition.notify_all()

    async def wait_for(count: int) -> None:
        async with condition:
            await condition.wait_for(lambda: len(seen) >= count)
        record("saw", count)

    async with TaskGroup() as group:
        for name in range(3):
            group.start(produce(name))
            group.start(consume("abc"[name]))
        for count in (5, 10, 20):
            group.start(wait_for(count))
    tasks = {asyncio.ensure_future(asyncio.sleep(delay, delay)) for delay in (3, 1, 2)}
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    record("set order", *[task.get_name() for task in tasks], len(done))
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
    async with asyncio.TaskGroup() as unordered:
        for number in range(5):
            unordered.create_task(asyncio.sleep(0.1 * number))
    return seen


def digest(result: Run[list[str]]) -> str:
    return f"{result.steps} {result.time_s} {result.fingerprint} {result.trace}"


class TestVirtualTime:
    def test_a_day_passes_at_once(self) -> None:
        assert run(lambda: asyncio.sleep(86_400, "done"), seed=1).time_s == 86_400

    @simulated()
    async def test_timers_fire_in_the_order_of_their_time(self) -> None:
        order: list[int] = []
        for delay in (3, 1, 2):
            asyncio.get_running_loop().call_later(delay, order.append, delay)
        await asyncio.sleep(4)
        assert order == [1, 2, 3]

    @simulated()
    async def test_a_cancelled_timer_never_fires(self) -> None:
        fired: list[int] = []
        loop = asyncio.get_running_loop()
        for handle in [loop.call_later(1, fired.append, number) for number in range(500)]:
            handle.cancel()
        await asyncio.sleep(2)
        assert fired == []

    @simulated()
    async def test_the_wall_clock_starts_on_a_fixed_day_and_follows(self) -> None:
        assert clock.timestamp() == "2026-01-01T00:00:00Z"
        await asyncio.sleep(90)
        assert clock.timestamp() == "2026-01-01T00:01:30Z"

    @simulated()
    async def test_a_jump_makes_timers_late(self) -> None:
        simulation_loop().jump(100)
        await asyncio.sleep(1)
        assert clock.monotonic() == 101

    @simulated()
    async def test_a_timeout_ends_a_wait_that_nothing_else_ends(self) -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 5)
        assert clock.monotonic() == 5


class TestReplay:
    def test_the_same_seed_gives_the_same_run(self) -> None:
        assert [run(busy, seed=seed) for seed in range(20)] == [run(busy, seed=seed) for seed in range(20)]

    def test_another_seed_gives_another_interleaving(self) -> None:
        async def race() -> str:
            order: list[str] = []

            async def arrive(name: str) -> None:
                await asyncio.sleep(1)
                order.append(name)

            await asyncio.gather(*map(arrive, "abc"))
            return "".join(order)

        assert len({run(race, seed=seed).value for seed in range(60)}) == 6
        assert len({run(race, seed=seed, shuffle=False).value for seed in range(10)}) == 1

    @pytest.mark.slow
    def test_replay_is_exact_in_another_process_with_another_hash_seed(self) -> None:
        program = (
            "from tests.testing.test_simulation import busy, digest, run\n"
            "for seed in range(5): print(digest(run(busy, seed=seed)))"
        )
        outputs = [
            subprocess.run(
                [sys.executable, "-c", program],
                env={**os.environ, "PYTHONHASHSEED": hash_seed},
                capture_output=True,
                text=True,
                check=True,
                timeout=60,
            ).stdout
            for hash_seed in ("1", "2")
        ]
        here = "".join(digest(run(busy, seed=seed)) + "\n" for seed in range(5))
        assert outputs == [here, here]


class TestWhatGoesWrong:
    def test_a_deadlock_is_an_error_that_says_who_waits_where(self) -> None:
        async def forever() -> None:
            await asyncio.Event().wait()

        async def main() -> None:
            async with TaskGroup() as group:
                group.start(forever(), name="the stuck one")

        with pytest.raises(
            SimulationError, match=r"seed 7 .*deadlock(.|\n)*the stuck one waits in wait \(asyncio/locks"
        ):
            run(main, seed=7)

    def test_a_run_that_never_ends_is_stopped(self) -> None:
        async def spin() -> None:
            while True:
                await asyncio.sleep(0)

        with pytest.raises(SimulationError, match="not over after 500 steps"):
            run(spin, seed=1, max_steps=500)

    def test_an_error_of_the_scenario_is_raised_as_it_is_with_the_seed(self) -> None:
        async def fail() -> None:
            await asyncio.sleep(2)
            raise ValueError("broken")

        with pytest.raises(ValueError, match="broken") as caught:
            run(fail, seed=42)
        assert caught.value.__notes__ == ["in the simulation of seed 42, at step 4, 2.000 s"]

    def test_an_error_that_nobody_looks_at_is_found(self) -> None:
        async def fail() -> None:
            raise ValueError("unseen")

        async def main() -> None:
            simulation_loop().create_task(fail())
            await asyncio.sleep(1)

        with pytest.raises(SimulationError, match=r"task-2 failed and nobody looked: ValueError: unseen \(testing/"):
            run(main, seed=1)

    def test_an_error_in_a_callback_is_found(self) -> None:
        async def main() -> None:
            asyncio.get_running_loop().call_soon(lambda: 1 / 0)
            await asyncio.sleep(1)

        with pytest.raises(SimulationError, match="ZeroDivisionError"):
            run(main, seed=1)

    def test_a_task_that_is_left_running_is_found_and_ended(self) -> None:
        ended: list[str] = []

        async def linger() -> None:
            try:
                await asyncio.sleep(1_000)
            finally:
                ended.append("linger")

        async def main() -> None:
            simulation_loop().create_task(linger())
            await asyncio.sleep(1)

        with pytest.raises(SimulationError, match="left running: task-2 waits in sleep"):
            run(main, seed=1)
        assert ended == ["linger"]

    def test_a_generator_that_is_dropped_without_closing_is_found(self) -> None:
        async def count() -> AsyncGenerator[int, None]:
            for number in range(10):
                yield number

        async def leave_early() -> None:
            async for _ in count():
                break

        async def close() -> None:
            async with contextlib.aclosing(count()) as numbers:
                async for _ in numbers:
                    break

        kept = []

        async def keep() -> None:
            kept.append(count())
            await anext(kept[0])

        run(close, seed=1)
        with pytest.raises(SimulationError, match=r"count was dropped without aclose\(\)"):
            run(leave_early, seed=1)
        with pytest.raises(SimulationError, match="count was left open"):
            run(keep, seed=1)

    @simulated()
    async def test_what_reaches_outside_is_refused(self) -> None:
        loop = asyncio.get_running_loop()
        with pytest.raises(SimulationError, match=r"cannot call run_in_executor\(\) in a simulation"):
            await asyncio.to_thread(print)
        with pytest.raises(SimulationError, match="add_reader"):
            loop.add_reader(0, print)
        with pytest.raises(SimulationError, match="create_connection"):
            await asyncio.open_connection("127.0.0.1", 1)
        with pytest.raises(SimulationError, match="subprocess_exec"):
            await asyncio.create_subprocess_exec("true")


class TestProcesses:
    @simulated(range(20))
    async def test_a_paused_process_does_nothing_and_then_goes_on_late(self) -> None:
        async def tick() -> list[float]:
            times = []
            for _ in range(4):
                await asyncio.sleep(1)
                times.append(clock.monotonic())
            return times

        loop = simulation_loop()
        process, other = loop.start_process("paused", tick()), loop.start_process("other", tick())
        await asyncio.sleep(1.5)
        process.pause(10)
        assert await process.task == [1, 11.5, 12.5, 13.5]
        assert await other.task == [1, 2, 3, 4]

    @simulated(range(20))
    async def test_a_killed_process_runs_nothing_more_not_even_its_cleanup(self) -> None:
        did: list[str] = []

        async def child() -> None:
            await asyncio.sleep(2)
            did.append("child")

        async def parent() -> None:
            try:
                async with TaskGroup() as group:
                    group.start(child())
            finally:
                did.append("cleanup")

        process = simulation_loop().start_process("victim", parent())
        await asyncio.sleep(1)
        process.kill()
        await asyncio.sleep(10)
        assert did == []

    @simulated()
    async def test_a_process_may_have_a_wrong_wall_clock(self) -> None:
        async def read() -> str:
            await asyncio.sleep(1)
            return clock.timestamp()

        process = simulation_loop().start_process("late", read())
        process.wall_offset_s = -3_600
        assert await process.task == "2025-12-31T23:00:01Z"
        assert clock.timestamp() == "2026-01-01T00:00:01Z"


class TestSeededFaults:
    """Faults of calls, on the memory store."""

    def test_an_error_before_the_write_means_that_it_did_not_happen(self) -> None:
        async def main() -> None:
            kv = MemoryKeyValue()
            SeededFaults(kv, Rates(error_before=1))
            with pytest.raises(UnavailableError):
                await kv.transact([], [Put("a", b"1")])
            kv.faults = None
            assert await kv.get("a") is None

        run(main, seed=1)

    def test_an_error_after_the_write_means_that_it_did(self) -> None:
        async def main() -> None:
            kv = MemoryKeyValue()
            SeededFaults(kv, Rates(error_after=1))
            with pytest.raises(UnavailableError):
                await kv.transact([], [Put("a", b"1")])
            kv.faults = None
            assert await kv.get("a") is not None

        run(main, seed=1)

    def test_a_conflict_is_another_writer_who_came_first(self) -> None:
        async def main() -> None:
            kv = MemoryKeyValue()
            await kv.transact([], [Put("a", b"1")])
            entry = await kv.get("a")
            assert entry is not None
            SeededFaults(kv, Rates(conflict=1))
            outcome = await kv.transact([Compare("a", modified=entry.modified)], [Put("a", b"2")])
            overtaken = outcome.current["a"]
            assert not outcome.succeeded
            assert overtaken is not None
            assert (overtaken.value, overtaken.modified) == (b"1", entry.modified + 1)

        run(main, seed=1)

    def test_a_watch_is_late_dropped_or_expired_and_never_wrong(self) -> None:
        async def main() -> dict[str, int]:
            kv = MemoryKeyValue()
            faults = SeededFaults(kv, Rates(delivery_delay=0.3, watch_dropped=0.2, watch_expired=0.1))
            seen: list[int] = []

            async def watch() -> None:
                after = 1
                while len(seen) < 30:
                    try:
                        async with contextlib.aclosing(kv.watch("a", "b", after=after)) as batches:
                            async for batch in batches:
                                seen.extend(change.revision for change in batch.changes)
                                after = batch.revision
                    except (UnavailableError, ExpiredError):
                        await asyncio.sleep(0.1)

            watcher = simulation_loop().start_process("watcher", watch())
            for number in range(30):
                await asyncio.sleep(0.3)
                await kv.transact([], [Put(f"a{number}", b"")])
            await asyncio.sleep(60)
            watcher.task.cancel()
            await asyncio.wait([watcher.task])
            assert seen == list(range(2, 32))
            return faults.counts

        counts = [run(main, seed=seed).value for seed in range(10)]
        for kind in ("delivery-delay", "watch-dropped", "watch-expired"):
            assert sum(count[kind] for count in counts) > 0

    @simulated(range(20))
    async def test_a_change_in_the_very_moment_of_a_bookmark_is_delivered(self) -> None:
        kv = MemoryKeyValue()
        seen: list[int] = []

        async def watch() -> None:
            async with contextlib.aclosing(kv.watch("a", "b", after=1)) as batches:
                async for batch in batches:
                    seen.extend(change.revision for change in batch.changes)

        watcher = simulation_loop().start_process("watcher", watch())
        for _ in range(3):
            await asyncio.sleep(PROGRESS_S)
            await kv.transact([], [Put("a", b"")])
        await asyncio.sleep(1)
        watcher.task.cancel()
        await asyncio.wait([watcher.task])
        assert seen == [2, 3, 4]

    @simulated()
    async def test_a_process_that_is_cut_off_gets_no_answer_and_others_do(self) -> None:
        kv = MemoryKeyValue()
        faults = SeededFaults(kv)

        async def read() -> str:
            try:
                await kv.get("a")
            except UnavailableError:
                return "no answer"
            return "answer"

        faults.cut_off("lonely", 10)
        loop = simulation_loop()
        lonely, other = loop.start_process("lonely", read()), loop.start_process("other", read())
        assert (await lonely.task, await other.task) == ("no answer", "answer")
        await asyncio.sleep(10)
        assert await loop.start_process("lonely", read()).task == "answer"

    @simulated()
    async def test_a_lease_ends_although_its_holder_is_paused(self) -> None:
        kv = MemoryKeyValue()

        async def hold() -> None:
            lease = await kv.grant(5)
            await kv.transact([], [Put("held", b"", lease=lease)])
            while await kv.keep_alive(lease):
                await asyncio.sleep(1)

        holder = simulation_loop().start_process("holder", hold())
        await asyncio.sleep(20.5)
        assert await kv.get("held") is not None
        holder.pause(30)
        await asyncio.sleep(6)
        assert await kv.get("held") is None
        await holder.task


class TestChaos:
    def test_every_kind_of_fault_happens_and_processes_come_back(self) -> None:
        async def main() -> dict[str, int]:
            kv = MemoryKeyValue()
            chaos = Chaos(kv, SeededFaults(kv))
            starts: list[str] = []

            async def work(name: str) -> None:
                starts.append(name)
                while True:
                    await asyncio.sleep(1)

            for name in ("a", "b"):
                chaos.start(name, lambda name=name: work(name))
            await chaos.torment(faults=30, mean_gap_s=5)
            await chaos.stop()
            assert len(starts) == 2 + chaos.counts["kill"] + chaos.counts["stop"]
            return chaos.counts

        counts = [run(main, seed=seed).value for seed in range(5)]
        assert all(sum(count[kind] for count in counts) > 0 for kind in PROCESS_FAULTS)

    def test_a_process_that_fails_by_itself_is_an_error(self) -> None:
        async def main() -> None:
            kv = MemoryKeyValue()
            chaos = Chaos(kv, SeededFaults(kv))

            async def fail() -> None:
                raise ValueError("broken")

            chaos.start("a", fail)
            await asyncio.sleep(1)
            await chaos.stop()

        with pytest.raises(SimulationError, match="a failed: ValueError: broken"):
            run(main, seed=1)
