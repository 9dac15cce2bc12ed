"""How long to wait before trying again."""

from __future__ import annotations

import pytest

from quartermaster.support.backoff import Backoff


def test_delays_double_up_to_the_limit() -> None:
    backoff = Backoff(first_s=0.1, limit_s=1.0, jitter=0.0)
    assert [backoff.delay_s(failures) for failures in range(6)] == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0])


def test_jitter_only_lengthens_and_not_by_more_than_its_fraction() -> None:
    backoff = Backoff(first_s=1.0, jitter=0.5)
    delays = [backoff.delay_s(0) for _ in range(200)]
    assert all(1.0 <= delay <= 1.5 for delay in delays)
    assert len(set(delays)) > 1


def test_any_number_of_failures_is_bounded() -> None:
    assert Backoff(limit_s=30.0, jitter=0.0).delay_s(10**9) == 30.0
