"""The framework of the benchmarks: verdicts, tables, and the page of which each benchmark owns a part."""

from __future__ import annotations

import math

import pytest

from bench.document import INTRODUCTION, replaced, section_text
from bench.machine import Machine
from bench.report import Bar, Plot, Section, Table, bar_line, bars_table, markdown_table, percentile, show, text_table

MACHINE = Machine(cores=2, memory_gib=24.0, processor="CPU", kernel="6.1", python="3.11.7", load=0.1)


def bar(figure: float, rule: str = "at most", limit: float = 10.0) -> Bar:
    return Bar("time", figure, rule, limit, "ms", "peer 40 ms")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("figure", "rule", "held"),
    [
        (9.9, "at most", True),
        (10.0, "at most", True),
        (10.1, "at most", False),
        (9.9, "at least", False),
        (10.0, "at least", True),
        (10.1, "at least", True),
    ],
)
def test_a_bar_is_held_up_to_and_with_its_limit(figure: float, rule: str, held: bool) -> None:
    assert bar(figure, rule).held is held


@pytest.mark.parametrize("rule", ["at most", "at least"])
def test_what_was_not_measured_is_missed(rule: str) -> None:
    assert not bar(math.nan, rule).held


def test_a_bar_is_one_line_with_figure_limit_verdict_and_peer() -> None:
    assert bar_line(bar(2.5)) == "held   time: 2.50 ms (bar ≤ 10.0) | peer 40 ms"
    assert bar_line(bar(2.5, "at least")) == "MISSED time: 2.50 ms (bar ≥ 10.0) | peer 40 ms"


def test_how_far_the_runs_are_apart_stands_with_the_figure_and_not_beside_it() -> None:
    spread = Bar("time", 2.5, "at most", 10.0, "ms", spread="2.40 to 2.90")

    assert bar_line(spread) == "held   time: 2.50 ms (2.40 to 2.90) (bar ≤ 10.0)"
    assert bars_table([spread]).rows == (("time", "2.50 ms (2.40 to 2.90)", "at most 10.0 ms", "held", ""),)


@pytest.mark.parametrize(
    ("figure", "text"),
    [
        (0.0, "0"),
        (0.01234, "0.0123"),
        (1.234, "1.23"),
        (56.78, "56.8"),
        (123.4, "123"),
        (12345.6, "12,346"),
        (-2.345, "-2.35"),
        (math.nan, "not measured"),
    ],
)
def test_figures_are_shown_with_three_digits(figure: float, text: str) -> None:
    assert show(figure) == text


def test_a_percentile_is_a_value_that_occurred() -> None:
    values = [float(number) for number in range(1, 101)]

    assert (percentile(values, 0.5), percentile(values, 0.99), percentile(values, 1.0)) == (50.0, 99.0, 100.0)
    assert percentile([7.0], 0.99) == 7.0
    assert math.isnan(percentile([], 0.5))


def test_a_table_is_padded_in_markdown_and_pipes_are_escaped() -> None:
    table = Table("Rates", ("who", "rate"), (("a|b", "1/s"), ("c", "200/s")))

    assert markdown_table(table).splitlines() == [
        "| who  | rate  |",
        "| ---- | ----- |",
        "| a\\|b | 1/s   |",
        "| c    | 200/s |",
    ]


def test_a_table_on_the_terminal_has_its_title_and_note() -> None:
    table = Table("Rates", ("who", "rate"), (("wrk", "900/s"),), "two runs")

    assert text_table(table) == "Rates\n  who  rate\n  wrk  900/s\n  (two runs)"


def test_a_part_is_put_at_the_end_of_a_page_that_lacks_it() -> None:
    page = replaced(INTRODUCTION, "cli", "text")

    assert page == f"{INTRODUCTION.rstrip()}\n\n<!-- begin cli -->\n\ntext\n\n<!-- end cli -->\n"


def test_a_part_is_replaced_in_place_and_the_others_stay() -> None:
    page = replaced(replaced(INTRODUCTION, "cli", "first text"), "engine", "second text")

    changed = replaced(page, "cli", "third text")

    assert changed == page.replace("first text", "third text")
    assert replaced(changed, "cli", "third text") == changed


def test_a_part_without_its_end_is_not_guessed() -> None:
    with pytest.raises(ValueError, match="its beginning and not its end"):
        replaced("<!-- begin cli -->\ntext", "cli", "new")


def test_a_section_shows_command_machine_versions_bars_tables_and_plots() -> None:
    section = Section(
        name="cli",
        about="What it is.",
        bars=(bar(2.5),),
        tables=(Table("Rates", ("who",), (("wrk",),), "two runs"),),
        plots=(Plot("rates", "Rates", "per second", ("wrk",), {"rate": (1.0,)}),),
        versions=("wrk 4.1.0", "kopf 1.45.2"),
    )

    text = section_text(section, MACHINE)

    for wanted in (
        "    make bench BENCH=cli",
        "2 cores (CPU), 24 GiB, Linux 6.1, Python 3.11.7, load 0.1 before the run; wrk 4.1.0; kopf 1.45.2.",
        "| time | 2.50 ms | at most 10.0 ms | held    | peer 40 ms |",
        "### Rates",
        "two runs",
        "![Rates](benchmarks/rates.svg)",
    ):
        assert wanted in text
