"""What the benchmark of GlusterFS makes of its times."""

from __future__ import annotations

import pytest

from bench.glusterfs import Cut, Times, summarise
from bench.running import BenchFailedError

FLOOR = [Times(10.0, 4.0), Times(20.0, 4.0), Times(10.0, 4.0)]


def test_each_run_is_compared_with_the_one_beside_it() -> None:
    """The second pair had a slow minute: the median of ours over the median of the floor would be 1.3."""
    cluster, volume = summarise(FLOOR, [Times(13.0, 4.0), Times(22.0, 5.0), Times(11.0, 6.0)]).bars
    assert cluster.figure == pytest.approx(1.1)
    assert cluster.held
    assert (cluster.spread, cluster.peer) == ("1.10 to 1.30", "")
    assert volume.figure == pytest.approx(1.25)


def test_a_ratio_over_the_bar_is_missed() -> None:
    cluster, _ = summarise(FLOOR, [Times(13.0, 4.0), Times(26.0, 4.0), Times(11.0, 4.0)]).bars
    assert cluster.verdict == "MISSED"


def test_a_run_without_one_beside_it_is_no_result() -> None:
    with pytest.raises(BenchFailedError):
        summarise(FLOOR, FLOOR[:2])


def test_the_table_shows_how_far_the_runs_are_apart() -> None:
    section = summarise(FLOOR, FLOOR, Times(21.0, 3.0), [Cut(gap_s=10.5, shown_s=4.0)])
    assert section.tables[0].rows[0] == ("bare commands", "10.0 s (10.0 to 20.0)", "4.00 s (4.00 to 4.00)")
    assert section.tables[0].rows[-1][1:] == ("21.0 s", "3.00 s")
    assert [bar.held for bar in section.bars[2:]] == [True, True]


def test_of_three_cuts_the_median_counts_and_all_are_shown() -> None:
    """The first one may have cut off who led the store."""
    cuts = [Cut(gap_s=10.5, shown_s=7.5), Cut(gap_s=13.0, shown_s=4.5), Cut(gap_s=10.7, shown_s=5.0)]
    gap, shown = summarise(FLOOR, FLOOR, cuts=cuts).bars[2:]
    assert (gap.figure, gap.spread, gap.held) == (10.7, "10.5, 13.0, 10.7", True)
    assert (shown.figure, shown.spread, shown.held) == (5.0, "7.50, 4.50, 5.00", True)


def test_the_status_has_the_grace_time_and_one_refresh() -> None:
    late = [Cut(gap_s=10.5, shown_s=6.1)] * 3
    assert [bar.verdict for bar in summarise(FLOOR, FLOOR, cuts=late).bars[2:]] == ["held", "MISSED"]
