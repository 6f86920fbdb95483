"""Check of one image and its mask: returns all problems instead of raising the first."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from faircl.data.colour_masks import ColourCoding
from faircl.data.count_cache import DIGEST_BYTES
from faircl.data.file_data import FileData
from faircl.data.index_png import MissingRowsError, count_index_png
from faircl.data.listing import FilePair
from faircl.data.mask_coding import MaskCoding
from faircl.data.masks import IGNORE_8BIT
from faircl.data.raster_files import decode_raster, file_bytes
from faircl.data.sample import Sample, SegmentationData
from faircl.errors import UserError
from faircl.integrity.findings import Fault
from faircl.labels import Mask, ignore_value


class PairResult(NamedTuple):
    """Problems of a pair, pixels of every class (K,) if the mask is valid, name and digest of the image."""

    faults: tuple[Fault, ...]
    pixels: NDArray[np.int64] | None = None
    image: str = ""
    digest: bytes | None = None


def check_pair(data: SegmentationData, split: str, id: str) -> PairResult:
    """Decode an image and its mask; if that fails, find out which of the two is the cause, or both."""
    files = _pair_names(data, split, id)
    image_name = files.image or files.mask
    try:
        sample = data.read(split, id)
        _check_rows(data, split, id)
    except Exception as error:  # a damaged file can make a reader from outside raise anything
        mask_only, image_faults = check_mask(data, split, id), _faults_of_image(data, split, id, files)
        faults = (*image_faults, *mask_only.faults)
        if mask_only.pixels is not None and not image_faults:
            # Each of the two files can be read alone, so their sizes differ.
            kind = "size-mismatch" if isinstance(data, FileData) else "unreadable-image"
            faults = (*faults, Fault(kind, files.mask, _sentence(error, id)))
        # Damaged images get no digest: two empty files are not duplicates.
        return PairResult(
            faults, mask_only.pixels, image_name, None if image_faults else _digest(data, split, id, None)
        )
    faults, pixels = _count(sample.mask, len(data.classes.names), files.mask)
    if sample.image.shape[:2] != sample.mask.shape:  # FileData.read raises an error for it
        faults = (*faults, Fault("size-mismatch", files.mask, _size_message(sample.image.shape, sample.mask.shape, id)))
    return PairResult(faults, pixels, image_name, _digest(data, split, id, sample))


def check_mask(data: SegmentationData, split: str, id: str) -> PairResult:
    """Decode a mask; its image may be missing."""
    files = _pair_names(data, split, id)
    try:
        mask = data.read_mask(split, id)
        _check_rows(data, split, id)
    except Exception as error:  # as above
        return PairResult((_fault_of_mask(data, split, id, files, error),))
    return PairResult(*_count(mask, len(data.classes.names), files.mask))


def _check_rows(data: SegmentationData, split: str, id: str) -> None:
    """Count a mask file, which detects missing rows; decoding does not."""
    if isinstance(data, FileData):
        data.count_mask(split, id, file_bytes(data.mask_path(split, id), "mask"))


def explain_refused_mask(content: bytes, path: Path, coding: MaskCoding | None, sentence: str) -> tuple[str, str]:
    """Return why a mask file was refused, as a kind of problem and a sentence.

    `coding` is the expected coding, None if the reader has its own way of decoding; `sentence` is the reader's error.
    """
    try:
        picture = decode_raster(content, path, "mask")
        count_index_png(content)
    except (UserError, MissingRowsError):
        return "unreadable-mask", sentence
    pixels = np.asarray(picture)
    if picture.format == "JPEG":
        return "jpeg-mask", sentence
    if picture.mode in ("LA", "RGBA") and pixels[..., -1].min() < 255:  # transparent pixels
        return "unreadable-mask", sentence
    if picture.mode.startswith("I") and (coding is None or isinstance(coding, ColourCoding)):
        return "unreadable-mask", sentence
    if coding is None:
        return "unknown-ids", sentence
    if isinstance(coding, ColourCoding):
        return "unknown-colours", sentence
    if picture.mode in ("RGB", "RGBA"):
        if (pixels[..., :3] == pixels[..., :1]).all():
            return "grey-rgb-mask", (
                f"Mask {path} is a grey picture saved as RGB, its three channels are equal; expected one channel of "
                "class ids: save one of the three as an index PNG."
            )
        return "rgb-mask" if coding.colours is None else "unknown-colours", sentence
    if picture.mode.startswith("I"):
        return "deep-ids", sentence
    if picture.mode not in ("1", "L", "LA", "P"):
        return "unreadable-mask", sentence
    values = np.unique(pixels[..., 0] if picture.mode == "LA" else pixels)
    return "shifted-ids" if _looks_shifted(values, coding) else "unknown-ids", sentence


def _looks_shifted(values: NDArray[np.uint8], coding: MaskCoding) -> bool:
    """Whether one was subtracted from all ids: 255 occurs without being the ignore value, the last id does not."""
    if coding.has_ignore or coding.values is not None:
        return False
    others = values[values != IGNORE_8BIT]
    return len(others) < len(values) and bool((others < coding.classes - 1).all())


def _faults_of_image(data: SegmentationData, split: str, id: str, files: FilePair) -> tuple[Fault, ...]:
    if not isinstance(data, FileData):
        return ()  # cannot be read without its mask
    try:
        data.images.read(data.image_path(split, id))
    except Exception as error:  # as above
        there = files.image is not None and os.path.exists(data.image_path(split, id))
        return (Fault("unreadable-image" if there else "no-image", files.image or files.mask, _sentence(error, id)),)
    return ()


def _fault_of_mask(data: SegmentationData, split: str, id: str, files: FilePair, error: Exception) -> Fault:
    sentence = _sentence(error, id)
    if isinstance(data, FileData):
        path = data.mask_path(split, id)
        if not os.path.exists(path):
            return Fault("no-mask", files.mask, sentence)
        own_way = type(data).decode_mask is not FileData.decode_mask and data.coding.values is None
        with suppress(UserError):
            kind, sentence = explain_refused_mask(
                file_bytes(path, "mask"), path, None if own_way else data.coding, sentence
            )
            return Fault(kind, files.mask, sentence)
    return Fault("unreadable-mask", files.mask, sentence)


def _count(mask: Mask, classes: int, name: str) -> tuple[tuple[Fault, ...], NDArray[np.int64]]:
    """Count the classes of a mask; ids are checked here because a reader from outside may not check them."""
    counts = np.bincount(mask.ravel(), minlength=classes)
    pixels = counts[:classes].astype(np.int64)
    unknown = [value for value in (np.flatnonzero(counts[classes:]) + classes).tolist() if value != ignore_value(mask)]
    if unknown:
        message = (
            f"Mask {name} holds value {unknown[0]} in {counts[unknown[0]]} pixels, but there are {classes} classes, "
            f"ids 0 to {classes - 1}; add the missing classes."
        )
        return (Fault("unknown-ids", name, message),), pixels
    if not pixels.any():
        return (
            Fault("ignored-mask", name, f"Every pixel of mask {name} is ignored; annotate it or leave it out."),
        ), pixels
    return (), pixels


def _digest(data: SegmentationData, split: str, id: str, sample: Sample | None) -> bytes | None:
    """Return the digest of an image's file, or of its pixels if it is not a file; None if it cannot be read."""
    if not isinstance(data, FileData):
        if sample is None:
            return None
        about = str(sample.image.shape).encode()
        return hashlib.blake2b(about + sample.image.tobytes(), digest_size=DIGEST_BYTES).digest()
    with suppress(UserError):
        return hashlib.blake2b(file_bytes(data.image_path(split, id), "image"), digest_size=DIGEST_BYTES).digest()
    return None


def _pair_names(data: SegmentationData, split: str, id: str) -> FilePair:
    """Return the names of a pair in reports: its files relative to the root, or its id if the data is not files."""
    return data.listing(split).files[id] if isinstance(data, FileData) else FilePair(id, id)


def _size_message(image: tuple[int, ...], mask: tuple[int, ...], id: str) -> str:
    return (
        f"Mask of '{id}' is {mask[1]}x{mask[0]} pixels, but its image is {image[1]}x{image[0]} (width x height); both "
        "must have the same size."
    )


def _sentence(error: Exception, id: str) -> str:
    if isinstance(error, UserError):
        return str(error)
    return f"'{id}' cannot be read: {type(error).__name__}: {error}; look at its files."
