"""Labels that the model of the previous step assigns to a step's images, compressed in memory."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from faircl.distributed import all_gather_objects


class PackedArray(NamedTuple):
    """A zlib-compressed array; label masks shrink to a few percent of their size."""

    shape: tuple[int, ...]
    dtype: str
    data: bytes

    @classmethod
    def pack(cls, array: NDArray[Any]) -> PackedArray:
        """Compress an array."""
        return cls(array.shape, array.dtype.str, zlib.compress(np.ascontiguousarray(array).tobytes(), 1))

    def unpack(self) -> NDArray[Any]:
        """Return the array, read-only."""
        return np.frombuffer(zlib.decompress(self.data), self.dtype).reshape(self.shape)


class AssignedLabels:
    """Assigned labels (H, W) uint16 by image id."""

    def __init__(self, packed: Mapping[str, PackedArray] | None = None) -> None:
        self._masks: dict[str, PackedArray] = dict(packed or {})

    def packed(self) -> Mapping[str, PackedArray]:
        """Return the compressed labels by image id."""
        return self._masks

    def __setitem__(self, id: str, mask: NDArray[np.uint16]) -> None:
        self._masks[id] = PackedArray.pack(mask.astype(np.uint16, copy=False))

    def __getitem__(self, id: str) -> NDArray[np.uint16]:
        return self._masks[id].unpack()

    def __len__(self) -> int:
        return len(self._masks)

    def __iter__(self) -> Iterator[str]:
        return iter(self._masks)

    def __contains__(self, id: object) -> bool:
        return id in self._masks

    def gather(self) -> None:
        """Add the labels of all other processes."""
        for masks in all_gather_objects(self._masks):
            self._masks |= masks
