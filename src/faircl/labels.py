"""Labels and their marks: background, ignore, unlabelled, and the lookup table that makes a step's labels.

A *mask* holds the data set's own class ids; *labels* hold channels of the network. Values are uint16 in memory.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

BACKGROUND = 0
"""Id and channel of the background class, where the data has one."""

IGNORE = 65535
"""Label that no loss and no metric counts. In 8-bit mask files it is 255, in 16-bit ones 65535."""

UNLABELLED = 65534
"""Label of a pixel of another step's class in data without a background class (with one it is BACKGROUND)."""

Mask = NDArray[np.uint8] | NDArray[np.uint16]  # (H, W)
LabelTable = NDArray[np.uint16]
"""Label of every class id; its last entry is that of the mask's ignore value."""


def ignore_value(mask: Mask) -> int:
    """Return the value that means "ignore" in a mask of this type: 255 for uint8, 65535 for uint16."""
    return int(np.iinfo(mask.dtype).max)


def apply_table(table: LabelTable, mask: Mask) -> NDArray[np.uint16]:
    """Turn a raw mask (H, W) into labels by one lookup."""
    return table[mask]
