"""Which classes each image of a split shows, and how many pixels of each.

Every mask file is read once; if its content was counted before, the counts come from the cache, and it is not decoded.
Images are not touched.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from faircl.data.count_cache import CountCache
from faircl.data.counting_pool import CountedFile, available_cores, count_file, count_in_processes
from faircl.data.file_data import FileData
from faircl.data.mask_coding import MaskCounts, count_ids
from faircl.data.sample import SegmentationData
from faircl.progress import Reporter, SilentReporter

T = TypeVar("T")

MIN_FOR_PROCESSES = 256
"""Masks that are counted in this process: fewer than it takes to pay for starting others."""


@dataclass(frozen=True)
class LabelIndex:
    """Pixels of every class in every image of a split.

    Shapes: ids (N,); pixels (N, K) int64 by raw id; void (N,) int64; sizes (N, 2) int64, heights and widths. `files`
    (N,) tells images apart: equal entries, even of two indices, are one and the same image.
    """

    ids: tuple[str, ...]
    pixels: NDArray[np.int64]
    void: NDArray[np.int64] | None = None
    sizes: NDArray[np.int64] | None = None
    files: tuple[object, ...] = ()


def index_labels(
    data: SegmentationData, split: str, reporter: Reporter | None = None, cache: bool = True
) -> LabelIndex:
    """Count the classes of every mask of a split. With ``cache`` off everything is counted anew."""
    reporter = reporter or SilentReporter()
    ids = tuple(data.ids(split))
    with reporter.task(f"counting classes ({split})", len(ids)) as task:
        classes = len(data.classes.names)
        if not isinstance(data, FileData) or type(data).read_mask is not FileData.read_mask:
            counted = _in_threads(lambda id: count_ids(data.read_mask(split, id), classes), ids, task.advance)
            return _make_index(ids, counted, tuple((split, id) for id in ids), classes)
        store = CountCache(data.coding.fingerprint, classes) if cache else None
        looked = _count_files(data, split, ids, store.rows if store else (), task.advance)
    fresh = {one.digest: one.counted for one in looked if one.counted is not None}
    if store and fresh and not store.add(fresh):
        reporter.say(f"note: the counts could not be kept in {store.path.parent}; they are made again next time")
    known = {one.digest: store.counted(one.digest) for one in looked if store and one.counted is None}
    rows = [one.counted or known[one.digest] for one in looked]
    return _make_index(ids, rows, tuple(one.file for one in looked), classes)


def _count_files(
    data: FileData, split: str, ids: Sequence[str], known: Collection[bytes], advance: Callable[[], None]
) -> list[CountedFile]:
    told = 0

    def once() -> None:  # counting may begin anew in this process, the bar does not
        nonlocal told
        told += 1
        if told <= len(ids):
            advance()

    if len(ids) >= MIN_FOR_PROCESSES and (done := count_in_processes(data, split, ids, known, once)) is not None:
        return done
    return _in_threads(lambda id: count_file(data, split, id, known), ids, once)


def _in_threads(work: Callable[[str], T], ids: Sequence[str], advance: Callable[[], None]) -> list[T]:
    results: list[T] = []
    with ThreadPoolExecutor(available_cores()) as pool:
        for result in pool.map(work, ids):
            results.append(result)
            advance()
    return results


def _make_index(
    ids: tuple[str, ...], counted: Sequence[MaskCounts], files: tuple[object, ...], classes: int
) -> LabelIndex:
    return LabelIndex(
        ids,
        np.array([one.pixels for one in counted], np.int64).reshape(-1, classes),
        np.array([one.void for one in counted], np.int64),
        np.array([one.size for one in counted], np.int64).reshape(-1, 2),
        files,
    )
