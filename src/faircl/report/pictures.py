"""Example images, their truth and the predictions after each step, as data URIs for a page."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image as Pillow

from faircl.data.masks import Palette, colour_mask, decode_mask
from faircl.data.raster_files import open_raster
from faircl.labels import ignore_value
from faircl.runs.run import Run

LARGEST = 768  # px; larger pictures are shrunk, or a page of street scenes would weigh tens of megabytes


class Picture(NamedTuple):
    """An image ready for a page; ``sharp`` asks the browser not to smooth it."""

    uri: str
    alt: str
    sharp: bool


class Strips(NamedTuple):
    """Headings, one row of pictures (None where there is none) per example, and the colours that occur in them."""

    headings: list[str]
    rows: list[list[Picture | None]]
    legend: list[tuple[str, str]]


def comparison_strips(runs: Sequence[tuple[str, Run]]) -> Strips | None:
    """Image, truth and last prediction of each run, for the examples whose image is the same file in all runs."""
    first = runs[0][1]
    numbers = [k for k in first.examples() if len({_bytes(_image(run, k)) for _, run in runs}) == 1]
    columns = [(label, {k: list(run.predictions(k).values() or [None])[-1] for k in numbers}) for label, run in runs]
    return _strips(first, numbers, columns)


def _strips(
    run: Run, numbers: Sequence[int], columns: Sequence[tuple[str, Mapping[int, Path | None]]]
) -> Strips | None:
    if not numbers:
        return None
    seen: set[int] = set()
    palette = run.palette
    rows: list[list[Picture | None]] = []
    for k in numbers:
        truth = run.folder / "examples" / f"{k}.truth.png"
        row = [_photo(_image(run, k), f"Example {k + 1}")]
        row.append(_mask(truth if truth.is_file() else None, f"Truth of example {k + 1}", seen, palette))
        row += [_mask(files[k], f"{name}, prediction for example {k + 1}", seen, palette) for name, files in columns]
        rows.append(row)
    return Strips(["Image", "Truth", *(name for name, _ in columns)], rows, _legend(seen, run.class_names, palette))


def _image(run: Run, k: int) -> Path:
    return run.folder / "examples" / f"{k}.image.png"


def _bytes(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def _photo(path: Path, alt: str) -> Picture | None:
    image = open_raster(path, "example image").convert("RGB")
    small = max(image.size) < 256
    image.thumbnail((LARGEST, LARGEST))
    return Picture(_uri(image), alt, small)


def _mask(path: Path | None, alt: str, seen: set[int], palette: Palette | None) -> Picture | None:
    """Picture of a mask file; adds its ids to ``seen``, ignore as −1."""
    if path is None:
        return None
    mask = decode_mask(path)
    seen |= {-1 if int(id) == ignore_value(mask) else int(id) for id in np.unique(mask)}
    image = Pillow.fromarray(colour_mask(mask, palette))
    image.thumbnail((LARGEST, LARGEST), Pillow.Resampling.NEAREST)
    return Picture(_uri(image), alt, True)


def _legend(ids: Iterable[int], names: Mapping[int, str], palette: Palette | None) -> list[tuple[str, str]]:
    """Name and CSS colour of each id, ignore last."""
    ordered = sorted(ids, key=lambda id: (id < 0, id))
    return [("ignored" if id < 0 else names.get(id, f"id {id}"), _css(id, palette)) for id in ordered]


def _css(id: int, palette: Palette | None) -> str:
    one: NDArray[np.uint16] = np.array([[id % 65536]], dtype=np.uint16)  # −1 becomes 65535, which is IGNORE
    r, g, b = colour_mask(one, palette)[0, 0].tolist()
    return f"#{r:02x}{g:02x}{b:02x}"


def _uri(image: Pillow.Image) -> str:
    out = io.BytesIO()
    image.save(out, format="PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(out.getvalue()).decode("ascii")
