"""Measures of sets of images drawn with replacement, each with its standard error.

The measures of C classes are their IoUs, then the mean and the standard deviation of the known ones: M = C + 2 values.
With counts of two evaluations they are the differences, second minus first, on the same sets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from faircl.fairness.rates import Flags, Floats, percent
from faircl.fairness.record import ImageCounts

_CELLS = 1_000_000  # images times sets that are worked on at once: 8 MB an array


class Resampled(NamedTuple):
    """Measures of all images (M,) and of R drawn sets (R, M), and the standard errors of both; NaN where unknown."""

    measures: Floats
    errors: Floats
    drawn: Floats
    drawn_errors: Floats


class _Side(NamedTuple):
    """Counts (N, C) of one evaluation as numbers, and where the truth shows a class."""

    hits: Floats
    union: Floats
    shown: Floats


class _Set(NamedTuple):
    """Class IoUs (r, C) of one evaluation in r sets, and slopes (r, C) of mean and spread, each times 1 / union."""

    ious: Floats
    inverse: Floats
    mean: Floats
    spread: Floats
    mean_slope: Floats
    spread_slope: Floats


def resampled(several: Sequence[ImageCounts], known: Flags, resamples: int, seed: int) -> Resampled:
    """Measure one evaluation, or the difference of two evaluations of the same N images, on all images and drawn sets.

    A set holds N of the N images. The errors of drawn sets are those of the infinitesimal jackknife, √Σ_i w_i g_i²
    with w_i how often image i is in the set and g_i its influence: (h_i − IoU · u_i) / Σ u for a class with hits h and
    union u, and Σ_c ∂m/∂IoU_c · g_ic for a measure m of all classes. Those of all images are from the N sets that leave
    one image out, which errs towards too large where single images weigh much.
    """
    sides = [_side(counts) for counts in several]
    images = len(sides[0].hits)
    measures = _measured(np.ones((1, images)), sides, known)[0]
    errors = _jackknife(sides, known)
    drawn, drawn_errors = (np.empty((resamples, measures.shape[1])) for _ in range(2))
    generator = np.random.default_rng(seed)
    chunk = max(1, _CELLS // max(1, images))
    for start in range(0, resamples, chunk):
        size = min(chunk, resamples - start)
        chosen = generator.integers(0, images, (size, images)) + images * np.arange(size)[:, None]
        weights = np.bincount(chosen.ravel(), minlength=size * images).reshape(size, images).astype(np.float64)
        drawn[start : start + size], drawn_errors[start : start + size] = _measured(weights, sides, known)
    return Resampled(measures[0], errors, drawn, drawn_errors)


def _side(counts: ImageCounts) -> _Side:
    hits, truth, predicted = counts
    columns = (hits, truth + predicted - hits, truth > 0)
    return _Side(*(column.astype(np.float64) for column in columns))


def _jackknife(sides: Sequence[_Side], known: Flags) -> Floats:
    """Return the standard errors (M,) from leaving out one image at a time: √((N − 1) / N · Σ_i (m_i − m̄)²).

    What is left is the total minus the image's row. Sets without a class say nothing about it.
    """
    images, classes = sides[0].hits.shape
    totals = [_Side(*(column.sum(axis=0) for column in side)) for side in sides]
    values = np.empty((images, classes + 2))
    chunk = max(1, _CELLS // max(1, classes))
    for start in range(0, images, chunk):
        rows = slice(start, start + chunk)
        left = []
        for side, total in zip(sides, totals, strict=True):
            shown = total.shown - side.shown[rows]
            ious = percent(total.hits - side.hits[rows], total.union - side.union[rows], shown > 0)
            left.append(np.concatenate([ious, *_mean_and_spread(ious, known)], axis=1))
        values[rows] = left[1] - left[0] if len(left) == 2 else left[0]
    there = ~np.isnan(values)
    mean = np.where(there, values, 0).sum(axis=0) / np.maximum(1, there.sum(axis=0))
    squares = (np.where(there, values - mean, 0) ** 2).sum(axis=0)
    errors: Floats = np.sqrt((images - 1) / max(1, images) * squares)
    return errors


def _mean_and_spread(ious: Floats, known: Flags) -> tuple[Floats, Floats]:
    """Return mean and standard deviation (r, 1) of the known classes that have an IoU in each of r sets."""
    counted = ~np.isnan(ious) & known
    count = counted.sum(axis=1, keepdims=True)
    mean = percent(np.where(counted, ious, 0).sum(axis=1, keepdims=True), count, count > 0) / 100
    square = (np.where(counted, ious - mean, 0) ** 2).sum(axis=1, keepdims=True)
    return mean, np.sqrt(percent(square, count, count > 0) / 100)


def _measured(weights: Floats, sides: Sequence[_Side], known: Flags) -> tuple[Floats, Floats]:
    """Return measures and their standard errors (r, M) in sets with weights (r, N)."""
    sets = [_set(weights, side, known) for side in sides]
    values = [np.concatenate([one.ious, one.mean, one.spread], axis=1) for one in sets]
    squares = [_class_squares(weights, sides, sets)]
    for slopes in ([one.mean_slope for one in sets], [one.spread_slope for one in sets]):
        pull = [
            slope @ side.hits.T - (slope * np.nan_to_num(one.ious) / 100) @ side.union.T
            for slope, side, one in zip(slopes, sides, sets, strict=True)
        ]
        influence = pull[-1] - pull[0] if len(pull) == 2 else pull[0]
        squares.append(np.einsum("ri,ri,ri->r", weights, influence, influence)[:, None])
    errors = 100 * np.sqrt(np.maximum(np.concatenate(squares, axis=1), 0))
    return values[-1] - values[0] if len(values) == 2 else values[0], errors


def _set(weights: Floats, side: _Side, known: Flags) -> _Set:
    union = weights @ side.union
    there = weights @ side.shown > 0
    ious = percent(weights @ side.hits, union, there)
    mean, spread = _mean_and_spread(ious, known)
    counted = there & known
    count = np.maximum(1, counted.sum(axis=1, keepdims=True))
    inverse = np.divide(1.0, union, out=np.zeros_like(union), where=there)
    away = np.where(counted, ious - mean, 0)
    slope = np.divide(away, spread * count, out=np.zeros_like(away), where=spread > 0)
    return _Set(ious, inverse, mean, spread, counted / count * inverse, slope * inverse)


def _class_squares(weights: Floats, sides: Sequence[_Side], sets: Sequence[_Set]) -> Floats:
    """Return Σ_i w_i g_i² of every class (r, C), g the influence of an image on its IoU or on the difference of two.

    Multiplied out, Σ w (h − x u)² = Σ w h² − 2 x Σ w h u + x² Σ w u², so that matrix products do the sums.
    """
    total = np.zeros_like(sets[0].ious)
    for a, (first, one) in enumerate(zip(sides, sets, strict=True)):
        for b, (second, other) in enumerate(zip(sides, sets, strict=True)):
            x, y = one.ious / 100, other.ious / 100
            product = (
                weights @ (first.hits * second.hits)
                - y * (weights @ (first.hits * second.union))
                - x * (weights @ (first.union * second.hits))
                + x * y * (weights @ (first.union * second.union))
            )
            total += (1 if a == b else -1) * product * one.inverse * other.inverse
    return total
