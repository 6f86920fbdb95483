"""Counting the pixels of a label and a prediction by class, through runs of equal pixels."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from faircl.errors import UserError
from faircl.fairness.record import Confusions, EvaluationRecord, RecordedClass
from faircl.labels import IGNORE, Mask

_IGNORED, _UNKNOWN = -1, -2
_MOST_BINS = 1 << 18

Numbers = NDArray[np.int64]


class PixelCounts(NamedTuple):
    """One image: its pixels by true and predicted class (E,), as `Confusions` has them without the image.

    ``strays`` are the values that no class has of the prediction's counted pixels, and their pixels.
    """

    truth: Numbers
    predicted: Numbers
    pixels: Numbers
    strays: dict[int, int]


class PixelCounter:
    """Counts pairs of masks. ``ignored`` values of the label are left out; 65535 always is.

    A predicted value that none of the classes has, an ignored class's too, counts as "no class predicted".
    """

    def __init__(self, classes: Sequence[RecordedClass], ignored: frozenset[int], source: str) -> None:
        self.classes, self.ignored, self.source = tuple(classes), ignored | {IGNORE}, source

    @cached_property
    def _truth(self) -> Numbers:
        """Position among the classes of every label value (65536,), or a mark."""
        table = np.full(IGNORE + 1, _UNKNOWN, np.int64)
        table[[c.id for c in self.classes]] = np.arange(len(self.classes))
        table[list(self.ignored)] = _IGNORED
        return table

    @cached_property
    def _predicted(self) -> Numbers:
        return np.where(self._truth < 0, len(self.classes), self._truth)

    def count(self, label: Mask, prediction: Mask, name: str) -> PixelCounts:
        """Count masks (H, W) of one size; a label value that no class has is an error, which ``name`` names."""
        true, guessed = np.ascontiguousarray(label).ravel(), np.ascontiguousarray(prediction).ravel()
        changes = true[1:] != true[:-1]
        changes |= guessed[1:] != guessed[:-1]
        ends = np.append(np.flatnonzero(changes), true.size - 1)
        lengths = np.diff(ends, prepend=-1)
        values = guessed[ends]
        truth, predicted = self._truth[true[ends]], self._predicted[values]
        if (truth == _UNKNOWN).any():
            self._raise_unknown(true[ends], lengths, truth == _UNKNOWN, name)
        known = truth >= 0
        if not known.all():
            truth, predicted, lengths, values = truth[known], predicted[known], lengths[known], values[known]
        stray = predicted == len(self.classes)
        keys, pixels = _summed(truth * (len(self.classes) + 1) + predicted, lengths, self._bins)
        strays = dict(zip(*(part.tolist() for part in _summed(values[stray], lengths[stray], IGNORE + 1)), strict=True))
        return PixelCounts(*np.divmod(keys, len(self.classes) + 1), pixels, strays)

    @property
    def _bins(self) -> int:
        return len(self.classes) * (len(self.classes) + 1)

    def _raise_unknown(self, values: Mask, lengths: Numbers, unknown: NDArray[np.bool_], name: str) -> None:
        found, pixels = _summed(values[unknown], lengths[unknown], IGNORE + 1)
        more = f" (and {len(found) - 1} more such values)" if len(found) > 1 else ""
        raise UserError(
            f"{name} holds the value {found[0]} in {pixels[0]} pixels{more}, which {self.source} does not have; add "
            f"the class there, or leave such pixels out with --ignore {found[0]}."
        )


def joined_record(
    classes: Sequence[RecordedClass], images: Sequence[str], counts: Sequence[PixelCounts]
) -> EvaluationRecord:
    """Return the record of images in their order."""
    image = np.repeat(np.arange(len(counts)), [len(one.pixels) for one in counts])
    columns = [np.concatenate([one[k] for one in counts]) for k in range(3)]
    return EvaluationRecord(tuple(classes), tuple(images), Confusions(image, *columns))


def _summed(keys: NDArray[np.integer], lengths: Numbers, bins: int) -> tuple[Numbers, Numbers]:
    """Return the distinct keys (K,), sorted, and the sum of the lengths of each (K,)."""
    if len(keys) and bins <= _MOST_BINS:
        sums = np.bincount(keys, lengths)
        found = np.flatnonzero(sums)
        return found, sums[found].astype(np.int64)
    found, place = np.unique(keys.astype(np.int64), return_inverse=True)
    return found, np.bincount(place, lengths, minlength=len(found)).astype(np.int64)
