"""Silence is the leader's own time since a heartbeat changed; the store is asked before it is believed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from quartermaster.orchestration.health import Heartbeats
from quartermaster.orchestration.timings import Timings
from quartermaster.support.errors import UnavailableError
from quartermaster.support.tasks import TaskGroup
from quartermaster.testing.simulation import simulated

TIMINGS = Timings(unhealthy_after_s=30.0, move_data_after_s=600.0)


class Watched:
    def __init__(self) -> None:
        self.stored: dict[str, str] = {}
        self.down = False
        self.asked: list[str] = []
        self.changed: list[str] = []
        self.health = Heartbeats(TIMINGS, self.changed.append)

    async def read(self, host: str) -> str:
        self.asked.append(host)
        if self.down:
            raise UnavailableError("cannot read: the store is away")
        return self.stored.get(host, "")

    def beat(self, host: str, version: str) -> None:
        self.stored[host] = version
        self.health.heard(host, version)


@asynccontextmanager
async def watched() -> AsyncIterator[Watched]:
    async with TaskGroup() as group:
        made = Watched()
        group.start(made.health.run(made.read))
        yield made
        group.cancel()


@simulated()
async def test_a_host_is_healthy_then_unhealthy_then_lost() -> None:
    async with watched() as made:
        made.beat("h1", "1")
        await asyncio.sleep(29.0)
        assert made.health.of("h1").healthy
        await asyncio.sleep(2.0)
        assert not made.health.of("h1").healthy
        assert not made.health.of("h1").lost
        assert made.health.of("h1").silent_s == 31.0
        await asyncio.sleep(570.0)
        assert made.health.of("h1").lost
        assert made.changed == ["h1", "h1"]


@simulated()
async def test_a_host_that_beats_wakes_nobody() -> None:
    async with watched() as made:
        for number in range(100):
            made.beat("h1", str(number))
            await asyncio.sleep(5.0)
        assert made.changed == []
        assert made.asked == []


@simulated()
async def test_the_same_heartbeat_again_is_no_sign_of_life() -> None:
    async with watched() as made:
        for _ in range(10):
            made.beat("h1", "1")
            await asyncio.sleep(5.0)
        assert not made.health.of("h1").healthy


@simulated()
async def test_a_host_that_is_heard_again_is_healthy_at_once() -> None:
    async with watched() as made:
        made.beat("h1", "1")
        await asyncio.sleep(700.0)
        made.beat("h1", "2")
        state = made.health.of("h1")
        assert (state.healthy, state.lost, state.silent_s) == (True, False, 0.0)
        assert made.changed == ["h1"] * 3


@simulated()
async def test_a_watch_that_is_late_makes_no_host_unhealthy() -> None:
    async with watched() as made:
        made.beat("h1", "1")
        made.stored["h1"] = "2"  # written, and not delivered yet
        await asyncio.sleep(31.0)
        assert made.health.of("h1").healthy
        assert made.asked == ["h1"]


@simulated()
async def test_while_the_store_does_not_answer_nobody_becomes_unhealthy() -> None:
    async with watched() as made:
        made.beat("h1", "1")
        made.down = True
        await asyncio.sleep(60.0)
        assert made.health.of("h1").healthy
        made.down = False
        await asyncio.sleep(5.0)
        assert not made.health.of("h1").healthy


@simulated()
async def test_a_host_without_any_heartbeat_has_its_grace_first() -> None:
    async with watched() as made:
        made.health.known("h1")
        await asyncio.sleep(29.0)
        assert made.health.of("h1").healthy
        await asyncio.sleep(2.0)
        assert not made.health.of("h1").healthy


@simulated()
async def test_a_cluster_with_times_of_its_own_is_told_when_they_pass() -> None:
    async with watched() as made:
        made.beat("h1", "1")
        assert made.health.of("h1", unhealthy_after_s=3.0, move_data_after_s=10.0).healthy
        await asyncio.sleep(3.5)
        assert made.changed == ["h1"]
        assert not made.health.of("h1", unhealthy_after_s=3.0, move_data_after_s=10.0).healthy
        assert made.health.of("h1").healthy
        await asyncio.sleep(7.0)
        assert made.health.of("h1", unhealthy_after_s=3.0, move_data_after_s=10.0).lost
        assert made.changed == ["h1", "h1"]


@simulated()
async def test_a_time_that_is_asked_for_late_still_passes() -> None:
    async with watched() as made:
        made.beat("h1", "1")
        await asyncio.sleep(40.0)
        made.health.of("h1", unhealthy_after_s=20.0, move_data_after_s=35.0)
        await asyncio.sleep(0.1)
        assert made.health.of("h1", unhealthy_after_s=20.0, move_data_after_s=35.0).lost


@simulated()
async def test_a_host_that_was_removed_is_forgotten() -> None:
    async with watched() as made:
        made.beat("h1", "1")
        made.health.forget("h1")
        await asyncio.sleep(700.0)
        assert len(made.health) == 0
        assert made.changed == []


@simulated()
async def test_many_hosts_fall_silent_at_the_same_moment() -> None:
    async with watched() as made:
        for number in range(250):
            made.beat(f"h{number}", "1")
        await asyncio.sleep(31.0)
        assert len(made.changed) == 250
        assert not any(made.health.of(f"h{number}").healthy for number in range(250))
