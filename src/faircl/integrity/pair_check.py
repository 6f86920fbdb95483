"""What is wrong with one image and its mask. Nothing is raised: every problem of the pair is named."""

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
from faircl.data.file_data import FileData, FilePair
from faircl.data.index_png import MissingRowsError, count_index_png
from faircl.data.mask_coding import MaskCoding
from faircl.data.masks import IGNORE_8BIT, decode_raster, file_bytes
from faircl.data.sample import Sample, SegmentationData
from faircl.errors import UserError
from faircl.integrity.findings import Fault
from faircl.labels import Mask, ignore_value


class PairResult(NamedTuple):
    """A pair: its problems, the pixels of every class (K,) if the mask is in order, its image's name and digest."""

    faults: tuple[Fault, ...]
    pixels: NDArray[np.int64] | None = None
    image: str = ""
    digest: bytes | None = None


def check_pair(data: SegmentationData, split: str, id: str) -> PairResult:
    """Decode an image and its mask whole; where they are refused, find out for which of the two, or for both."""
    files = _pair_names(data, split, id)
    image_name = files.image or files.mask
    try:
        sample = data.read(split, id)
        _check_rows(data, split, id)
    except Exception as error:  # a broken file can make an outside reader raise anything
        alone, of_image = check_mask(data, split, id), _faults_of_image(data, split, id, files)
        faults = (*of_image, *alone.faults)
        if alone.pixels is not None and not of_image:
            # Each can be read alone: of files, that leaves their sizes.
            kind = "size-mismatch" if isinstance(data, FileData) else "unreadable-image"
            faults = (*faults, Fault(kind, files.mask, _sentence(error, id)))
        # Two broken images may have the same bytes, none at all perhaps.
        return PairResult(faults, alone.pixels, image_name, None if of_image else _digest(data, split, id, None))
    faults, pixels = _count(sample.mask, len(data.classes.names), files.mask)
    if sample.image.shape[:2] != sample.mask.shape:  # file readers refuse it themselves
        faults = (*faults, Fault("size-mismatch", files.mask, _size_message(sample.image.shape, sample.mask.shape, id)))
    return PairResult(faults, pixels, image_name, _digest(data, split, id, sample))


def check_mask(data: SegmentationData, split: str, id: str) -> PairResult:
    """Decode a mask; its image need not be there."""
    files = _pair_names(data, split, id)
    try:
        mask = data.read_mask(split, id)
        _check_rows(data, split, id)
    except Exception as error:  # as above
        return PairResult((_fault_of_mask(data, split, id, files, error),))
    return PairResult(*_count(mask, len(data.classes.names), files.mask))


def _check_rows(data: SegmentationData, split: str, id: str) -> None:
    """Count a mask file, which notices what decoding does not: missing rows."""
    if isinstance(data, FileData):
        data.count_mask(split, id, file_bytes(data.mask_path(split, id), "mask"))


def explain_refused_mask(content: bytes, path: Path, coding: MaskCoding | None, sentence: str) -> tuple[str, str]:
    """Return why a mask file's bytes were refused, as a kind and a sentence.

    `coding` says what was expected, None if the reader has a way of its own; `sentence` is what the reader said.
    """
    try:
        picture = decode_raster(content, path, "mask")
        count_index_png(content)
    except (UserError, MissingRowsError):
        return "unreadable-mask", sentence
    pixels = np.asarray(picture)
    if picture.format == "JPEG":
        return "jpeg-mask", sentence
    if picture.mode in ("LA", "RGBA") and pixels[..., -1].min() < 255:  # transparent: no number is sure
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
    """Whether ids look as if one had been subtracted: 0 has become 255, where no void is, and the last id is gone."""
    if coding.void or coding.values is not None:
        return False
    others = values[values != IGNORE_8BIT]
    return len(others) < len(values) and bool((others < coding.classes - 1).all())


def _faults_of_image(data: SegmentationData, split: str, id: str, files: FilePair) -> tuple[Fault, ...]:
    if not isinstance(data, FileData):
        return ()  # it can only be read with its mask
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
    """Count a mask that was read. An outside reader has no coding to refuse ids, so they are checked here as well."""
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
        return (Fault("void-mask", name, f"Mask {name} is void everywhere; annotate it or leave it out."),), pixels
    return (), pixels


def _digest(data: SegmentationData, split: str, id: str, sample: Sample | None) -> bytes | None:
    """Digest of an image file's bytes, or of the pixels of an image that is no file; None where it cannot be read."""
    if not isinstance(data, FileData):
        if sample is None:
            return None
        about = str(sample.image.shape).encode()
        return hashlib.blake2b(about + sample.image.tobytes(), digest_size=DIGEST_BYTES).digest()
    with suppress(UserError):
        return hashlib.blake2b(file_bytes(data.image_path(split, id), "image"), digest_size=DIGEST_BYTES).digest()
    return None


def _pair_names(data: SegmentationData, split: str, id: str) -> FilePair:
    """Names of a pair in findings: its files below the root, or its id where the data is not files."""
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
