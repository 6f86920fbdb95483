"""Hugging Face data sets, from the hub or from disk, with columns of images and masks."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from PIL import Image as Pillow
from pydantic import Field

from faircl.data.images import decode_image
from faircl.data.masks import decode_mask_bytes, fit_mask
from faircl.data.raster_files import file_bytes
from faircl.data.sample import Image, Sample
from faircl.errors import UserError, did_you_mean, listed
from faircl.hub import hub_or_cache, quiet_download
from faircl.labels import IGNORE, Mask
from faircl.readers.background import check_background, classes_with_background
from faircl.readers.base import Reader, ReaderConfig

_SAVED = ("dataset_dict.json", "state.json")  # what save_to_disk leaves
_DIGITS = 6


class HuggingFaceData:
    """Reader of a Hugging Face data set. An id is a row number.

    Masks are single-channel pictures or nested lists of numbers; `ignore_value` is the number of ignored pixels.
    `classes` may be left out if the label column names them. `background` is as for a folder. Files are not decoded by
    ``datasets``, which rotates images by their EXIF tag, but not masks.
    """

    def __init__(
        self,
        path: str,
        config_name: str | None = None,
        image_column: str = "image",
        label_column: str = "label",
        classes: Sequence[str] | None = None,
        background: str = "auto",
        ignore_value: int = 255,
    ) -> None:
        check_background(background)
        self.path, self.ignore_value = path, ignore_value
        self._image_column, self._label_column = image_column, label_column
        self._splits = _load(_library(), path, config_name)
        self._tables: dict[tuple[str, str], Any] = {}  # by split and column, filled on first use
        # Columns are checked on the first split that has both: others may lack masks.
        wanted = {image_column, label_column}
        whole = [split for split, rows in self._splits.items() if wanted <= set(rows.column_names)]
        first = (whole or list(self._splits))[0]
        for column in (image_column, label_column):
            self._table(first, column)
        names = tuple(classes) if classes else self._named(self._splits[first].features[label_column])
        if repeated := [name for name in names if names.count(name) > 1]:
            raise UserError(f"data.classes names '{repeated[0]}' twice; names must differ.")
        if ignore_value < len(names):
            raise UserError(
                f"data.ignore_value is {ignore_value}, which is also the id of class '{names[ignore_value]}'; set it "
                f"to a number that no class has, such as {255 if len(names) <= 255 else IGNORE}."
            )
        self.classes = classes_with_background(names, background)

    def splits(self) -> tuple[str, ...]:
        """Return the names of the splits."""
        return tuple(self._splits)

    def ids(self, split: str) -> Sequence[str]:
        """Return the row numbers of a split, with leading zeros."""
        count = len(self._table(split, self._label_column))
        digits = max(_DIGITS, len(str(count - 1)))
        return tuple(f"{row:0{digits}d}" for row in range(count))

    def read(self, split: str, id: str) -> Sample:
        """Return image (H, W, 3) and mask (H, W) of one row; their sizes and the mask's values are checked."""
        image, mask = self._read_image(split, id), self.read_mask(split, id)
        if image.shape[:2] != mask.shape:
            (high, wide), (mask_high, mask_wide) = image.shape[:2], mask.shape
            raise UserError(
                f"Row {id} of split '{split}' of {self.path} has a mask of {mask_wide}x{mask_high} pixels, but its "
                f"image is {wide}x{high} (width x height); both must have the same size."
            )
        return Sample(id, image, mask)

    def read_mask(self, split: str, id: str) -> Mask:
        """Return the mask (H, W) of one row; its values are checked."""
        cell, source = self._cell(split, id, self._label_column), self._source(split, id, self._label_column)
        if isinstance(cell, Mapping):
            data = _bytes_of(cell, source, "mask")
            if _is_colour(data):
                raise UserError(
                    f"Mask {source} is a colour picture; expected one number per pixel, the place of its class in "
                    "data.classes: choose another label column or convert it."
                )
            mask = decode_mask_bytes(data, source)
        else:
            mask = _from_numbers(cell, source)
        with_ignore = np.where(mask == self.ignore_value, np.uint16(IGNORE), mask.astype(np.uint16))
        return fit_mask(with_ignore, len(self.classes.names), str(source), "data.classes")

    def _read_image(self, split: str, id: str) -> Image:
        cell, source = self._cell(split, id, self._image_column), self._source(split, id, self._image_column)
        return decode_image(_bytes_of(cell, source, "image"), source)

    def _source(self, split: str, id: str, column: str) -> Path:
        return Path(f"{self.path}:{split}:{id}:{column}")  # for errors

    def _cell(self, split: str, id: str, column: str) -> Any:
        rows = self._table(split, column)
        if not (id.isdecimal() and int(id) < len(rows)):
            raise UserError(f"No row '{id}' in split '{split}' of {self.path}; it has 0 to {len(rows) - 1}.")
        if (cell := rows[int(id)][column]) is None:
            raise UserError(f"Row {id} of split '{split}' of {self.path} has no {column}; remove the row or fill it.")
        return cell

    def _table(self, split: str, column: str) -> Any:
        """Return one column of a split, its pictures not decoded."""
        if (split, column) not in self._tables:
            self._tables[split, column] = self._make_table(split, column)
        return self._tables[split, column]

    def _make_table(self, split: str, column: str) -> Any:
        key = "image_column" if column == self._image_column else "label_column"
        if split not in self._splits:
            have = listed(list(self._splits))
            raise UserError(
                f"Data set {self.path} has no split '{split}'.{did_you_mean(split, self._splits)} It has: {have}."
            )
        rows, columns = self._splits[split], self._splits[split].column_names
        if column not in columns:
            raise UserError(
                f"Split '{split}' of {self.path} has no column '{column}'.{did_you_mean(column, columns)} It has: "
                f"{listed(columns)}; set data.{key} to one of them."
            )
        if not len(rows):
            raise UserError(f"Split '{split}' of {self.path} is empty; expected at least one row.")
        library, feature = _library(), rows.features[column]
        if key == "label_column" and (isinstance(feature, library.Array2D) or _inner(feature) is not None):
            return rows.select_columns([column])
        try:
            return rows.select_columns([column]).cast_column(column, library.Image(decode=False))
        except Exception as error:  # Arrow raises many kinds of errors
            raise UserError(
                f"Column '{column}' of {self.path} holds {feature}; expected pictures: set data.{key} to one of: "
                f"{listed(columns)}."
            ) from error

    def _named(self, feature: Any) -> tuple[str, ...]:
        names = getattr(_inner(feature), "names", None)
        if not names:
            raise UserError(
                f"Data set {self.path} does not name its classes; set data.classes to their names in order of their "
                "ids, from 0."
            )
        return tuple(names)


def _library() -> Any:
    try:
        return import_module("datasets")
    except ImportError as error:
        raise UserError(
            "The data set 'huggingface' needs the library datasets; install it with: pip install 'faircl[huggingface]'."
        ) from error


def _load(library: Any, path: str, config_name: str | None) -> dict[str, Any]:
    """Return the splits by name, from a folder written by ``save_to_disk``, another folder or file, or the hub."""
    local = os.path.expanduser(path)
    if not os.path.exists(local) and (path.startswith(("/", ".", "~", "\\")) or path.count("/") > 1):
        raise UserError(f"Data folder {path} does not exist; set data.path to a folder or to a name on the hub.")
    try:
        if any(os.path.isfile(os.path.join(local, name)) for name in _SAVED):
            loaded = library.load_from_disk(local)
        elif os.path.isfile(local):
            loaded = library.load_dataset("parquet", data_files=local)
        elif os.path.isdir(local):
            loaded = library.load_dataset(local, config_name)
        else:
            with quiet_download(), hub_or_cache():
                loaded = library.load_dataset(path, config_name)
    except Exception as error:  # no network, unknown name, damaged files
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise UserError(
            f"Cannot open the Hugging Face data set {path}: {lines[0].rstrip('.')}; check data.path, data.config_name "
            "and the network."
        ) from error
    return dict(loaded) if isinstance(loaded, dict) else {str(loaded.split or "train"): loaded}


def _inner(feature: Any) -> Any:
    """Return the feature inside a list of lists; None for any other feature."""
    return getattr(getattr(feature, "feature", None), "feature", None)


def _bytes_of(cell: Mapping[str, Any], source: Path, kind: str) -> bytes:
    """Return the bytes of a picture that a row holds or points to."""
    if (data := cell.get("bytes")) is not None:
        return bytes(data)
    if not (path := cell.get("path")):
        raise UserError(f"{kind.capitalize()} {source} has neither bytes nor a path; make the data set again.")
    return file_bytes(Path(path), kind)


def _is_colour(data: bytes) -> bool:
    try:
        return Pillow.open(BytesIO(data)).mode in ("RGB", "RGBA", "CMYK", "YCbCr")
    except Exception:  # damaged: decoding raises an error with the reason
        return False


def _from_numbers(cell: Any, source: Path) -> Mask:
    try:
        numbers = np.array(cell, np.int64)
    except (TypeError, ValueError):  # rows of different lengths, or not numbers
        numbers = np.array([], np.int64)
    if numbers.ndim != 2 or not numbers.size or numbers.min() < 0 or numbers.max() > IGNORE:
        raise UserError(f"Mask {source} is not rows of equally many numbers from 0 to {IGNORE}; fix the label column.")
    return numbers.astype(np.uint16)


class HuggingFaceConfig(ReaderConfig):
    """A data set of Hugging Face's library."""

    name: Literal["huggingface"] = "huggingface"
    path: str | None = Field(None, description="name on the hub, or a folder")
    config_name: str | None = Field(None, description="configuration of a data set that has several")
    image_column: str = Field("image", description="column of images")
    label_column: str = Field("label", description="column of masks")
    classes: tuple[str, ...] | None = Field(None, description="class names in order of their ids, from 0")
    background: Literal["auto", "first", "none"] = Field(
        "auto", description="whether id 0 is background: auto looks whether it is called so"
    )
    ignore_value: int = Field(255, ge=0, le=IGNORE, description="number of ignored pixels")

    def absolute(self) -> Self:
        """Return the same configuration with an absolute path, unless the path is a name on the hub."""
        if self.path is None or not os.path.exists(self.path):
            return self
        return self.model_copy(update={"path": os.path.abspath(self.path)})

    def open(self) -> HuggingFaceData:
        """Open the data set; one on the hub is downloaded to the library's cache."""
        if self.path is None:
            raise UserError(
                "The data set 'huggingface' has no path; set data.path to a folder or to a name on the hub."
            )
        columns = self.image_column, self.label_column
        return HuggingFaceData(self.path, self.config_name, *columns, self.classes, self.background, self.ignore_value)


class HuggingFaceReader(Reader):
    """A data set of Hugging Face's library."""

    Config = HuggingFaceConfig
    summary = "a Hugging Face data set, from the hub or from disk, with columns of images and masks"
