"""One image at a time, as every method saw it after every step: rows of methods, columns of steps."""

from __future__ import annotations

import base64
import hashlib
import io
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image as Pillow

from faircl.data.masks import Palette, colour_mask, decode_mask
from faircl.data.raster_files import open_raster
from faircl.labels import IGNORE, ignore_value
from faircl.report.comparison.compared import Comparison
from faircl.runs.gallery import GalleryImage
from faircl.runs.run import Run

LARGEST = 320  # px of the longer side
SMALL = 256  # px; smaller images are enlarged without smoothing
MOST_IMAGES, MOST_MASKS = 8, 400


class Picture(NamedTuple):
    """An image ready for a page; ``sharp`` asks the browser not to smooth it."""

    uri: str
    alt: str
    sharp: bool


class Strip(NamedTuple):
    """An image, its truth, and for every label the prediction after each of the steps; None where there is none."""

    name: str
    image: Picture
    truth: Picture | None
    steps: tuple[int, ...]
    rows: list[tuple[str, list[Picture | None]]]
    legend: list[tuple[str, str]]


def make_strips(comparison: Comparison) -> list[Strip]:
    """Return the images that most labels kept predictions of, at least two of several labels; of each its first run."""
    runs = comparison.first_runs()
    runs = {row.label: runs[row.label] for row in comparison.rows}
    found: dict[str, dict[str, GalleryImage]] = {}
    for label, run in runs.items():
        for one in (*run.gallery(), *_examples(run)):
            found.setdefault(hashlib.sha256(one.image.read_bytes()).hexdigest(), {}).setdefault(label, one)
    shared = [own for own in found.values() if len(own) >= min(2, len(runs))]
    shared.sort(key=lambda own: -len(own))  # stable: otherwise as the first run's gallery has them
    steps = tuple(sorted({step for own in shared for one in own.values() for step in one.predictions}))
    most = max(1, min(MOST_IMAGES, MOST_MASKS // max(1, len(runs) * len(steps))))
    return [_strip(runs, own, steps) for own in shared[:most]]


def _examples(run: Run) -> Iterable[GalleryImage]:
    """Return the first images evaluated, which runs on the same data have in common."""
    folder = run.folder / "examples"
    for k in run.examples():
        truth = folder / f"{k}.truth.png"
        yield GalleryImage(
            f"example {k + 1}", (), folder / f"{k}.image.png", truth if truth.is_file() else None, run.predictions(k)
        )


def _strip(runs: dict[str, Run], own: dict[str, GalleryImage], steps: tuple[int, ...]) -> Strip:
    first = next(iter(own.values()))
    run = next(iter(runs.values()))
    palette, seen = run.palette, set[int]()
    truth = _mask(first.truth, f"Truth of {first.id}", palette, seen) if first.truth else None
    rows = []
    for label in runs:
        files = own[label].predictions if label in own else {}
        pictures = [
            _mask(files[step], f"{label} after step {step}: prediction for {first.id}", palette, seen)
            if step in files
            else None
            for step in steps
        ]
        rows.append((label, pictures))
    names = run.class_names
    legend = [("ignored" if id == IGNORE else names.get(id, f"id {id}"), _css(id, palette)) for id in sorted(seen)]
    return Strip(first.id, _photo(first.image, f"Image {first.id}"), truth, steps, rows, legend)


def _photo(path: Path, alt: str) -> Picture:
    image = open_raster(path, "example image").convert("RGB")
    small = max(image.size) < SMALL
    image.thumbnail((LARGEST, LARGEST))
    return Picture(_uri(image, "PNG" if small else "JPEG"), alt, small)


def _mask(path: Path, alt: str, palette: Palette | None, seen: set[int]) -> Picture:
    """Return a painted mask with as many colours as it has classes; adds its ids to ``seen``."""
    mask = decode_mask(path)
    ids, place = np.unique(mask, return_inverse=True)
    raw: NDArray[np.uint16] = np.where(ids == ignore_value(mask), IGNORE, ids).astype(np.uint16)
    seen |= set(raw.tolist())
    colours = colour_mask(raw[None], palette)[0]
    if len(ids) <= 256:
        image = Pillow.fromarray(place.reshape(mask.shape).astype(np.uint8), "P")
        image.putpalette(colours.astype(np.uint8).tobytes())
    else:
        image = Pillow.fromarray(colours[place.reshape(mask.shape)])
    image.thumbnail((LARGEST, LARGEST), Pillow.Resampling.NEAREST)
    return Picture(_uri(image, "PNG"), alt, True)


def _css(id: int, palette: Palette | None) -> str:
    r, g, b = colour_mask(np.array([[id]], np.uint16), palette)[0, 0].tolist()
    return f"#{r:02x}{g:02x}{b:02x}"


def _uri(image: Pillow.Image, form: str) -> str:
    out = io.BytesIO()
    image.save(out, format=form, optimize=True, **({"quality": 85} if form == "JPEG" else {}))
    return f"data:image/{form.lower()};base64," + base64.b64encode(out.getvalue()).decode("ascii")
