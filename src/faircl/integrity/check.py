"""Looking at every file of a data set and naming all that is wrong with it, from first to last.

Images and masks are decoded in threads, one pair at a time in each; of a pair, only counts and a digest are kept.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np

from faircl.data.counting_pool import available_cores
from faircl.data.file_data import FileData
from faircl.data.sample import SegmentationData
from faircl.errors import UserError
from faircl.integrity.findings import Fault, Report
from faircl.integrity.pair_check import PairResult, check_mask, check_pair
from faircl.progress import Reporter, SilentReporter

_JPEG = (".jpg", ".jpeg")

_FirstSeen = dict[bytes, tuple[str, str]]  # digest of an image to the split and name it was first met under


def check_data(
    data: SegmentationData, splits: Iterable[str], reporter: Reporter | None = None, images: bool = True
) -> Report:
    """Check splits of a data set; with ``images`` off, their masks alone."""
    reporter = reporter or SilentReporter()
    report = Report()
    seen: _FirstSeen = {}
    data = copy.copy(data)  # listed anew, and leniently
    for split in dict.fromkeys(splits):
        ids = _list_split(data, split, report)
        report.checked[split] = len(ids)
        if ids:
            _check_split(data, split, ids, report, seen, reporter, images)
    return report


def _list_split(data: SegmentationData, split: str, report: Report) -> Sequence[str]:
    """List a split; what keeps it from being listed is a finding, and files without a partner are findings too."""
    try:
        if not isinstance(data, FileData):
            return data.ids(split)
        listing = data.relist(split)
    except UserError as error:
        report.add(split, Fault("unlisted-split", None, str(error)))
        return ()
    jpegs = {_path_in_split(name): name for name in listing.skipped if name.lower().endswith(_JPEG)}
    found = {image: jpegs.get(_path_in_split(image)) for image in listing.bare}
    for image, jpeg in found.items():
        report.add(split, _without_mask(image, jpeg))
    report.skipped[split] = tuple(name for name in listing.skipped if name not in found.values())
    if not listing.files and not listing.bare:
        report.add(split, Fault("empty-split", None, f"Split '{split}' of {data.root} holds neither image nor mask."))
    return tuple(listing.files)


def _path_in_split(name: str) -> str:
    """Return a file's path without its first folder and its extension: the same for an image and its mask."""
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

    def note(looked: PairResult) -> None:
        nonlocal totals, counted
        for fault in looked.faults:
            report.add(split, fault)
        if looked.pixels is not None:
            totals += looked.pixels
            counted += 1
        if looked.digest is not None and (again := _duplicate(looked, split, looked.digest, seen)):
            report.add(split, again)

    look = partial(check_pair if images else check_mask, data, split)
    with reporter.task(f"checking {split}", len(ids)) as task:
        _in_threads(look, ids, note, task.advance)
    if len(ids) == 1:
        message = f"Split '{split}' has a single image; check that it is whole."
        report.add(split, Fault("single-image", None, message))
    for name, pixels in zip(data.classes.names, totals, strict=True):
        if counted and not pixels:
            message = f"Class '{name}' has no pixel in split '{split}'; compare the class list with the masks."
            report.add(split, Fault("empty-class", None, message))


def _in_threads(
    look: Callable[[str], PairResult],
    ids: Sequence[str],
    note: Callable[[PairResult], None],
    advance: Callable[[], None],
) -> None:
    """Look at all ids and note what was found in their order."""
    pool = ThreadPoolExecutor(available_cores())
    try:
        for looked in pool.map(look, ids):
            note(looked)
            advance()
    finally:
        pool.shutdown(cancel_futures=True)  # Ctrl-C does not wait for all that is still to come


def _duplicate(looked: PairResult, split: str, digest: bytes, seen: _FirstSeen) -> Fault | None:
    """Say that an image is there twice; across splits, a network would be tested on what it was trained on."""
    first_split, first = seen.setdefault(digest, (split, looked.image))
    if (first_split, first) == (split, looked.image):
        return None
    if first_split == split:
        return Fault("duplicate", looked.image, f"Image {looked.image} has the same content as {first}; remove one.")
    message = (
        f"Image {looked.image} of split '{split}' has the same content as {first} of split '{first_split}'; remove it "
        "from one of them."
    )
    return Fault("leak", looked.image, message)
