"""Where the pixels of every class went: confusion shares and the flow of lost pixels, from a record."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from faircl.fairness.record import EvaluationRecord

PARTS = ("kept", "background", "older", "newer", "none")
"""Kept; taken for background; for a class learned before or together with it; for one learned later; for no class."""
NAMED = 3  # destinations that are named


class Flow(NamedTuple):
    """Where the pixels of one class went, in percent of its truth pixels.

    ``parts`` are the shares of ``PARTS``; ``to`` the classes, by position, that took most of the lost ones, the largest
    share first. All shares are 0 for a class without truth pixels.
    """

    parts: tuple[float, ...]
    to: tuple[tuple[int, float], ...]

    @property
    def lost(self) -> float:
        """Share of the pixels that were not kept."""
        return sum(self.parts[1:])


def confusion_shares(record: EvaluationRecord) -> NDArray[np.float64]:
    """Return percent of each true class by predicted class (C, C + 1); rows without truth pixels are 0."""
    counts = record.confusion()
    return 100 * counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)


def flows(record: EvaluationRecord) -> list[Flow]:
    """Return the flow of every class of a record, in its order."""
    shares = confusion_shares(record)
    size = len(record.classes)
    learned = np.array([c.learned_at for c in record.classes])
    background = np.array([c.background for c in record.classes], bool)
    own = np.eye(size, dtype=bool)
    named = shares[:, :size]
    masks = {
        "kept": own,
        "background": background[None] & ~own,
        "older": (learned[None] <= learned[:, None]) & ~own & ~background[None],
        "newer": (learned[None] > learned[:, None]) & ~own & ~background[None],
    }
    parts = np.stack([*((named * mask).sum(axis=1) for mask in masks.values()), shares[:, size]], axis=1)
    elsewhere = np.where(own, 0, named)
    order = np.argsort(-elsewhere, axis=1, kind="stable")[:, :NAMED]
    return [
        Flow(tuple(row), tuple((k, elsewhere[c, k]) for k in to if elsewhere[c, k] > 0))
        for c, (row, to) in enumerate(zip(parts.tolist(), order.tolist(), strict=True))
    ]


def most_confused(shares: NDArray[np.float64], most: int) -> list[int]:
    """Return so many classes, by position, of the pairs with the largest share of a class taken for another."""
    size = len(shares)
    named = shares[:, :size].copy()
    np.fill_diagonal(named, 0)
    pairs = np.argsort(-named, axis=None, kind="stable")[: size * most]
    pairs = pairs[named.ravel()[pairs] > 0]
    both = np.stack(np.divmod(pairs, size), axis=1).ravel()
    _, first = np.unique(both, return_index=True)
    return sorted(both[np.sort(first)][:most].tolist())
