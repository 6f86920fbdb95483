"""Which images of an evaluation are worth looking at: the worst ones, and for the worst classes where they fail."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from faircl.fairness.image_ious import image_ious, known_means
from faircl.fairness.rates import Floats, class_rates, scored
from faircl.fairness.record import EvaluationRecord

LEAST_LOSS = 1.0
"""Percent of a class's pixels that must have been lost for an image to be chosen for it."""


def image_scores(record: EvaluationRecord) -> Floats:
    """Return the mean IoU in percent of every image (N,) over the scored classes that its truth shows; else NaN."""
    return known_means(image_ious(record.per_image(), scored(record)), axis=1)


def choose_images(record: EvaluationRecord, before: EvaluationRecord | None, most: int) -> dict[int, list[str]]:
    """Choose up to ``most`` images of a record; return their positions and why each was chosen.

    In turn: the worst images by their mean IoU; for the worst classes the image where most of their pixels are missed;
    for the classes that lost most since the record ``before`` the image where they lost most; the median image. The
    same image may be chosen several times and is then shown once, with every reason.
    """
    kinds = [_worst_images(record), _worst_classes(record), _lost(record, before), _median(record)]
    chosen: dict[int, list[str]] = {}
    while kinds:
        for kind in list(kinds):
            found = next(kind, None)
            if found is None:
                kinds.remove(kind)
                continue
            image, why = found
            if image not in chosen and len(chosen) == most:
                return chosen
            if why not in chosen.setdefault(image, []):
                chosen[image].append(why)
    return chosen


def _worst_images(record: EvaluationRecord) -> Iterator[tuple[int, str]]:
    scores = image_scores(record)
    for image in _ordered(scores):
        yield image, f"worst image: mean IoU {scores[image]:.1f}"


def _worst_classes(record: EvaluationRecord) -> Iterator[tuple[int, str]]:
    counts = record.per_image()
    ious = class_rates(record, counts).ious
    missed = counts.truth - counts.hits
    for k in _ordered(ious):
        if missed[:, k].any():
            yield int(missed[:, k].argmax()), f"worst class: {record.classes[k].name}, IoU {ious[k]:.1f}"


def _lost(record: EvaluationRecord, before: EvaluationRecord | None) -> Iterator[tuple[int, str]]:
    """Images of both records in which a class that both know lost most pixels, the largest loss of accuracy first.

    Classes whose truth differs are left out, such as a background that held classes not learned yet.
    """
    if before is None:
        return
    place = {id: k for k, id in enumerate(before.images)}
    columns = {c.id: k for k, c in enumerate(before.classes)}
    images = [(k, place[id]) for k, id in enumerate(record.images) if id in place]
    classes = [(k, columns[c.id]) for k, c in enumerate(record.classes) if c.id in columns and c.scored]
    if not images or not classes:
        return
    now, then = record.per_image(), before.per_image()
    shared, rows = np.array(images).T
    own, other = np.array(classes).T
    truth, truth_then = now.truth[np.ix_(shared, own)], then.truth[np.ix_(rows, other)]
    lost = then.hits[np.ix_(rows, other)] - now.hits[np.ix_(shared, own)]
    shares = 100 * lost.sum(axis=0) / np.maximum(truth.sum(axis=0), 1)
    shares[(truth != truth_then).any(axis=0)] = np.nan
    for k in _ordered(-shares):
        if shares[k] >= LEAST_LOSS:
            name = record.classes[own[k]].name
            yield int(shared[lost[:, k].argmax()]), f"lost since the step before: {name}, {shares[k]:.1f} of 100 pixels"


def _median(record: EvaluationRecord) -> Iterator[tuple[int, str]]:
    scores = image_scores(record)
    ranked = list(_ordered(scores))
    if ranked:
        image = ranked[len(ranked) // 2]
        yield image, f"median image: mean IoU {scores[image]:.1f}"


def _ordered(values: Floats) -> Iterator[int]:
    """Positions of the known values, the smallest first."""
    return (int(k) for k in np.argsort(values, kind="stable") if not np.isnan(values[k]))
