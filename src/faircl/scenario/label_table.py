"""The label table of a step: the lookup from a data set's raw ids to labels of the network.

`Scenario.train_table` and `Scenario.test_table` choose which ids are labelled at a step. `loading.step_dataset` applies
the table to training windows, `loading.whole_images` to whole images. Images of a replay memory have a table of their
own: `replay_memory.combined_label_table`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from faircl.data.masks import MAX_UINT8_CLASSES
from faircl.data.sample import Classes
from faircl.labels import BACKGROUND, IGNORE, LabelTable


def unlabelled_value(classes: int) -> int:
    """Return the value of unlabelled pixels in masks of this many classes without a background: 254, or 65534."""
    return 254 if classes <= MAX_UINT8_CLASSES else 65534


def make_label_table(classes: Classes, channels: Mapping[int, int], other: int) -> LabelTable:
    """Return the label of every raw id: ``channels[id]`` if it is labelled, background its own, all others ``other``.

    Shape: (256,), or (65536,) if the masks are uint16. Values that are not ids, among them the ignore value, are
    IGNORE; without a background class the value below the ignore value stands for pixels of no known class, and is
    ``other``.
    """
    size = 256 if len(classes.names) <= MAX_UINT8_CLASSES else 65536
    table = np.full(size, IGNORE, np.uint16)
    table[: len(classes.names)] = other
    if classes.background:
        table[BACKGROUND] = BACKGROUND
    else:
        table[unlabelled_value(len(classes.names))] = other
    for id, channel in channels.items():
        table[id] = channel
    return table
