"""Labels in as few bytes as they fit, for the way from a worker to the device.

On that way they are shifted by two, so that UNLABELLED and IGNORE become 0 and 1 and a byte holds all labels up to 253.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from faircl.labels import IGNORE, LabelTable, Mask

_SHIFT = 2
COMPACT_IGNORE = (IGNORE + _SHIFT) & 0xFFFF
"""What IGNORE is on the way."""


def compact(labels: NDArray[np.uint16]) -> Mask:
    """Shift labels; as bytes if they all fit, and otherwise as uint16."""
    shifted = labels + np.uint16(_SHIFT)  # UNLABELLED and IGNORE wrap around
    return shifted.astype(np.uint8) if not shifted.size or shifted.max() < 256 else shifted


def compact_lookup(table: LabelTable, mask: Mask) -> Mask:
    """Turn raw ids (H, W) into compact labels by a table, as bytes if all of the table fits."""
    sent = compact(table)
    if sent.dtype == mask.dtype == np.uint8 and len(sent) == 256:
        # Translating bytes takes a third of the time of NumPy's lookup.
        found = bytearray(np.ascontiguousarray(mask)).translate(sent.tobytes())
        return np.frombuffer(found, np.uint8).reshape(mask.shape)
    taken: Mask = sent[mask]
    return taken


def as_tensor(labels: Mask) -> Tensor:
    """Return compact labels as a tensor: uint8, or the bits of uint16 as int16, which torch handles everywhere."""
    return torch.from_numpy(labels.view(np.int16) if labels.dtype == np.uint16 else labels)


def to_common_dtype(labels: list[Tensor]) -> list[Tensor]:
    """Return compact labels in one type: if some are not bytes, none is."""
    if all(one.dtype == labels[0].dtype for one in labels):
        return labels
    return [one.to(torch.int16) for one in labels]


def expand(labels: Tensor) -> Tensor:
    """Return compact labels as int64 with UNLABELLED and IGNORE."""
    return labels.to(torch.int16, copy=True).sub_(_SHIFT).long().bitwise_and_(0xFFFF)
