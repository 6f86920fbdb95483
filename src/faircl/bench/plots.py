"""Plot of the cost of losses: time and memory against the number of classes and the size of images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import matplotlib
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

from faircl.bench.loss import LossCost
from faircl.report.plot_files import FILE_STYLE, check_plot_file, save_plot
from faircl.report.style import INK, WIDTH, distinct, legend, short

Style = Literal["-", "--", ":", "-."]
STYLES: tuple[Style, ...] = ("-", "--", ":", "-.")
MARKERS = "osD^v"
_MEASURES: dict[str, Callable[[LossCost], float | None]] = {
    "ms, forward and backward": lambda row: row.milliseconds,
    "extra memory in GiB": lambda row: row.extra_gib,
}


def write_loss_costs(path: Path, title: str, rows: Sequence[LossCost], classes: int, size: int) -> None:
    """Write 2×2 panels, time above memory: against classes at ``size``, and against sizes at ``classes``.

    Every loss has a colour, every stride a line style. A cross at the upper edge marks a loss that could not be
    computed.
    """
    check_plot_file(path)
    with matplotlib.rc_context(FILE_STYLE):
        figure = Figure(figsize=(WIDTH, 6.0), layout="constrained")
        grid = figure.subplots(2, 2, sharex="col", sharey="row")
        for axes, (label, measure) in zip(grid, _MEASURES.items(), strict=True):
            axes[0].set_ylabel(label)
            _panel(axes[0], [row for row in rows if row.size == size], lambda row: row.classes, measure)
            _panel(axes[1], [row for row in rows if row.classes == classes], lambda row: row.size, measure)
            _set_log_scale(axes[0], [value for row in rows if (value := measure(row))])
        grid[1][0].set_xlabel(f"classes, at {size}×{size} pixels")
        grid[1][1].set_xlabel(f"side of an image, at {classes} classes")
        grid[0][0].set_title(short(title, 110), loc="left", fontsize=10)
        legend(figure, _handles(rows))
        save_plot(figure, path)


def _panel(
    axes: Axes, rows: Sequence[LossCost], x_of: Callable[[LossCost], int], y_of: Callable[[LossCost], float | None]
) -> None:
    """Draw a line for every loss and stride."""
    axes.set_xscale("log")
    axes.set_yscale("log")
    for (loss, stride), (colour, style, marker) in _line_styles(rows).items():
        own = sorted((row for row in rows if (row.loss, row.stride) == (loss, stride)), key=x_of)
        points = [(x_of(row), value) for row in own if (value := y_of(row))]
        x, y = zip(*points, strict=True) if points else ((), ())
        axes.plot(x, y, style, color=colour, marker=marker, markersize=5)
        for row in own:
            if row.milliseconds is None:
                edge = axes.get_xaxis_transform()
                axes.plot([x_of(row)], [0.97], "x", color=colour, markersize=7, transform=edge, clip_on=False)
    ticks = sorted({x_of(row) for row in rows})
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlim(ticks[0] / 1.25, ticks[-1] * 1.25)
    axes.grid(color=INK, alpha=0.15)
    if not any(y_of(row) for row in rows):
        axes.text(0.5, 0.5, "not measured", transform=axes.transAxes, ha="center", va="center", alpha=0.6)


def _set_log_scale(axes: Axes, values: Sequence[float]) -> None:
    """Set limits and ticks of the y axis that also suit a narrow range of values."""
    if not values:
        axes.set_yticks([])
        axes.yaxis.set_minor_locator(NullLocator())
        return
    low, high = min(values) / 1.5, max(values) * 2  # leaves room for the crosses
    axes.set_ylim(low, high)
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0,) if high / low > 300 else (1.0, 2.0, 5.0), numticks=15))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))  # powers need mathtext
    axes.yaxis.set_minor_formatter(NullFormatter())


def _line_styles(rows: Sequence[LossCost]) -> dict[tuple[str, int], tuple[str, Style, str]]:
    """Return colour, line style and marker by loss and stride."""
    losses, strides = list(dict.fromkeys(row.loss for row in rows)), list(dict.fromkeys(row.stride for row in rows))
    colours = distinct(len(losses))
    return {
        (loss, stride): (colours[k], STYLES[n % len(STYLES)], MARKERS[k % len(MARKERS)])
        for n, stride in enumerate(strides)
        for k, loss in enumerate(losses)
    }


def _handles(rows: Sequence[LossCost]) -> list[Artist]:
    """Return legend entries: colours for losses, line styles for strides, a cross for failures."""
    styles = _line_styles(rows)
    strides = {stride: style for (_, stride), (_, style, _) in styles.items()}
    losses = {loss: (colour, marker) for (loss, _), (colour, _, marker) in styles.items()}
    handles: list[Artist] = [
        Line2D([], [], color=colour, marker=marker, markersize=5, label=loss)
        for loss, (colour, marker) in losses.items()
    ]
    if len(strides) > 1:
        handles += [
            Line2D([], [], color=INK, linestyle=style, label=f"stride {stride}") for stride, style in strides.items()
        ]
    notes = sorted({row.note for row in rows if row.milliseconds is None})
    if notes:
        handles.append(Line2D([], [], color=INK, linestyle="", marker="x", markersize=7, label=" or ".join(notes)))
    return handles
