"""Caches of decoded samples: in memory, or in memory-mapped files of the cache folder."""

from __future__ import annotations

import hashlib
import math
import mmap
import os
import shutil
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import numpy as np

from faircl.data.cache_files import CACHE_VARIABLE, cache_folder, write_cache_file
from faircl.data.file_data import FileData
from faircl.data.sample import Sample, SegmentationData
from faircl.errors import UserError
from faircl.labels import Mask
from faircl.parallel import available_cores, thread_pool

GB = 1e9
_HEADER = struct.Struct("<8sIII12x")  # magic, height, width, bytes per mask value; padded to a multiple of 16
_MAGIC = b"faircl-2"
_SHA256 = 32  # bytes; the SHA-256 of header and pixels stands between them
_PIXELS = _HEADER.size + _SHA256
_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")


def decode_all(
    data: SegmentationData, split: str, ids: Sequence[str], check: Callable[[float], None]
) -> Iterator[Sample]:
    """Read samples in threads, in order; after the first chunk ``check`` gets an estimate of the bytes of all."""
    chunk = 8 * available_cores()  # samples that are read ahead
    with thread_pool() as pool:
        for first in range(0, len(ids), chunk):
            samples = list(pool.map(lambda id: data.read(split, id), ids[first : first + chunk]))
            if first == 0:
                check(len(ids) / len(samples) * sum(sample.image.nbytes + sample.mask.nbytes for sample in samples))
            yield from samples


class MemoryCache:
    """A reader that wraps another and holds decoded samples in memory; forked processes share them without a copy."""

    def __init__(self, data: SegmentationData, split: str, ids: Sequence[str], advance: Callable[[], None]) -> None:
        self.data, self.classes = data, data.classes
        self._samples: dict[tuple[str, str], Sample] = {}
        for id, sample in zip(ids, decode_all(data, split, ids, check_memory), strict=True):
            self._samples[split, id] = sample
            advance()

    def ids(self, split: str) -> Sequence[str]:
        """Image ids of a split."""
        return self.data.ids(split)

    def read(self, split: str, id: str) -> Sample:
        """Image and mask of one id, read-only by convention."""
        return self._samples.get((split, id)) or self.data.read(split, id)

    def read_mask(self, split: str, id: str) -> Mask:
        """Mask alone."""
        return self.read(split, id).mask

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without the samples: decoding a few again is faster than sending all."""
        return {**self.__dict__, "_samples": {}}


class DiskCache:
    """A reader that wraps one of files and stores decoded samples in the cache folder, one file per sample.

    Files are written atomically, so that any number of processes may share the folder. A file's name is a digest of
    path, size and modification time of the image and of the mask, and of how both are read. Its SHA-256 is checked when
    a process first reads it; a damaged file is replaced.
    """

    def __init__(self, data: SegmentationData, folder: Path | None = None) -> None:
        if not isinstance(data, FileData) or type(data).read is not FileData.read:
            raise UserError(
                "train.cache is disk, but this data set is not read from image and mask files, whose changes would be "
                "noticed; set it to memory or none."
            )
        self.data, self.classes = data, data.classes
        self.folder = (folder or cache_folder()) / "decoded"
        self._checked: set[Path] = set()

    def ids(self, split: str) -> Sequence[str]:
        """Image ids of a split."""
        return self.data.ids(split)

    def read_mask(self, split: str, id: str) -> Mask:
        """Mask alone."""
        return self.data.read_mask(split, id)

    def read(self, split: str, id: str) -> Sample:
        """Image and mask of one id, decoded and stored on first use."""
        path = self._path(split, id)
        if path is None:
            return self.data.read(split, id)  # raises the error that names the missing file
        with suppress(OSError, ValueError):  # missing or damaged
            sample = _load(path, id, check=path not in self._checked)
            self._checked.add(path)
            return sample
        sample = self.data.read(split, id)
        if not write_cache_file(path, lambda file: _save(file, sample)):
            self._raise_cannot_write(path)
        return sample

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without the list of checked files: another process checks for itself."""
        return {**self.__dict__, "_checked": set()}

    def check_folder(self) -> None:
        """Raise an error if the cache folder cannot be written."""
        probe = self.folder / ".probe"
        if not write_cache_file(probe, lambda file: file.write(b"faircl")):
            self._raise_cannot_write(probe)
        probe.unlink(missing_ok=True)

    def _raise_cannot_write(self, path: Path) -> NoReturn:
        raise UserError(
            f"Cannot keep decoded images in {self.folder}: the disk is full{_free_disk(path)}, or the folder cannot be "
            f"made or written; make room, set {CACHE_VARIABLE} to another, or train.cache to none or memory."
        )

    def _path(self, split: str, id: str) -> Path | None:
        """Return the file of a sample; None if its image or mask cannot be read."""
        digest = hashlib.blake2b(digest_size=16)
        digest.update(f"{type(self.data).__qualname__}/{self.data.label_key(split, id)}/{self.data.images}".encode())
        for path in (self.data.image_path(split, id), self.data.mask_path(split, id)):
            try:
                found = os.stat(path)
            except OSError:
                return None
            digest.update(f"/{path.absolute()}/{found.st_size}/{found.st_mtime_ns}".encode("utf-8", "surrogateescape"))
        name = digest.hexdigest()
        return self.folder / name[:2] / name


def _free_disk(path: Path) -> str:
    """Return " (N GB free)" for the disk of a path, or an empty string if that is unknown."""
    with suppress(OSError, StopIteration):
        free = shutil.disk_usage(next(parent for parent in path.parents if os.path.exists(parent))).free
        return f" ({free / GB:.1f} GB free)"
    return ""


def _save(file: BinaryIO, sample: Sample) -> None:
    high, wide = sample.mask.shape
    header = _HEADER.pack(_MAGIC, high, wide, sample.mask.itemsize)
    pixels = [np.ascontiguousarray(part).data for part in (sample.image, sample.mask)]
    file.write(header + _digest(header, *pixels))
    for part in pixels:
        file.write(part)


def _load(path: Path, id: str, check: bool) -> Sample:
    """Map a file into memory; raise ValueError if its length is wrong or, with ``check``, any bit of it."""
    with path.open("rb") as file:
        mapped = mmap.mmap(
            file.fileno(), 0, access=mmap.ACCESS_COPY
        )  # copy on write: arrays are writable, the file is not
    if len(mapped) < _PIXELS:
        raise ValueError
    name, high, wide, itemsize = _HEADER.unpack_from(mapped)
    pixels = high * wide
    if name != _MAGIC or itemsize not in (1, 2) or len(mapped) != _PIXELS + pixels * (3 + itemsize):
        raise ValueError
    content = np.frombuffer(mapped, np.uint8)
    stored = mapped[_HEADER.size : _PIXELS]
    if check and _digest(content[: _HEADER.size].data, content[_PIXELS:].data) != stored:
        raise ValueError
    image = content[_PIXELS : _PIXELS + 3 * pixels].reshape(high, wide, 3)
    ids = content[_PIXELS + 3 * pixels :]
    mask: Mask = ids if itemsize == 1 else ids.view(np.uint16)
    return Sample(id, image, mask.reshape(high, wide))


def _digest(*parts: bytes | memoryview) -> bytes:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.digest()


def check_memory(needed: float, cache: str = "memory") -> None:
    """Raise an error if ``needed`` bytes exceed the free memory, where that is known."""
    free = free_memory()
    if needed > free:
        raise UserError(
            f"train.cache is {cache}, but the step's decoded images need about {needed / GB:.1f} GB and "
            f"{free / GB:.1f} GB are free on this machine; set it to disk or none."
        )


def free_memory() -> float:
    """Return the free memory in bytes, of the machine or under the limit of its container; infinity if unknown."""
    return min(_free_in_machine(), _free_in_cgroup())


def _free_in_machine() -> float:
    """Return the free memory of the machine in bytes; infinity if unknown."""
    with suppress(OSError, ValueError, KeyError):
        return 1024 * _read_counters(_MEMINFO)["MemAvailable:"]
    return math.inf


def _free_in_cgroup() -> float:
    """Return the bytes left under the limit of the container (cgroup v2); infinity without a limit."""
    with suppress(OSError, ValueError, KeyError):
        limit, used = (int((_CGROUP / name).read_text()) for name in ("memory.max", "memory.current"))
        kinds = _read_counters(_CGROUP / "memory.stat")
        return limit - used + kinds["inactive_file"] + kinds["active_file"]  # page cache can be reclaimed
    return math.inf


def _read_counters(path: Path) -> dict[str, int]:
    """Read a file of lines "name number"."""
    lines = (line.split() for line in path.read_text(encoding="utf-8").splitlines())
    return {line[0]: int(line[1]) for line in lines if len(line) > 1}
