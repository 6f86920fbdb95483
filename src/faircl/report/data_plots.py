"""The class distribution of a data set as a picture file; torch is not needed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from faircl.data.class_stats import ClassStats, DataStats
from faircl.data.sample import Classes
from faircl.labels import BACKGROUND
from faircl.report.plot_files import FILE_STYLE, check_plot_file, save_plot
from faircl.report.style import COLOURS, INK, distinct, legend, name_bars, panels, short

GREY = "#9a9a9a"
PER_ROW = 52  # bars; 151 classes make three rows
MOST_STEPS = 12  # entries of the legend


def write_distribution(
    path: Path, title: str, stats: DataStats, classes: Classes, steps: Mapping[int, int] | None = None
) -> None:
    """Write a bar for the share of every class, on a logarithmic scale, most frequent first.

    Bars have the colour of the step that learns them where `steps` gives it by id, otherwise of their group, major or
    minor; background is grey, as no step learns it.
    """
    check_plot_file(path)
    with matplotlib.rc_context(FILE_STYLE):
        figure = _draw(title, stats, classes, steps)
        save_plot(figure, path)


def _draw(title: str, stats: DataStats, classes: Classes, steps: Mapping[int, int] | None) -> Figure:
    colours, handles = _group_colours(stats) if steps is None else _step_colours(stats, steps)
    if classes.background:
        colours[BACKGROUND] = GREY
        handles.insert(0, _patch(GREY, short(classes.names[BACKGROUND], 30)))
    ranked = stats.ranked
    drawn = [one.share for one in ranked if one.share]
    bottom = 10 ** math.floor(math.log10(min(drawn, default=0.01)) - 0.05)  # the least bar keeps some height
    figure, rows = panels(len(ranked), PER_ROW)
    for axes, chosen in rows:
        _bars(axes, [ranked[k] for k in chosen], colours)
        axes.set_ylim(100 * bottom, 100 * max(drawn, default=1.0) * 1.6)
        boundary = len(stats.major) - chosen.start
        if steps is not None and 0 < boundary < len(chosen):
            _mark_boundary(axes, boundary - 0.5, boundary / len(chosen))
    rows[0][0].set_title(short(title, 110), loc="left", fontsize=10)
    legend(figure, handles)
    return figure


def _bars(axes: Axes, part: Sequence[ClassStats], colours: Mapping[int, str]) -> None:
    axes.set_yscale("log")
    heights = [100 * one.share or math.nan for one in part]
    axes.bar(range(len(part)), heights, color=[colours[one.id] for one in part], edgecolor=INK, linewidth=0.4)
    for place, one in enumerate(part):
        if not one.pixels:
            axes.annotate(
                "none",
                (place, 0.02),
                xycoords=("data", "axes fraction"),
                ha="center",
                va="bottom",
                rotation=90,
                fontsize=7.5,
            )
    name_bars(axes, [one.name for one in part])
    axes.yaxis.set_major_locator(LogLocator(numticks=12))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))  # powers would need mathtext
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_ylabel("share of pixels in %")
    axes.grid(axis="y", color=INK, alpha=0.15)


def _mark_boundary(axes: Axes, place: float, share: float) -> None:
    axes.axvline(place, color=INK, linewidth=0.8, linestyle=":")
    for side, text, points, room in (("right", "major", -4, share), ("left", "minor", 4, 1 - share)):
        if room < 0.06:  # it would hang over the edge
            continue
        axes.annotate(
            text,
            (place, 1),
            xytext=(points, 0),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            ha=side,
            va="top",
            fontsize=8,
        )


def _group_colours(stats: DataStats) -> tuple[dict[int, str], list[Patch]]:
    colours: dict[int, str] = {}
    handles: list[Patch] = []
    shares = (stats.major_share, 1 - stats.major_share)
    for name, ids, share, colour in zip(("major", "minor"), (stats.major, stats.minor), shares, COLOURS, strict=False):
        if ids:
            colours |= dict.fromkeys(ids, colour)
            handles.append(_patch(colour, f"{name}: {len(ids)} classes, {100 * share:.1f} %"))
    return colours, handles


def _step_colours(stats: DataStats, steps: Mapping[int, int]) -> tuple[dict[int, str], list[Patch]]:
    numbers = sorted(set(steps.values()))
    of_step = dict(zip(numbers, distinct(len(numbers)), strict=True))
    colours = {one.id: of_step[steps[one.id]] if one.id in steps else "white" for one in stats.classes}
    every = math.ceil(len(numbers) / MOST_STEPS)
    handles = [_patch(of_step[step], f"step {step}") for step in numbers[::every]]
    if len(steps) < len(stats.classes):
        handles.append(_patch("white", "never learned"))
    return colours, handles


def _patch(colour: str, label: str) -> Patch:
    return Patch(facecolor=colour, edgecolor=INK, lw=0.5, label=label)
