"""Pixel counts of every class in every image of a split.

Every mask file is read once. If its content was counted before, the counts come from the cache and it is not decoded.
Images are not read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from faircl.data.count_cache import DIGEST_BYTES, CountCache
from faircl.data.counting_pool import CountedFile, count_file, count_in_processes
from faircl.data.file_data import FileData
from faircl.data.mask_coding import MaskCounts, count_ids
from faircl.data.sample import SegmentationData
from faircl.labels import Mask
from faircl.parallel import thread_pool
from faircl.progress import Reporter, SilentReporter

T = TypeVar("T")

MIN_FOR_PROCESSES = 256
"""Masks from which on counting in several processes pays for starting them."""


@dataclass(frozen=True)
class LabelIndex:
    """Pixels of every class in every image of a split.

    Shapes: ids (N,); pixels (N, K) int64 by raw id; ignored (N,) int64; sizes (N, 2) int64, heights and widths.
    `files` (N,) identifies images: equal entries, also of two indices, are the same image. `digests` (N,) are those of
    the mask files' bytes, or of decoded masks if the data are not files.
    """

    ids: tuple[str, ...]
    pixels: NDArray[np.int64]
    ignored: NDArray[np.int64] | None = None
    sizes: NDArray[np.int64] | None = None
    files: tuple[object, ...] = ()
    digests: tuple[bytes, ...] = ()

    def select(self, chosen: Collection[str]) -> LabelIndex:
        """Return the index of some of the images, in the same order."""
        wanted = set(chosen)
        rows = [row for row, id in enumerate(self.ids) if id in wanted]
        return LabelIndex(
            tuple(self.ids[row] for row in rows),
            self.pixels[rows],
            None if self.ignored is None else self.ignored[rows],
            None if self.sizes is None else self.sizes[rows],
            tuple(self.files[row] for row in rows) if self.files else (),
            tuple(self.digests[row] for row in rows) if self.digests else (),
        )


def index_labels(
    data: SegmentationData,
    split: str,
    reporter: Reporter | None = None,
    cache: bool = True,
    ids: Sequence[str] | None = None,
) -> LabelIndex:
    """Count the classes of every mask of a split, or of some ``ids`` of it; with ``cache`` off, without the cache."""
    reporter = reporter or SilentReporter()
    ids = tuple(data.ids(split) if ids is None else ids)
    with reporter.task(f"counting classes ({split})", len(ids)) as task:
        classes = len(data.classes.names)
        if not isinstance(data, FileData) or type(data).read_mask is not FileData.read_mask:
            decoded = _in_threads(lambda id: _count_decoded(data.read_mask(split, id), classes), ids, task.advance)
            return _make_index(
                ids,
                [counts for counts, _ in decoded],
                tuple((split, id) for id in ids),
                tuple(digest for _, digest in decoded),
                classes,
            )
        store = CountCache(data.coding.fingerprint, classes) if cache else None
        counted = _count_files(data, split, ids, store.rows if store else (), task.advance)
    new = {one.digest: one.counts for one in counted if one.counts is not None}
    if store and new and not store.add(new):
        reporter.say(f"note: the counts could not be kept in {store.path.parent}; they are made again next time")
    known = {one.digest: store.counts(one.digest) for one in counted if store and one.counts is None}
    rows = [one.counts or known[one.digest] for one in counted]
    identities, digests = (tuple(one.identity for one in counted), tuple(one.content for one in counted))
    return _make_index(ids, rows, identities, digests, classes)


def digest_pixels(pixels: NDArray[Any]) -> bytes:
    """Return a digest of the type, shape and values of a decoded image or mask."""
    digest = hashlib.blake2b(f"{pixels.dtype.str}{pixels.shape}".encode(), digest_size=DIGEST_BYTES)
    digest.update(np.ascontiguousarray(pixels).data)
    return digest.digest()


def _count_decoded(mask: Mask, classes: int) -> tuple[MaskCounts, bytes]:
    return count_ids(mask, classes), digest_pixels(mask)


def _count_files(
    data: FileData, split: str, ids: Sequence[str], known: Collection[bytes], advance: Callable[[], None]
) -> list[CountedFile]:
    advanced = 0

    def advance_once() -> None:  # if workers fail, counting starts again in this process; progress does not go back
        nonlocal advanced
        advanced += 1
        if advanced <= len(ids):
            advance()

    if len(ids) >= MIN_FOR_PROCESSES:
        counted = count_in_processes(data, split, ids, known, advance_once)
        if counted is not None:
            return counted
    return _in_threads(lambda id: count_file(data, split, id, known), ids, advance_once)


def _in_threads(work: Callable[[str], T], ids: Sequence[str], advance: Callable[[], None]) -> list[T]:
    results: list[T] = []
    with thread_pool() as pool:
        for result in pool.map(work, ids):
            results.append(result)
            advance()
    return results


def _make_index(
    ids: tuple[str, ...],
    counts: Sequence[MaskCounts],
    files: tuple[object, ...],
    digests: tuple[bytes, ...],
    classes: int,
) -> LabelIndex:
    return LabelIndex(
        ids,
        np.array([one.pixels for one in counts], np.int64).reshape(-1, classes),
        np.array([one.ignored for one in counts], np.int64),
        np.array([one.size for one in counts], np.int64).reshape(-1, 2),
        files,
        digests,
    )
