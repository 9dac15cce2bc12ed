"""docs/benchmarks.md: each benchmark owns the part between its own markers and leaves the others as they are."""

from __future__ import annotations

from pathlib import Path

from bench.machine import Machine
from bench.report import Section, bars_table, markdown_table

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "benchmarks.md"
PLOTS = ROOT / "docs" / "benchmarks"

INTRODUCTION = """# Benchmarks

Each part is written by the command that stands in it. A bar is a promise: the command fails when one is missed.
Contenders run one after another in the same run, on the same servers, with fresh objects.
"""


def section_text(section: Section, machine: Machine) -> str:
    parts = [
        f"## {section.name}",
        section.about,
        f"    make bench BENCH={section.name}",
        f"{machine.describe()} {'; '.join(section.versions)}.",
        markdown_table(bars_table(section.bars)),
    ]
    for table in section.tables:
        parts.append(f"### {table.title}")
        parts.append(markdown_table(table))
        if table.note:
            parts.append(table.note)
    parts += [f"![{plot.title}](benchmarks/{plot.file}.svg)" for plot in section.plots]
    return "\n\n".join(parts)


def replaced(page: str, name: str, text: str) -> str:
    """The page with the part `name` put in place of the one that is there, or at the end."""
    begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
    part = f"{begin}\n\n{text.strip()}\n\n{end}"
    if begin not in page:
        return f"{page.rstrip()}\n\n{part}\n"
    head, _, rest = page.partition(begin)
    _, found, tail = rest.partition(end)
    if not found:
        raise ValueError(f'cannot write the part "{name}": the page has its beginning and not its end')
    return f"{head}{part}{tail}"


def write(section: Section, machine: Machine) -> None:
    from bench.plots import draw

    page = PAGE.read_text() if PAGE.exists() else INTRODUCTION
    PLOTS.mkdir(parents=True, exist_ok=True)
    for plot in section.plots:
        draw(plot, PLOTS / f"{plot.file}.svg")
    PAGE.write_text(replaced(page, section.name, section_text(section, machine)))
