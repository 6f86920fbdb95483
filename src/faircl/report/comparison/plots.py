"""Plots of a comparison as SVG: the front of accuracy and spread, and mean IoU over the steps.

Labels of the runs stand in a column at the right, one below the other in the order of their points, so that they never
overlap, however close the points are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import ConnectionPatch
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from faircl.report.comparison.compared import Comparison
from faircl.report.comparison.front import levelled_down_in
from faircl.report.style import INK, STYLE, WIDTH, distinct, legend, short
from faircl.report.svg import svg_of
from faircl.table_escapes import printable

Floats = NDArray[np.float64]
MARKERS = "osD^vPX<>p"
ROW = 0.19  # inches between two labels
LONGEST = 28  # characters of a label


@matplotlib.rc_context(STYLE)
def pareto_plot(comparison: Comparison, spread: str = "std", name: str = "STD") -> str:
    """Mean IoU of all classes against a spread, a point per label, the front as a line.

    The spread grows downwards, so that the best place is the upper right corner. Bars are ± over the runs of a label;
    labels that are levelled down are hollow.
    """
    figure = pareto_figure(comparison, spread, name)
    return svg_of(figure, f"Mean IoU of all classes and {name} of every run, and the Pareto front of the two")


def pareto_figure(comparison: Comparison, spread: str, name: str) -> Figure:
    """Draw the plot of the front."""
    rows = [row for row in comparison.rows if math.isfinite(row.mean["all"]) and math.isfinite(row.mean[spread])]
    figure = Figure(figsize=(WIDTH, max(3.6, 1.0 + ROW * len(rows))), layout="constrained")
    axes, column = figure.subplots(1, 2, width_ratios=(2.2, 1))
    colours = dict(zip([row.label for row in comparison.rows], distinct(len(comparison.rows)), strict=True))
    x, y = ([row.mean[key] for row in rows] for key in ("all", spread))
    _limits(axes, x, [row.spread["all"] for row in rows], y, [row.spread[spread] for row in rows])
    on = sorted((row.mean["all"], row.mean[spread]) for row in rows if row.label in comparison.front.get(spread, ()))
    if len(on) > 1:
        axes.plot(*zip(*on, strict=True), color=INK, linewidth=1, linestyle="--", alpha=0.6, zorder=1)
    for k, row in enumerate(rows):
        hollow = levelled_down_in(comparison, row.label, spread)
        axes.errorbar(
            row.mean["all"],
            row.mean[spread],
            xerr=row.spread["all"] or None,
            yerr=row.spread[spread] or None,
            marker=MARKERS[k % len(MARKERS)],
            markersize=8,
            color=colours[row.label],
            markerfacecolor="none" if hollow else colours[row.label],
            markeredgecolor=colours[row.label] if hollow else INK,
            markeredgewidth=1.6 if hollow else 0.5,
            elinewidth=1,
            zorder=3,
        )
    axes.invert_yaxis()
    axes.set_xlabel("mean IoU of all classes in % (better: right)")
    axes.set_ylabel(f"{name} in points (more even: up)")
    axes.grid(color=INK, alpha=0.15)
    points = [(row.mean["all"], row.mean[spread]) for row in rows]
    texts = [_text(comparison, row.label, spread) for row in rows]
    _name_points(figure, axes, column, points, texts)
    return figure


@matplotlib.rc_context(STYLE)
def over_steps(comparison: Comparison) -> str:
    """Mean IoU of all classes seen so far after each step, a line per label: the mean over its runs."""
    figure = Figure(figsize=(WIDTH, 3.2), layout="constrained")
    axes = figure.subplots()
    labels = [row.label for row in comparison.rows]
    for k, (label, colour) in enumerate(zip(labels, distinct(len(labels)), strict=True)):
        runs = [{s.step: s.groups["all"].miou for s in run.steps} for other, run in comparison.runs if other == label]
        steps = sorted(set(runs[0]).intersection(*runs))
        means = [float(np.mean([run[step] for run in runs])) for step in steps]
        style, marker = ("-", "--", "-.", ":")[k % 4], MARKERS[k % len(MARKERS)]
        shown = short(printable(label), LONGEST)
        axes.plot(steps, means, style, color=colour, label=shown, marker=marker, markersize=5)
    tops = [s.groups["all"].miou for _, run in comparison.runs for s in run.steps]
    axes.set_ylim(0, min(105, 1.15 * max((top for top in tops if math.isfinite(top)), default=0.0)) or 1)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("step")
    axes.set_ylabel("mean IoU in %")
    axes.grid(axis="y", color=INK, alpha=0.15)
    legend(figure, axes.get_legend_handles_labels()[0])
    return svg_of(figure, "Mean IoU after each step, by run")


def _text(comparison: Comparison, label: str, spread: str) -> str:
    shown = short(printable(label), LONGEST)
    if levelled_down_in(comparison, label, spread):
        return f"{shown} (levelled down)"
    return f"{shown} (front)" if label in comparison.front.get(spread, ()) else shown


def _limits(axes: Axes, x: Sequence[float], dx: Sequence[float], y: Sequence[float], dy: Sequence[float]) -> None:
    """Leave a margin around points and their bars, and at least two percent points in each direction."""
    for values, bars, change in ((x, dx, axes.set_xlim), (y, dy, axes.set_ylim)):
        low = min((v - b for v, b in zip(values, bars, strict=True)), default=0.0)
        high = max((v + b for v, b in zip(values, bars, strict=True)), default=1.0)
        margin = max(1.0, 0.08 * (high - low))
        change(low - margin, high + margin)


def _name_points(
    figure: Figure, axes: Axes, column: Axes, points: Sequence[tuple[float, float]], texts: Sequence[str]
) -> None:
    """Write the texts below each other in their own column, in the order of the points, each joined to its point."""
    column.set_axis_off()
    column.set_xlim(0, 1)
    column.set_ylim(0, 1)
    low, high = sorted(axes.get_ylim())
    order = sorted(range(len(points)), key=lambda k: (points[k][1], -points[k][0]))
    wanted = np.array([1 - (points[k][1] - low) / (high - low) for k in order])
    height = figure.get_size_inches()[1] - 0.8
    places = spread_out(wanted, ROW / height)
    for k, place in zip(order, places.tolist(), strict=True):
        column.text(0.08, place, texts[k], va="center", ha="left", fontsize=8.5)
        line = ConnectionPatch(
            points[k], (0.06, place), "data", "data", axesA=axes, axesB=column, color=INK, alpha=0.35, linewidth=0.7
        )
        figure.add_artist(line)


def spread_out(wanted: Floats, least: float) -> Floats:
    """Return places in [0, 1] near the wanted ones, which fall, at least ``least`` apart where there is room for it."""
    if not len(wanted):
        return wanted
    least = min(least, 1 / max(1, len(wanted) - 1))
    steps = least * np.arange(len(wanted))
    # Falling by at least one step each: what remains after adding the steps back must not rise.
    pushed = np.minimum.accumulate(wanted + steps) - steps
    floor = steps[::-1]
    places: Floats = np.clip(np.maximum(pushed, floor), 0, 1)
    return places
