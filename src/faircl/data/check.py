"""Looking at every file of a data set and naming all that is wrong with it, from first to last.

Images and masks are decoded in threads, one pair at a time in each; of a pair, only counts and a digest are kept.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np

from faircl.data.faults import Looked, look_at_mask, look_at_pair
from faircl.data.file_data import IMAGE_SUFFIXES, MASK_SUFFIXES, FileData, Files, Listing, list_files
from faircl.data.findings import Fault, Report
from faircl.data.folder import FolderData
from faircl.data.sample import SegmentationData
from faircl.errors import UserError
from faircl.progress import Reporter, Silence

_JPEG = (".jpg", ".jpeg")

_Seen = dict[bytes, tuple[str, str]]  # digest of an image to the split and name it was first met under


def check_data(
    data: SegmentationData, splits: Iterable[str], reporter: Reporter | None = None, images: bool = True
) -> Report:
    """Check splits of a data set; with ``images`` off, their masks alone."""
    reporter = reporter or Silence()
    report = Report()
    seen: _Seen = {}
    if type(data) is FolderData:
        data = _LenientFolder(data)
    for split in dict.fromkeys(splits):
        ids = _list(data, split, report)
        report.checked[split] = len(ids)
        if ids:
            _check_split(data, split, ids, report, seen, reporter, images)
    return report


def _list(data: SegmentationData, split: str, report: Report) -> Sequence[str]:
    """List a split; what keeps it from being listed is a finding."""
    try:
        ids = data.ids(split)
    except UserError as error:
        report.add(split, Fault("empty-split" if _is_empty(data, split) else "unlisted-split", None, str(error)))
        ids = ()
    else:
        report.skipped[split] = data.skipped(split) if isinstance(data, FileData) else ()
    if isinstance(data, _LenientFolder):
        for part in split.split("+"):
            for fault in data.bare.get(part, ()):
                report.add(split, fault)
    return ids


def _is_empty(data: SegmentationData, split: str) -> bool:
    """Whether a split cannot be listed because a part of it holds nothing."""
    try:
        if not isinstance(data, FileData) or not set(split.split("+")) <= set(data.splits()):
            return False
        return any(not data.list_split(part).files for part in split.split("+"))
    except UserError:
        return False


def _check_split(
    data: SegmentationData,
    split: str,
    ids: Sequence[str],
    report: Report,
    seen: _Seen,
    reporter: Reporter,
    images: bool,
) -> None:
    totals = np.zeros(len(data.classes.names), np.int64)
    counted = 0

    def note(looked: Looked) -> None:
        nonlocal totals, counted
        for fault in looked.faults:
            report.add(split, fault)
        if looked.pixels is not None:
            totals += looked.pixels
            counted += 1
        if looked.digest is not None and (again := _seen_before(looked, split, looked.digest, seen)):
            report.add(split, again)

    look = partial(look_at_pair if images else look_at_mask, data, split)
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
    look: Callable[[str], Looked], ids: Sequence[str], note: Callable[[Looked], None], advance: Callable[[], None]
) -> None:
    """Look at all ids and note what was found in their order."""
    pool = ThreadPoolExecutor(os.cpu_count())
    try:
        for looked in pool.map(look, ids):
            note(looked)
            advance()
    finally:
        pool.shutdown(cancel_futures=True)  # Ctrl-C does not wait for all that is still to come


def _seen_before(looked: Looked, split: str, digest: bytes, seen: _Seen) -> Fault | None:
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


class _LenientFolder(FolderData):
    """A folder whose files without a partner are not refused: masks stay in the list, images go to `bare`."""

    def __init__(self, data: FolderData) -> None:
        self.__dict__.update(data.__dict__)  # the same folder, read in the same way
        self._listings = {}
        self.bare: dict[str, tuple[Fault, ...]] = {}

    def list_split(self, split: str) -> Listing:
        """List the masks of a split, with their images where there are some."""
        masks, skipped_masks = list_files(self.root / "masks" / split, MASK_SUFFIXES)
        skipped = [f"masks/{split}/{name}" for name in skipped_masks]
        images: dict[str, str] = {}
        if os.path.isdir(self.root / "images"):
            images, skipped_images = list_files(self.root / "images" / split, IMAGE_SUFFIXES)
            skipped += [f"images/{split}/{name}" for name in skipped_images]
        jpegs = {os.path.splitext(name)[0]: name for name in skipped_masks if name.lower().endswith(_JPEG)}
        self.bare[split] = tuple(
            self._without_mask(split, id + images[id], jpegs.get(id)) for id in images if id not in masks
        )
        files = {
            id: Files(f"images/{split}/{id}{images[id]}" if id in images else None, f"masks/{split}/{id}{suffix}")
            for id, suffix in masks.items()
        }
        return Listing(files, tuple(skipped))

    def _without_mask(self, split: str, image: str, jpeg: str | None) -> Fault:
        if jpeg is not None:
            message = f"Mask {self.root / 'masks' / split / jpeg} is a JPEG file, whose compression changes class ids; "
            return Fault("jpeg-mask", f"masks/{split}/{jpeg}", message + "save masks as PNG.")
        message = f"Image {self.root / 'images' / split / image} has no mask in {self.root / 'masks' / split}; add it "
        return Fault("no-mask", f"images/{split}/{image}", message + "or remove the image.")
