"""The record of label and prediction masks: counted in threads, with memory for a few images only."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np

from faircl.auditing.class_list import ClassList
from faircl.auditing.mask_ids import array_ids, decode_ids, resized
from faircl.auditing.pairing import Pair, Pairs
from faircl.auditing.pixel_counts import PixelCounter, PixelCounts, joined_record
from faircl.data.raster_files import file_bytes
from faircl.errors import UserError
from faircl.fairness.record import EvaluationRecord
from faircl.labels import Mask
from faircl.parallel import available_cores, read_ahead
from faircl.progress import Reporter

_SHOWN = 5  # unknown values that a note names
_KEPT = 30 << 20  # bytes; below 32 MB, the most that glibc adapts to


class Counted(NamedTuple):
    """The record of an audit, sentences on what was left out, and where it comes from."""

    record: EvaluationRecord
    notes: tuple[str, ...]
    lineage: dict[str, Any]


@dataclass(frozen=True)
class MaskSettings:
    """What masks are counted by.

    ``ignore``: values or names of label pixels that are left out. ``background``: id or name of the background class.
    ``resize``: bring predictions of another size to that of the label, from the nearest pixel.
    """

    ignore: tuple[int | str, ...] = (255,)
    background: int | str | None = None
    resize: bool = False

    def ignored(self, classes: ClassList) -> frozenset[int]:
        """Return the ignored values; 255 is a class where the class list says so and nothing else was asked for."""
        ignored = classes.ignored(self.ignore)
        return ignored - classes.names.keys() if self.ignore == (255,) else ignored

    def counter(self, classes: ClassList) -> PixelCounter:
        """Return what counts pairs of masks."""
        ignored = self.ignored(classes)
        return PixelCounter(classes.recorded(ignored, self.background), ignored, classes.source)


def count_files(pairs: Pairs, classes: ClassList, settings: MaskSettings, reporter: Reporter) -> Counted:
    """Count pairs of mask files; the digest in the lineage is over the names and bytes of all files, in order."""
    counter, table = settings.counter(classes), classes.colour_table
    _keep_freed_memory()

    def count(pair: Pair) -> tuple[PixelCounts, bytes]:
        label, prediction = (file_bytes(path, "mask") for path in (pair.label, pair.prediction))
        digest = b"".join(hashlib.sha256(data).digest() for data in (label, prediction))
        masks = [
            decode_ids(data, path, table, classes.source)
            for data, path in ((label, pair.label), (prediction, pair.prediction))
        ]
        guess = _fitted(masks[1], masks[0], f"Prediction {pair.prediction}", f"label {pair.label}", settings.resize)
        return counter.count(masks[0], guess, f"Label {pair.label}"), digest

    counts, digest = [], hashlib.sha256()
    ids = [pair.id for pair in pairs.pairs]
    with reporter.task("counting masks", len(ids)) as task:
        for id, (one, part) in zip(ids, read_ahead(pairs.pairs, count, 4 * available_cores()), strict=True):
            digest.update(f"{id}\0".encode("utf-8", "surrogateescape") + part)
            counts.append(one)
            task.advance()
    record = _record(counter, ids, counts, classes)
    lineage = {"images": len(ids), "files": 2 * len(ids), "sha256": digest.hexdigest()}
    return Counted(record, (*pairs.notes, *_stray_notes(counts)), lineage)


def count_arrays(
    labels: Iterable[Any], predictions: Iterable[Any], classes: ClassList, settings: MaskSettings, ids: Iterable[str]
) -> Counted:
    """Count masks (H, W) that are given one by one; ``ids`` names the images, further ones get their number."""
    counter = settings.counter(classes)
    counts, names = [], []
    given = iter(ids)
    for number, (label, prediction) in enumerate(_together(labels, predictions)):
        name = str(next(given, f"{number:06}"))
        mask, guess = array_ids(label, f"Label {name}"), array_ids(prediction, f"Prediction {name}")
        guess = _fitted(guess, mask, f"Prediction {name}", "the label", settings.resize)
        counts.append(counter.count(mask, guess, f"Label {name}"))
        names.append(name)
    if not counts:
        raise UserError("There is no mask to audit; give at least one label and its prediction.")
    if len(set(names)) < len(names):
        raise UserError(f"Two images are called '{Counter(names).most_common(1)[0][0]}'; names of images must differ.")
    return Counted(_record(counter, names, counts, classes), _stray_notes(counts), {"images": len(names)})


def _record(
    counter: PixelCounter, images: list[str], counts: list[PixelCounts], classes: ClassList
) -> EvaluationRecord:
    record = joined_record(counter.classes, images, counts)
    if not record.confusions.pixels.size:
        raise UserError(
            f"No label holds a pixel of a class of {classes.source}: all are ignored; check the labels and --ignore."
        )
    return record


def _together(labels: Iterable[Any], predictions: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
    missing = object()
    for number, pair in enumerate(zip_longest(labels, predictions, fillvalue=missing)):
        if pair[0] is missing or pair[1] is missing:
            short = "labels" if pair[0] is missing else "predictions"
            raise UserError(f"The {short} end after {number}; every image needs a label and a prediction.")
        yield pair


def _fitted(guess: Mask, mask: Mask, name: str, other: str, resize: bool) -> Mask:
    if guess.shape == mask.shape:
        return guess
    if resize:
        return resized(guess, (mask.shape[0], mask.shape[1]))
    raise UserError(
        f"{name} has {guess.shape[1]} x {guess.shape[0]} pixels, but {other} has {mask.shape[1]} x {mask.shape[0]}; "
        "predict at the label's size, or let --resize take the nearest pixel."
    )


def _keep_freed_memory() -> None:
    """Make the C library keep freed memory for the next image, which saves a sixth of the time.

    glibc hands large blocks back to the system and asks for them again, page by page, unless it has seen a larger block
    freed: then it keeps up to twice that size. Elsewhere this does nothing.
    """
    np.empty(_KEPT, np.uint8)


def _stray_notes(counts: Iterable[PixelCounts]) -> tuple[str, ...]:
    """Say how many predicted pixels have a value that no audited class has; an ignored class is not audited."""
    strays: Counter[int] = Counter()
    images = 0
    for one in counts:
        strays.update(one.strays)
        images += bool(one.strays)
    if not strays:
        return ()
    values = ", ".join(map(str, sorted(strays)[:_SHOWN])) + (", …" if len(strays) > _SHOWN else "")
    where = f"{images} prediction{'s' if images > 1 else ''}"
    return (
        f"{strays.total():,} labelled pixels in {where} have a value that no audited class has ({values}): they count "
        "as 'no class predicted'",
    )
