"""Paired bootstrap of two rows over the images that all rows share.

Sets of images are drawn with replacement and both rows measured on the same sets. Where a row has several runs, a
difference is that of the means over the runs, and the width of its interval is that of their counts added up image by
image. So intervals say how far results depend on the images; how far they depend on the seed is the ± of a row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from faircl.fairness.difference import Change, ClassChange
from faircl.fairness.intervals import RESAMPLES, Interval, intervals
from faircl.fairness.rates import Flags, Floats, percent
from faircl.fairness.record import EvaluationRecord, ImageCounts
from faircl.fairness.resampling import resampled
from faircl.runs.run import Run

MEASURED = ("all", "old", "new", "std")
_SAME = 0.01  # percent points by which the mIoU of a record may differ from the one that the run has noted
_NORMAL = 1.96  # standard errors on either side that hold 95 % of a normal distribution


@dataclass(frozen=True)
class RowChange:
    """A row against the reference: after is the row, before the reference; ``measures`` by name, classes in order."""

    label: str
    against: str
    measures: Mapping[str, Change]
    classes: tuple[ClassChange, ...]


@dataclass(frozen=True)
class _Row:
    """Counts of a row's runs added up, (N, C) each, and the means over its runs of C class IoUs, their mean and STD."""

    counts: ImageCounts
    means: Floats  # (C + 2,)
    group_means: tuple[float, float]  # of old and new classes


@dataclass(frozen=True)
class Evidence:
    """What the shared images say about rows; rows without a record of every run are not among ``rows``."""

    images: int
    ids: tuple[int, ...]
    names: tuple[str, ...]
    shown: NDArray[np.int64]
    new: Flags
    rows: Mapping[str, _Row]
    notes: tuple[str, ...] = ()

    def change(self, before: str, after: str) -> RowChange | None:
        """Return how row ``after`` differs from row ``before``; None where one of them has no records."""
        if before not in self.rows or after not in self.rows:
            return None
        was, now = self.rows[before], self.rows[after]
        *classes, everything, spread = self._changes(was, now, was.means, now.means, np.ones(len(self.ids), bool))
        groups = []
        for k, chosen in enumerate((~self.new, self.new)):
            before_after = (np.array([was.group_means[k]]), np.array([now.group_means[k]]))
            groups.append(self._changes(was, now, *before_after, chosen)[0] if chosen.any() else None)
        found = dict(zip(MEASURED, (everything, *groups, spread), strict=True))
        return RowChange(
            after,
            before,
            {name: Change(*one) for name, one in found.items() if one is not None},
            tuple(
                ClassChange(*one, id=id, name=name) for one, id, name in zip(classes, self.ids, self.names, strict=True)
            ),
        )

    def clearly_above(self, lower: str, higher: str) -> bool | None:
        """Whether the mIoU of row ``higher`` is above the other's by 1.96 standard errors; None without records.

        The error of the paired difference is that of the jackknife over the images, which takes no drawn sets.
        """
        if lower not in self.rows or higher not in self.rows:
            return None
        rows = [self.rows[lower], self.rows[higher]]
        error = resampled([row.counts for row in rows], self.shown > 0, 0, 0).errors[-2]
        return bool(rows[1].means[-2] - rows[0].means[-2] > _NORMAL * error)

    def _changes(
        self, was: _Row, now: _Row, before: Floats, after: Floats, chosen: Flags
    ) -> list[tuple[float, float, float, Interval | None]]:
        """Return before, after, difference and interval of the last measures of the chosen classes.

        All IoUs, their mean and their STD where ``before`` holds as many values; the mean alone where it holds one.
        """
        sides = [ImageCounts(*(part[:, chosen] for part in row.counts)) for row in (was, now)]
        shown = self.shown[chosen]
        found = resampled(sides, shown > 0, RESAMPLES, 0)
        ends = intervals(found, [*shown.tolist(), *[self.images] * 2], lowest=-100)
        chosen_measures = slice(-2, -1) if len(before) == 1 else slice(None)
        middles = found.measures[chosen_measures].tolist()
        values = zip(before.tolist(), after.tolist(), ends[chosen_measures], middles, strict=True)
        return [(a, b, b - a, centred(one, middle, b - a)) for a, b, one, middle in values]


def gather(rows: Mapping[str, Sequence[Run]]) -> Evidence:
    """Count what the images that the runs of all rows share say; notes say which runs take no part, and why."""
    notes, chosen, ids = [], {}, None
    for label, runs in rows.items():
        records = [run.records.get(run.final.step) for run in runs]
        usable = [record for record, run in zip(records, runs, strict=True) if record and _agree(record, run)]
        if len(usable) < len(runs):
            kept = "no record of every image" if None in records else "records of another evaluation than their results"
            notes.append(f"runs of row {label} keep {kept}, so no marks say whether the row differs")
            continue
        found = {frozenset(c.id for c in record.classes if c.scored) for record in usable}
        if len(found | ({ids} if ids else set())) > 1:
            notes.append(f"row {label} has other classes than the rows before it, so no marks say whether it differs")
            continue
        ids, chosen[label] = found.pop(), usable
    if not chosen:
        return Evidence(0, (), (), np.zeros(0, np.int64), np.zeros(0, bool), {}, tuple(notes))
    first = next(iter(chosen.values()))[0]
    shared = set(first.images).intersection(*(record.images for own in chosen.values() for record in own))
    images = [id for id in first.images if id in shared]
    if len(images) < max(len(record.images) for own in chosen.values() for record in own):
        notes.append(f"differences are over the {len(images)} images that all runs were evaluated on")
    if not images:
        return Evidence(0, (), (), np.zeros(0, np.int64), np.zeros(0, bool), {}, tuple(notes))
    return _counted(rows, chosen, images, tuple(notes))


def _counted(
    runs: Mapping[str, Sequence[Run]],
    records: Mapping[str, Sequence[EvaluationRecord]],
    images: Sequence[str],
    notes: tuple[str, ...],
) -> Evidence:
    label, (first, *_) = next(iter(records.items()))
    classes = [c for c in first.classes if c.scored]
    ids = tuple(c.id for c in classes)
    final = runs[label][0].final
    new = np.isin(ids, [c.id for c in final.classes if c.learned_at == final.step])
    rows = {}
    for label, own in records.items():
        counts = [_counts(record, ids, images) for record in own]
        ious = np.array([_ious(one) for one in counts])
        means = np.concatenate([ious, _nanmean(ious)[:, None], np.nanstd(ious, axis=1)[:, None]], axis=1).mean(axis=0)
        groups = [float(_nanmean(ious[:, chosen]).mean()) for chosen in (~new, new)]
        pooled = ImageCounts(*(np.sum(parts, axis=0) for parts in zip(*counts, strict=True)))
        rows[label] = _Row(pooled, means, (groups[0], groups[1]))
    shown = (next(iter(rows.values())).counts.truth > 0).sum(axis=0)
    return Evidence(len(images), ids, tuple(c.name for c in classes), shown, new, rows, notes)


def centred(ends: Interval | None, middle: float, wanted: float) -> Interval | None:
    """Move an interval around ``middle``, cut to what differences can be, to the difference of the means over runs.

    It reaches as far to both sides; where one end was cut, the other says how far.
    """
    if ends is None:
        return None
    reach = max(ends.high - middle, middle - ends.low)
    return Interval(max(-100.0, wanted - reach), min(100.0, wanted + reach))


def _nanmean(values: Floats) -> Floats:
    """Return the means (R,) of known values of each row (R, C), NaN where there is none."""
    known = ~np.isnan(values)
    count = known.sum(axis=1)
    means: Floats = np.where(count > 0, np.where(known, values, 0).sum(axis=1) / np.maximum(count, 1), np.nan)
    return means


def _counts(record: EvaluationRecord, ids: Sequence[int], images: Sequence[str]) -> ImageCounts:
    """Return the counts of the given classes and images, in their order."""
    place = {id: k for k, id in enumerate(record.images)}
    columns = {c.id: k for k, c in enumerate(record.classes)}
    chosen = record.select([place[id] for id in images]).per_image()
    return ImageCounts(*(part[:, [columns[id] for id in ids]] for part in chosen))


def _ious(counts: ImageCounts) -> Floats:
    hits, truth, predicted = (part.sum(axis=0) for part in counts)
    return percent(hits, truth + predicted - hits, truth > 0)


def _agree(record: EvaluationRecord, run: Run) -> bool:
    """Whether a record is of the evaluation that the run has noted: the same mean IoU."""
    counts = record.per_image()
    ious = _ious(counts)[[c.scored for c in record.classes]]
    return abs(float(np.nanmean(ious)) - run.final.groups["all"].miou) < _SAME
