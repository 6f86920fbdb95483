"""Labels and their special values: background, ignore, unlabelled; label tables.

A *mask* holds the data set's raw class ids, uint8 or uint16; *labels* hold channels of the network, uint16 in memory. A
label table turns the one into the other (made in `faircl.scenario.label_table`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

BACKGROUND = 0
"""Id and channel of the background class, if the data has one."""

IGNORE = 65535
"""Label of pixels that no loss and no metric counts. It is 255 in 8-bit mask files and 65535 in 16-bit ones."""

UNLABELLED = 65534
"""Label of pixels of other steps' classes if the data has no background class (otherwise BACKGROUND)."""

Mask = NDArray[np.uint8] | NDArray[np.uint16]  # (H, W)
LabelTable = NDArray[np.uint16]
"""Label of every raw id; the last entry, of the ignore value, is IGNORE."""


def ignore_value(mask: Mask) -> int:
    """Return the ignore value of a mask: 255 for uint8, 65535 for uint16."""
    return int(np.iinfo(mask.dtype).max)


def apply_table(table: LabelTable, mask: Mask) -> NDArray[np.uint16]:
    """Return the labels (H, W) of a raw mask (H, W)."""
    return table[mask]
