"""Looking at every image once before training: a broken or ill-sized file is found then and not in its middle.

What was found in order is remembered by the file's name, size and times, so that it is looked at once.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from faircl.data.count_cache import cache_folder, write_cache_file
from faircl.data.counting_pool import available_cores
from faircl.data.file_data import FileData
from faircl.data.sample import SegmentationData
from faircl.errors import UserError
from faircl.progress import Reporter
from faircl.readers.scenes import SceneData


def verify_images(data: SegmentationData, split: str, ids: Sequence[str], reporter: Reporter) -> None:
    """Read the images of a split with their masks; raise the first error. Masks alone are checked elsewhere."""
    if isinstance(data, SceneData):
        return
    if not isinstance(data, FileData):
        _read_all(data, split, ids, reporter, lambda id: None)
        return
    data.check_images(split)
    seen = _VerifiedFiles(data)
    unseen = [id for id in ids if not seen.holds(split, id)]
    if unseen:
        try:
            _read_all(data, split, unseen, reporter, lambda id: seen.add(split, id))
        finally:
            seen.save()


def _read_all(
    data: SegmentationData, split: str, ids: Sequence[str], reporter: Reporter, note: Callable[[str], None]
) -> None:
    pool = ThreadPoolExecutor(available_cores())
    try:
        with reporter.task(f"looking at images ({split})", len(ids)) as task:
            for id, _ in zip(ids, pool.map(lambda id: _in_order(data, split, id), ids), strict=True):
                note(id)
                task.advance()
    finally:
        pool.shutdown(cancel_futures=True)  # after an error, and after Ctrl-C, nothing more is begun


def _in_order(data: SegmentationData, split: str, id: str) -> None:
    """Read an image with its mask and let them go."""
    data.read(split, id)


class _VerifiedFiles:
    """Marks of the files that were in order, in a file of the cache; a file that cannot be read or written is left."""

    def __init__(self, data: FileData) -> None:
        self.data = data
        about = f"{os.path.abspath(data.root)}/{data.coding.fingerprint}/{data.images}"
        self.path = cache_folder() / "images" / hashlib.blake2b(about.encode(), digest_size=16).hexdigest()
        try:
            self.marks = set(self.path.read_text(encoding="ascii").split())
        except (OSError, UnicodeDecodeError):
            self.marks = set()

    def holds(self, split: str, id: str) -> bool:
        return self._mark(split, id) in self.marks

    def add(self, split: str, id: str) -> None:
        self.marks.add(self._mark(split, id))

    def save(self) -> None:
        text = "\n".join(sorted(self.marks)).encode("ascii")
        write_cache_file(self.path, lambda file: file.write(text))

    def _mark(self, split: str, id: str) -> str:
        parts = [self.data.label_key(split, id)]
        for path in (self.data.image_path(split, id), self.data.mask_path(split, id)):
            try:
                about = os.stat(path)
            except OSError as error:
                raise UserError(f"Cannot read {path}: {error.strerror}; check that it exists.") from error
            parts += [str(path), str(about.st_size), str(about.st_mtime_ns), str(about.st_ctime_ns)]
        return hashlib.blake2b("\n".join(parts).encode(errors="surrogateescape"), digest_size=12).hexdigest()
