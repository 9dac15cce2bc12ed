"""What a benchmark hands back, and how that looks as text: bars with a verdict, tables, plots to be drawn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import msgspec


class Bar(msgspec.Struct, frozen=True):
    """One promise: a figure, the limit that it has to keep, and what a peer reaches where there is one."""

    name: str
    figure: float
    rule: Literal["at most", "at least"]
    limit: float
    unit: str
    peer: str = ""
    spread: str = ""  # the least and the most of what the figure is the median of

    @property
    def held(self) -> bool:
        if math.isnan(self.figure):
            return False
        return self.figure <= self.limit if self.rule == "at most" else self.figure >= self.limit

    @property
    def verdict(self) -> str:
        return "held" if self.held else "MISSED"


class Table(msgspec.Struct, frozen=True):
    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


class Plot(msgspec.Struct, frozen=True):
    """Horizontal bars: for each label one bar per series."""

    file: str
    title: str
    axis: str
    labels: tuple[str, ...]
    series: dict[str, tuple[float, ...]]
    limit: float | None = None
    logarithmic: bool = False


class Section(msgspec.Struct, frozen=True):
    """All that one benchmark has to say."""

    name: str
    about: str
    bars: tuple[Bar, ...]
    tables: tuple[Table, ...]
    plots: tuple[Plot, ...] = ()
    versions: tuple[str, ...] = ()


def show(figure: float) -> str:
    """Three significant digits, without an exponent; whole numbers with separators."""
    if math.isnan(figure):
        return "not measured"
    if figure == 0 or abs(figure) >= 100:
        return f"{figure:,.0f}"
    digits = 2 - math.floor(math.log10(abs(figure)))
    return f"{figure:.{digits}f}"


def bar_line(bar: Bar) -> str:
    """One line for the terminal."""
    peer = f" | {bar.peer}" if bar.peer else ""
    sign = "≤" if bar.rule == "at most" else "≥"
    return f"{bar.verdict:<6} {bar.name}: {_figure(bar)} (bar {sign} {show(bar.limit)}){peer}"


def _figure(bar: Bar) -> str:
    spread = f" ({bar.spread})" if bar.spread else ""
    return f"{show(bar.figure)} {bar.unit}{spread}"


def bars_table(bars: Sequence[Bar]) -> Table:
    rows = tuple(
        (bar.name, _figure(bar), f"{bar.rule} {show(bar.limit)} {bar.unit}", bar.verdict, bar.peer) for bar in bars
    )
    return Table("Bars", ("what", "figure", "bar", "verdict", "beside it"), rows)


def markdown_table(table: Table) -> str:
    """Columns padded, so that the source reads as well as the page."""
    lines = [table.header, *table.rows]
    cells = [[cell.replace("|", "\\|") for cell in line] for line in lines]
    widths = [max(len(line[column]) for line in cells) for column in range(len(table.header))]
    padded = [" | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in cells]
    rule = " | ".join("-" * width for width in widths)
    return "\n".join(f"| {line} |" for line in (padded[0], rule, *padded[1:]))


def text_table(table: Table) -> str:
    """The same for the terminal."""
    widths = [max(len(line[column]) for line in (table.header, *table.rows)) for column in range(len(table.header))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in (table.header, *table.rows)
    ]
    note = f"\n  ({table.note})" if table.note else ""
    return f"{table.title}\n" + "\n".join(f"  {line}" for line in lines) + note


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least that share of all values does not exceed."""
    if not values:
        return math.nan
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
