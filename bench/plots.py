"""Draws the plots of a benchmark. Imported only when something is drawn: matplotlib takes a second to load."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl

from bench.report import Plot, show

mpl.use("svg")
# The same figures give the same file, so that a diff shows what changed.
mpl.rcParams["svg.hashsalt"] = "quartermaster"

import matplotlib.pyplot as plt  # noqa: E402

COLOURS = ("#31688e", "#7fb3d5", "#35b779", "#c44e52")


def draw(plot: Plot, path: Path) -> None:
    count, thickness = len(plot.labels), 0.8 / len(plot.series)
    figure, axes = plt.subplots(figsize=(8, 0.9 + 0.4 * count * max(1, len(plot.series) * 0.7)))
    for number, (name, values) in enumerate(plot.series.items()):
        places = [index + thickness * number for index in range(count)]
        drawn = axes.barh(places, values, height=thickness, label=name, color=COLOURS[number % len(COLOURS)])
        axes.bar_label(drawn, labels=[show(value) for value in values], padding=3, fontsize=9)
    axes.set_yticks([index + 0.4 - thickness / 2 for index in range(count)], plot.labels)
    axes.invert_yaxis()
    axes.set_xlabel(plot.axis)
    axes.set_title(plot.title, fontsize=11, loc="left")
    if plot.logarithmic:
        axes.set_xscale("log")
    axes.margins(x=0.15)
    if plot.limit is not None:
        axes.axvline(plot.limit, color="#c44e52", linestyle="--", linewidth=1, label=f"bar {show(plot.limit)}")
    if len(plot.series) > 1 or plot.limit is not None:
        axes.legend(fontsize=9, loc="best")
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None, "Creator": None})
    plt.close(figure)
