"""New images to be labelled, and their copies among files for review."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image as Pillow

from faircl.data.file_data import FileData
from faircl.data.images import RGB, ImageReading
from faircl.data.sample import Classes, Image
from faircl.deploy.input_files import find_images
from faircl.deploy.matched_data import TRAIN, MatchedData, Source
from faircl.deploy.matching import Known, match_classes
from faircl.deploy.reader_settings import open_reader
from faircl.labels import Mask
from faircl.readers.label_studio import LabelStudioData
from faircl.scenario import Scenario

_COPIED = frozenset({".bmp", ".jpeg", ".jpg", ".png", ".webp"})
"""Kinds of files that are copied; others become PNG, because CVAT or a browser cannot show them."""
_ORIENTATION = 0x0112


class NewImage(NamedTuple):
    """An image (H, W, 3), its file if that is read without settings, and its labels (H, W) so far, if it has any."""

    id: str
    pixels: Image
    file: Path | None
    mask: Mask | None


class ReviewSource(NamedTuple):
    """New images, their number, the classes of their masks, those of a model first, and the ids of new ones."""

    images: Iterator[NewImage]
    total: int
    classes: Classes
    new: tuple[int, ...] = ()


def file_source(paths: Sequence[Path], classes: Classes, reading: ImageReading, out: Path) -> ReviewSource:
    """Open image files that have no labels; what lies in the output folder is left out."""
    files = find_images(paths, out)
    images = (NewImage(name, reading.read(path), path if reading == RGB else None, None) for path, name in files)
    return ReviewSource(images, len(files), classes)


def data_source(settings: Mapping[str, Any], scenario: Scenario, step: int) -> ReviewSource:
    """Open the training images of a data set, by the settings of its reader; masks are in the ids of the model."""
    reader, data = open_reader(settings)
    matching = match_classes(Known.of(scenario, step), data.classes)
    ids = tuple(data.ids(reader.train))
    source = Source(data, reader.train, ids, matching.table(data.classes))
    return ReviewSource(_labelled(source, matching.classes), len(ids), matching.classes, matching.new)


def _labelled(source: Source, classes: Classes) -> Iterator[NewImage]:
    data, matched = source.data, MatchedData(classes, {TRAIN: source})
    files = data if isinstance(data, FileData | LabelStudioData) and data.images == RGB else None
    for id in source.ids:
        sample = matched.read(TRAIN, id)
        file = None if files is None else files.image_path(source.split, id)
        yield NewImage(id, sample.image, file, sample.mask)


def save_image(image: NewImage, folder: Path) -> Path:
    """Copy an image into a folder, under its id, and return the path of the copy.

    An image that annotation tools would show otherwise than the model has seen it becomes a PNG of what it has seen:
    a file with an EXIF orientation, which these tools apply, with chosen bands, or of a kind they cannot show.
    """
    place, file = folder / image.id, image.file
    place.parent.mkdir(parents=True, exist_ok=True)
    if file is not None and file.suffix.lower() in _COPIED and not _turned(file):
        return Path(shutil.copyfile(file, place.with_name(place.name + file.suffix)))
    path = place.with_name(f"{place.name}.png")
    Pillow.fromarray(image.pixels).save(path)
    return path


def _turned(file: Path) -> bool:
    with Pillow.open(os.fspath(file)) as picture:
        return bool(picture.getexif().get(_ORIENTATION, 1) != 1)
