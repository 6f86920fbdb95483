"""Check of a whole data set: every file is read, and all problems are reported.

Images and masks are decoded in threads; of each pair only counts and a digest are kept in memory.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable, Sequence
from functools import partial

import numpy as np

from faircl.data.file_data import FileData
from faircl.data.sample import SegmentationData
from faircl.errors import UserError
from faircl.integrity.findings import Fault, Report
from faircl.integrity.pair_check import PairResult, check_mask, check_pair
from faircl.labels import BACKGROUND
from faircl.parallel import thread_pool
from faircl.progress import Reporter, SilentReporter

_JPEG = (".jpg", ".jpeg")

_FirstSeen = dict[bytes, tuple[str, str]]  # digest of an image to the split and name of its first occurrence


def check_data(
    data: SegmentationData, splits: Iterable[str], reporter: Reporter | None = None, images: bool = True
) -> Report:
    """Check splits of a data set; with ``images`` off, only their masks."""
    reporter = reporter or SilentReporter()
    report = Report()
    seen: _FirstSeen = {}
    data = copy.copy(data)  # its listings are replaced by unchecked ones
    for split in dict.fromkeys(splits):
        ids = _list_split(data, split, report)
        report.checked[split] = len(ids)
        if ids:
            _check_split(data, split, ids, report, seen, reporter, images)
    return report


def _list_split(data: SegmentationData, split: str, report: Report) -> Sequence[str]:
    """Return the ids of a split; report if it cannot be listed, and files without a partner."""
    try:
        if not isinstance(data, FileData):
            return data.ids(split)
        listing = data.relist_unchecked(split)
    except UserError as error:
        report.add(split, Fault("unlisted-split", None, str(error)))
        return ()
    jpegs = {_path_in_split(name): name for name in listing.skipped if name.lower().endswith(_JPEG)}
    found = {image: jpegs.get(_path_in_split(image)) for image in listing.unmasked}
    for image, jpeg in found.items():
        report.add(split, _without_mask(image, jpeg))
    report.skipped[split] = tuple(name for name in listing.skipped if name not in found.values())
    if not listing.files and not listing.unmasked:
        report.add(split, Fault("empty-split", None, f"Split '{split}' of {data.root} holds neither image nor mask."))
    return tuple(listing.files)


def _path_in_split(name: str) -> str:
    """Return a path without its first folder and its extension, which is equal for an image and its mask."""
    return os.path.splitext(name.partition("/")[2])[0]


def _without_mask(image: str, jpeg: str | None) -> Fault:
    if jpeg is None:
        return Fault(
            "no-mask", image, f"Image {image} has no mask; add it, or remove the image and its line in a list."
        )
    return Fault("jpeg-mask", jpeg, f"Mask {jpeg} is a JPEG file, whose compression changes class ids; save it as PNG.")


def _check_split(
    data: SegmentationData,
    split: str,
    ids: Sequence[str],
    report: Report,
    seen: _FirstSeen,
    reporter: Reporter,
    images: bool,
) -> None:
    totals = np.zeros(len(data.classes.names), np.int64)
    counted = 0

    def add(result: PairResult) -> None:
        nonlocal totals, counted
        for fault in result.faults:
            report.add(split, fault)
        if result.pixels is not None:
            totals += result.pixels
            counted += 1
        if result.digest is not None and (repeated := _duplicate(result, split, result.digest, seen)):
            report.add(split, repeated)

    check = partial(check_pair if images else check_mask, data, split)
    with reporter.task(f"checking {split}", len(ids)) as task, thread_pool() as pool:
        for result in pool.map(check, ids):
            add(result)
            task.advance()
    if len(ids) == 1:
        message = f"Split '{split}' has a single image; check that it is whole."
        report.add(split, Fault("single-image", None, message))
    for id, (name, pixels) in enumerate(zip(data.classes.names, totals, strict=True)):
        if counted and not pixels:
            background = data.classes.background and id == BACKGROUND
            message = f"Class '{name}' has no pixel in split '{split}'; " + (
                "if the split is tested on, background is scored at no step."
                if background
                else "compare the class list with the masks."
            )
            report.add(split, Fault("empty-class", None, message))


def _duplicate(result: PairResult, split: str, digest: bytes, seen: _FirstSeen) -> Fault | None:
    """Return a fault if an image occurs twice: a duplicate within a split, a leak across splits."""
    first_split, first = seen.setdefault(digest, (split, result.image))
    if (first_split, first) == (split, result.image):
        return None
    if first_split == split:
        return Fault("duplicate", result.image, f"Image {result.image} has the same content as {first}; remove one.")
    message = (
        f"Image {result.image} of split '{split}' has the same content as {first} of split '{first_split}'; remove it "
        "from one of them."
    )
    return Fault("leak", result.image, message)
