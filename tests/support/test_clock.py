"""Time through one door."""

from __future__ import annotations

import asyncio
import time

import pytest

from quartermaster.support import clock
from quartermaster.testing.simulation import simulated


def test_timestamps_are_utc_and_written_as_kubernetes_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 1_767_225_600.25)
    assert clock.timestamp() == "2026-01-01T00:00:00Z"
    assert clock.micro_timestamp() == "2026-01-01T00:00:00.250000Z"


@pytest.mark.parametrize("text", ["2026-01-01T00:00:00Z", "2026-01-01T00:00:00.000000Z", "2026-01-01T02:00:00+02:00"])
def test_a_timestamp_is_read_back_whatever_its_precision_and_zone(text: str) -> None:
    assert clock.parse_timestamp(text) == 1_767_225_600


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01T00:00:00Z"])
def test_what_is_no_timestamp_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):
        clock.parse_timestamp(text)


def test_without_a_loop_it_is_the_systems_clock() -> None:
    before = time.monotonic(), time.time()
    now = clock.monotonic(), clock.wall_time()
    after = time.monotonic(), time.time()
    assert before[0] <= now[0] <= after[0]
    assert before[1] <= now[1] <= after[1]


@simulated()
async def test_in_a_simulation_both_clocks_are_the_loops() -> None:
    start = clock.monotonic(), clock.wall_time()
    await asyncio.sleep(86_400)
    assert (clock.monotonic() - start[0], clock.wall_time() - start[1]) == (86_400, 86_400)
    assert clock.timestamp() == "2026-01-02T00:00:00Z"
