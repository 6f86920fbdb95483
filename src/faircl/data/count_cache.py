"""Cache of pixel counts, keyed by the content of mask files.

A key does not depend on a file's name or date, so counts are found again from any copy of the data and are never out
of date.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from faircl.data.cache_files import cache_folder, write_cache_file
from faircl.data.mask_coding import MaskCounts

DIGEST_BYTES = 16


class CountCache:
    """Pixel counts of masks by content digest, one file per mask coding.

    A file that is damaged or cannot be read is treated as empty; one that cannot be written is left as it is.
    """

    def __init__(self, fingerprint: str, classes: int, folder: Path | None = None) -> None:
        self.path = (folder or cache_folder()) / "labels" / f"{fingerprint}.npz"
        self.classes = classes
        self.rows: dict[bytes, NDArray[np.int64]] = {}  # pixels per class, ignored pixels, height, width
        # Exception: a damaged archive makes NumPy raise many kinds of errors.
        with suppress(Exception), np.load(self.path, allow_pickle=False) as saved:
            digests, rows = saved["digests"], saved["rows"]
            whole = saved["check"].tobytes() == _check(digests, rows)
            if whole and rows.shape == (len(digests), classes + 3) and digests.shape[1:] == (DIGEST_BYTES,):
                self.rows = dict(zip(map(bytes, digests), rows.astype(np.int64), strict=True))

    def counts(self, digest: bytes) -> MaskCounts:
        """Return the counts of a known digest."""
        row = self.rows[digest]
        return MaskCounts(row[: self.classes], int(row[-3]), (int(row[-2]), int(row[-1])))

    def add(self, counts: Mapping[bytes, MaskCounts]) -> bool:
        """Add counts and write the file; return whether it could be written."""
        for digest, (pixels, ignored, size) in counts.items():
            self.rows[digest] = np.array([*pixels, ignored, *size], np.int64)
        digests = np.frombuffer(b"".join(self.rows), np.uint8).reshape(-1, DIGEST_BYTES)
        rows = np.stack(list(self.rows.values()))
        check = np.frombuffer(_check(digests, rows), np.uint8)
        return write_cache_file(self.path, lambda file: np.savez(file, digests=digests, rows=rows, check=check))


def _check(digests: NDArray[np.uint8], rows: NDArray[np.int64]) -> bytes:
    """Return a digest of the content of a file."""
    digest = hashlib.sha256(f"{digests.shape}{rows.dtype}{rows.shape}".encode())
    digest.update(digests.tobytes())
    digest.update(rows.tobytes())
    return digest.digest()
