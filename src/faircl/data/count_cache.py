"""The user's cache folder: what was once counted is not counted again.

A row belongs to the content of a mask file, not to its name or date: it can be wanted again from any tree, list or
copy, and never be out of date.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from faircl.data.mask_coding import MaskCounts

DIGEST_BYTES = 16
CACHE_VARIABLE = "FAIRCL_CACHE"


def cache_folder() -> Path:
    """Return where faircl keeps what it can make again: $FAIRCL_CACHE, or the system's place for such things."""
    if own := os.environ.get(CACHE_VARIABLE):
        return Path(own).expanduser()
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
    elif sys.platform == "darwin":
        base = "~/Library/Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "faircl"


def write_cache_file(path: Path, write: Callable[[BinaryIO], object]) -> bool:
    """Write a file of the cache whole or not at all; return whether it could be written."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(6)}.part")  # several machines may share a home
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with beside.open("wb") as file:
            write(file)
        os.replace(beside, path)
    except OSError:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        return False
    return True


class CountCache:
    """Pixel counts of masks by content digest, one file per mask coding.

    A file that cannot be read is taken as empty and one that cannot be written is left: the cache saves time, and
    nothing depends on it.
    """

    def __init__(self, fingerprint: str, classes: int, folder: Path | None = None) -> None:
        self.path = (folder or cache_folder()) / "labels" / f"{fingerprint}.npz"
        self.classes = classes
        self.rows: dict[bytes, NDArray[np.int64]] = {}
        # Exception: what is wrong with a damaged archive comes in many kinds.
        with suppress(Exception), np.load(self.path, allow_pickle=False) as saved:
            digests, rows = saved["digests"], saved["rows"]
            if rows.shape == (len(digests), classes + 3) and digests.shape[1:] == (DIGEST_BYTES,):
                self.rows = dict(zip(map(bytes, digests), rows.astype(np.int64), strict=True))

    def counted(self, digest: bytes) -> MaskCounts:
        """Return what was counted for a content that is known."""
        row = self.rows[digest]
        return MaskCounts(row[: self.classes], int(row[-3]), (int(row[-2]), int(row[-1])))

    def add(self, counted: Mapping[bytes, MaskCounts]) -> bool:
        """Keep new counts; return whether they could be written."""
        for digest, (pixels, void, size) in counted.items():
            self.rows[digest] = np.array([*pixels, void, *size], np.int64)
        digests = np.frombuffer(b"".join(self.rows), np.uint8).reshape(-1, DIGEST_BYTES)
        rows = np.stack(list(self.rows.values()))
        return write_cache_file(self.path, lambda file: np.savez(file, digests=digests, rows=rows))
