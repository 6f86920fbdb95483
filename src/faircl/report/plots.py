"""Plots as SVG strings: inline, self-contained, the same bytes for the same numbers.

The ink (text, axes, outlines) is ``currentColor``, so that a plot follows the light or dark page around it.
Matplotlib's object interface is used throughout: no pyplot, no global figures.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from faircl.metrics import StepMetrics
from faircl.report.style import COLOURS, INK, STYLE, WIDTH, distinct, legend
from faircl.report.svg import svg_of
from faircl.runs.reading import TrainRecord


@matplotlib.rc_context(STYLE)
def miou_over_steps(steps: Sequence[StepMetrics]) -> str:
    """Mean IoU of old, new and all classes after each step."""
    lines = {g: {s.step: s.groups[g].miou for s in steps} for g in ("old", "new", "all")}
    colours = {"old": COLOURS[0], "new": COLOURS[1], "all": INK}
    return _over_steps(lines, colours, "Mean IoU of old, new and all classes after each step")


@matplotlib.rc_context(STYLE)
def loss_curves(records: Sequence[TrainRecord]) -> str:
    """Total loss and its weighted terms over all iterations, step boundaries marked; long runs are averaged in bins."""
    steps = sorted({r.step for r in records})
    terms = sorted({name for r in records for name in r.terms})
    figure = Figure(figsize=(WIDTH, 3.4), layout="constrained")
    axes = figure.subplots()
    starts, end = _starts(records)
    _mark_steps(axes, starts)
    curves = _curves(records, starts, ["total", *terms], lambda r: {"total": r.loss, **r.terms})
    for (name, points), colour in zip(curves.items(), [INK, *distinct(len(terms))], strict=True):
        wide = name == "total"
        x, y = zip(*points, strict=True) if points else ((), ())
        marker = "o" if len(points) <= 2 * len(steps) else None  # a single record makes no line
        width, alpha = (1.6, 0.8) if wide else (1.2, 1)
        axes.plot(x, y, color=colour, label=name, linewidth=width, alpha=alpha, marker=marker, markersize=4)
    drawn = [y for points in curves.values() for _, y in points if math.isfinite(y)]
    if drawn and min(drawn) > 0 and max(drawn) > 100 * min(drawn):
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))  # powers would need mathtext
        axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_xlim(0, 1.01 * max(end, 1))  # a line that ends at the very edge looks cut off
    axes.set_xlabel("iteration")
    axes.set_ylabel("loss")
    axes.grid(axis="y", color=INK, alpha=0.15)
    legend(figure, axes.get_legend_handles_labels()[0])
    return svg_of(figure, "Training loss and its terms over the iterations")


@matplotlib.rc_context(STYLE)
def bound_curves(records: Sequence[TrainRecord]) -> str:
    """Both sides of Proposition 1 over the iterations of the steps that measured them, and their ratio below."""
    records = [r for r in records if {"moved", "bound", "tightness"} <= r.measures.keys()]
    figure = Figure(figsize=(WIDTH, 4.2), layout="constrained")
    upper, lower = figure.subplots(2, sharex=True, height_ratios=(3, 1))
    starts, end = _starts(records)
    _mark_steps(upper, starts)
    curves = _curves(records, starts, ["bound", "moved", "tightness"], lambda r: r.measures)
    labels = {"bound": "bound: by way of the prototype", "moved": "moved since the step before"}
    for name, axes, colour, style in (
        ("bound", upper, COLOURS[1], "--"),
        ("moved", upper, COLOURS[0], "-"),
        ("tightness", lower, INK, "-"),
    ):
        points = curves[name]
        x, y = zip(*points, strict=True) if points else ((), ())
        marker = "o" if len(points) <= 2 * len(starts) else None  # a single record makes no line
        axes.plot(x, y, style, color=colour, label=labels.get(name), linewidth=1.4, marker=marker, markersize=4)
        axes.grid(axis="y", color=INK, alpha=0.15)
        axes.set_ylim(bottom=0)
    lower.set_ylim(0, 1)
    lower.set_xlim(0, 1.01 * max(end, 1))
    lower.set_xlabel("iteration, of the steps with an old network")
    upper.set_ylabel("distance")
    lower.set_ylabel("moved / bound")
    legend(figure, upper.get_legend_handles_labels()[0])
    return svg_of(figure, "How far features have moved since the step before, and its bound by way of the prototype")


def _over_steps(lines: Mapping[str, Mapping[int, float]], colours: Mapping[str, str], label: str) -> str:
    figure = Figure(figsize=(WIDTH, 3.2), layout="constrained")
    axes = figure.subplots()
    for k, (name, points) in enumerate(lines.items()):
        style, marker = ("-", "--", "-.", ":")[k % 4], "osD^v"[k % 5]
        axes.plot(
            list(points), list(points.values()), style, color=colours[name], label=name, marker=marker, markersize=5
        )
    top = max((v for points in lines.values() for v in points.values() if math.isfinite(v)), default=0.0)
    axes.set_ylim(0, min(105, 1.15 * top) or 1)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("step")
    axes.set_ylabel("mIoU in %")
    axes.grid(axis="y", color=INK, alpha=0.15)
    legend(figure, axes.get_legend_handles_labels()[0])
    return svg_of(figure, label)


def _starts(records: Sequence[TrainRecord]) -> tuple[dict[int, int], int]:
    """Where every step begins when their iterations are put end to end, and where the last one ends."""
    starts, at = {}, 0
    for step in sorted({r.step for r in records}):
        starts[step] = at
        at += max(r.iterations for r in records if r.step == step)
    return starts, at


def _mark_steps(axes: Axes, starts: Mapping[int, int]) -> None:
    for step, start in starts.items():
        axes.axvline(start, color=INK, linewidth=0.8, linestyle=":", alpha=0.6)
        axes.annotate(f" step {step}", (start, 1), xycoords=("data", "axes fraction"), va="bottom", fontsize=8)


def _curves(
    records: Sequence[TrainRecord],
    starts: Mapping[int, int],
    names: Sequence[str],
    values: Callable[[TrainRecord], Mapping[str, float]],
) -> dict[str, list[tuple[float, float]]]:
    """Points of every name's curve, averaged in bins, with gaps between steps."""
    curves: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for step, start in starts.items():
        own = [r for r in records if r.step == step]
        at = np.array([start + r.iteration for r in own], dtype=np.float64)
        for name, points in curves.items():
            y = np.array([values(r).get(name, math.nan) for r in own])
            points += _binned(at, y, most=max(20, 400 // len(starts)))
            points.append((math.nan, math.nan))  # a gap: losses of different steps are different functions
    return curves


def _binned(x: np.ndarray, y: np.ndarray, most: int) -> list[tuple[float, float]]:
    """At most ``most`` points: means of x and y over equal runs of finite neighbours."""
    finite = np.isfinite(y)
    x, y = x[finite], y[finite]
    pieces = zip(np.array_split(x, most), np.array_split(y, most), strict=True)
    return [(float(a.mean()), float(b.mean())) for a, b in pieces if len(a)]
