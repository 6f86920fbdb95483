"""Reading every image once before training, so that a damaged or wrongly sized file does not interrupt it.

Valid files are remembered in the cache by name, size and times, so that each is read only once.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence

from faircl.data.cache_files import cache_folder, write_cache_file
from faircl.data.file_data import FileData
from faircl.data.sample import SegmentationData
from faircl.errors import UserError
from faircl.parallel import thread_pool
from faircl.progress import Reporter
from faircl.readers.scenes import SceneData


def verify_images(data: SegmentationData, split: str, ids: Sequence[str], reporter: Reporter) -> None:
    """Read the images of a split with their masks; raise the first error."""
    if isinstance(data, SceneData):
        return
    if not isinstance(data, FileData):
        _read_all(data, split, ids, reporter, lambda id: None)
        return
    data.check_images(split)
    verified = _VerifiedFiles(data)
    new = [id for id in ids if (split, id) not in verified]
    if new:
        try:
            _read_all(data, split, new, reporter, lambda id: verified.add(split, id))
        finally:
            verified.save()


def _read_all(
    data: SegmentationData, split: str, ids: Sequence[str], reporter: Reporter, done: Callable[[str], None]
) -> None:
    """Read images with their masks in threads and call ``done`` for each id."""

    def read(id: str) -> None:
        data.read(split, id)  # not returned, so that it is freed at once

    with reporter.task(f"looking at images ({split})", len(ids)) as task, thread_pool() as pool:
        for id, _ in zip(ids, pool.map(read, ids), strict=True):
            done(id)
            task.advance()


class _VerifiedFiles:
    """Digests of valid files, in a file of the cache; it is ignored if it cannot be read or written."""

    def __init__(self, data: FileData) -> None:
        self.data = data
        about = f"{os.path.abspath(data.root)}/{data.coding.fingerprint}/{data.images}"
        self.path = cache_folder() / "images" / hashlib.blake2b(about.encode(), digest_size=16).hexdigest()
        try:
            self.digests = set(self.path.read_text(encoding="ascii").split())
        except (OSError, UnicodeDecodeError):
            self.digests = set()

    def __contains__(self, key: tuple[str, str]) -> bool:
        return self._digest(*key) in self.digests

    def add(self, split: str, id: str) -> None:
        self.digests.add(self._digest(split, id))

    def save(self) -> None:
        text = "\n".join(sorted(self.digests)).encode("ascii")
        write_cache_file(self.path, lambda file: file.write(text))

    def _digest(self, split: str, id: str) -> str:
        parts = [self.data.label_key(split, id)]
        for path in (self.data.image_path(split, id), self.data.mask_path(split, id)):
            try:
                about = os.stat(path)
            except OSError as error:
                raise UserError(f"Cannot read {path}: {error.strerror}; check that it exists.") from error
            parts += [str(path), str(about.st_size), str(about.st_mtime_ns), str(about.st_ctime_ns)]
        return hashlib.blake2b("\n".join(parts).encode(errors="surrogateescape"), digest_size=12).hexdigest()
