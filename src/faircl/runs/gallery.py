"""The gallery of a run: images chosen for what they show, their truth, and the predictions after each step.

    gallery/gallery.json     for every image its id in the data set and why it was chosen
    gallery/0.image.png 0.truth.png 0.step00.png 0.step01.png …

Masks hold the data set's class ids.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from faircl.errors import UserError
from faircl.runs.reading import read_json

GALLERY, INDEX = "gallery", "gallery.json"


class GalleryImage(NamedTuple):
    """An image: its id in the data set, why it was chosen, its files; ``predictions`` maps a step to its mask."""

    id: str
    reasons: tuple[str, ...]
    image: Path
    truth: Path | None
    predictions: dict[int, Path]


def read_gallery(run: Path) -> tuple[GalleryImage, ...]:
    """Return the images of a run's gallery; without one its examples, the first images evaluated."""
    folder = run / GALLERY
    if not (folder / INDEX).is_file():
        return _examples(run)
    entries = read_json(folder / INDEX).get("images", [])
    try:
        return tuple(
            _entry(folder, k, str(one["id"]), [str(why) for why in one["why"]]) for k, one in enumerate(entries)
        )
    except (KeyError, TypeError) as error:
        expected = 'a list "images" of objects with "id" and "why"'
        raise UserError(f"{folder / INDEX} is damaged ({error}); expected {expected}.") from None


def _entry(folder: Path, k: int, id: str, reasons: list[str]) -> GalleryImage:
    found = {int(match[1]): path for path in folder.glob(f"{k}.step*.png") if (match := _STEP.search(path.name))}
    return GalleryImage(
        id, tuple(reasons), folder / f"{k}.image.png", _if_file(folder / f"{k}.truth.png"), dict(sorted(found.items()))
    )


def _examples(run: Path) -> tuple[GalleryImage, ...]:
    files = (run / "examples").glob("*.image.png")
    numbers = sorted(int(name) for path in files if (name := path.name.split(".")[0]).isdecimal())
    steps = {int(path.name): path / "examples" for path in sorted((run / "steps").glob("*")) if path.name.isdecimal()}
    return tuple(
        GalleryImage(
            f"example {k + 1}",
            ("one of the first images evaluated",),
            run / "examples" / f"{k}.image.png",
            _if_file(run / "examples" / f"{k}.truth.png"),
            {step: path for step, folder in steps.items() if (path := folder / f"{k}.png").is_file()},
        )
        for k in numbers
    )


def _if_file(path: Path) -> Path | None:
    return path if path.is_file() else None


_STEP = re.compile(r"\.step(\d+)\.png$")
