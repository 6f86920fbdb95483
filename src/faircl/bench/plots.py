"""Plot of what losses cost: milliseconds and memory against the number of classes and the size of images."""

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
    """Write 2×2 panels, time above memory: against classes at one ``size``, against sizes at so many ``classes``.

    A line per loss, in the style of its stride where there are several. A cross at the upper edge stands for a loss
    that could not be computed.
    """
    check_plot_file(path)
    with matplotlib.rc_context(FILE_STYLE):
        figure = Figure(figsize=(WIDTH, 6.0), layout="constrained")
        grid = figure.subplots(2, 2, sharex="col", sharey="row")
        for line, (words, measure) in zip(grid, _MEASURES.items(), strict=True):
            line[0].set_ylabel(words)
            _panel(line[0], [row for row in rows if row.size == size], lambda row: row.classes, measure)
            _panel(line[1], [row for row in rows if row.classes == classes], lambda row: row.size, measure)
            _logarithmic(line[0], [value for row in rows if (value := measure(row))])
        grid[1][0].set_xlabel(f"classes, at {size}×{size} pixels")
        grid[1][1].set_xlabel(f"side of an image, at {classes} classes")
        grid[0][0].set_title(short(title, 110), loc="left", fontsize=10)
        legend(figure, _handles(rows))
        save_plot(figure, path)


def _panel(
    axes: Axes, rows: Sequence[LossCost], place: Callable[[LossCost], int], measure: Callable[[LossCost], float | None]
) -> None:
    """Lines of all losses and strides over what ``place`` says of a row."""
    axes.set_xscale("log")
    axes.set_yscale("log")
    for (loss, stride), (colour, style, marker) in _looks(rows).items():
        own = sorted((row for row in rows if (row.loss, row.stride) == (loss, stride)), key=place)
        points = [(place(row), value) for row in own if (value := measure(row))]
        x, y = zip(*points, strict=True) if points else ((), ())
        axes.plot(x, y, style, color=colour, marker=marker, markersize=5)
        for row in own:
            if row.milliseconds is None:
                edge = axes.get_xaxis_transform()
                axes.plot([place(row)], [0.97], "x", color=colour, markersize=7, transform=edge, clip_on=False)
    places = sorted({place(row) for row in rows})
    axes.xaxis.set_major_locator(FixedLocator(places))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlim(places[0] / 1.25, places[-1] * 1.25)
    axes.grid(color=INK, alpha=0.15)
    if not any(measure(row) for row in rows):
        axes.text(0.5, 0.5, "not measured", transform=axes.transAxes, ha="center", va="center", alpha=0.6)


def _logarithmic(axes: Axes, values: Sequence[float]) -> None:
    """Set limits and ticks that also suit a narrow range of values."""
    if not values:
        axes.set_yticks([])
        axes.yaxis.set_minor_locator(NullLocator())
        return
    low, high = min(values) / 1.5, max(values) * 2  # room for the crosses
    axes.set_ylim(low, high)
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0,) if high / low > 300 else (1.0, 2.0, 5.0), numticks=15))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))  # powers would need mathtext
    axes.yaxis.set_minor_formatter(NullFormatter())


def _looks(rows: Sequence[LossCost]) -> dict[tuple[str, int], tuple[str, Style, str]]:
    """Colour and marker of every loss, style of every stride."""
    losses, strides = list(dict.fromkeys(row.loss for row in rows)), list(dict.fromkeys(row.stride for row in rows))
    colours = distinct(len(losses))
    return {
        (loss, stride): (colours[k], STYLES[n % len(STYLES)], MARKERS[k % len(MARKERS)])
        for n, stride in enumerate(strides)
        for k, loss in enumerate(losses)
    }


def _handles(rows: Sequence[LossCost]) -> list[Artist]:
    """Colours are losses, styles are strides."""
    looks = _looks(rows)
    strides = {stride: style for (_, stride), (_, style, _) in looks.items()}
    losses = {loss: (colour, marker) for (loss, _), (colour, _, marker) in looks.items()}
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
