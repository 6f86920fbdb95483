"""One picture of a comparison: example images, their truth and every run's prediction, with its figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from faircl.data.masks import Palette, colour_mask, decode_mask
from faircl.data.raster_files import open_raster
from faircl.files import move_into_place, writing
from faircl.runs.run import load_run
from faircl.tables import show

ROWS = 3


def write_comparison_picture(path: Path, runs: Sequence[tuple[str, Path]]) -> Path | None:
    """Write a PNG with a row per example and a column per run; None where the runs kept no examples."""
    loaded = [(label, load_run(folder)) for label, folder in runs]
    first = loaded[0][1]
    numbers = first.examples()[:ROWS]
    if not numbers:
        return None
    figure = Figure(figsize=(1.75 * (2 + len(loaded)), 1.75 * len(numbers) + 1.1), dpi=110, layout="compressed")
    grid = figure.subplots(len(numbers), 2 + len(loaded), squeeze=False)
    for axes, k in zip(grid, numbers, strict=True):
        stem = first.folder / "examples"
        axes[0].imshow(open_raster(stem / f"{k}.image.png", "image"), interpolation="nearest")
        _mask(axes[1], stem / f"{k}.truth.png", first.palette)
        for column, (_, run) in zip(axes[2:], loaded, strict=True):
            _mask(column, list(run.predictions(k).values())[-1], first.palette)
    titles = ["image", "truth"]
    for label, run in loaded:
        final = run.final
        titles.append(f"{label}\nmIoU {show(final.groups['all'].miou, 1)}, STD {show(final.groups['all'].std, 1)}")
    for axis, title in zip(grid[0], titles, strict=True):
        axis.set_title(title, fontsize=8)
    for axis in grid.flat:
        axis.set_axis_off()
    ids = np.array([list(first.class_names)], np.uint16)
    colours = (colour_mask(ids, first.palette)[0] / 255).tolist()
    patches = [
        Patch(color=colour, label=name) for colour, name in zip(colours, first.class_names.values(), strict=True)
    ]
    figure.legend(handles=patches, loc="outside lower center", ncols=min(len(patches), 11), fontsize=7, frameon=False)
    beside = path.with_name(f".{path.stem}.part.png")
    with writing(path, lambda: beside.unlink(missing_ok=True)):
        figure.savefig(beside, metadata={"Software": None})
        move_into_place(beside, path)
    return path


def _mask(axes: Axes, path: Path, palette: Palette | None) -> None:
    axes.imshow(colour_mask(decode_mask(path), palette), interpolation="nearest")
