"""Paired bootstrap of several rows over the images that all of them share.

Images are drawn with replacement, the same sets for all runs; in each set a row's measure is the mean over its runs. So
intervals say how far results depend on the images; how far they depend on the seed is the ± of a row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from faircl.fairness.difference import Change, ClassChange
from faircl.fairness.intervals import Interval, intervals
from faircl.fairness.record import EvaluationRecord, ImageCounts
from faircl.fairness.resampling import left_out_ious, resampled_ious, with_mean_and_std
from faircl.runs.run import Run

RESAMPLES, CONFIDENCE, SEED = 2000, 0.95, 0
MEASURED = ("all", "old", "new", "std")
_SAME = 0.01  # percent points by which the mIoU of a record may differ from the one that the run has noted

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class RowChange:
    """A row against the reference: after is the row, before the reference; ``measures`` by name, classes by id."""

    label: str
    against: str
    measures: Mapping[str, Change]
    classes: tuple[ClassChange, ...]


@dataclass(frozen=True)
class _Row:
    """M measures of a row, the IoUs of the classes and then MEASURED: found, in drawn sets, without one image."""

    found: Floats  # (M,)
    drawn: Floats  # (R, M)
    left_out: Floats  # (N, M)


@dataclass(frozen=True)
class Evidence:
    """What the shared images say about rows; rows without a record of every run are not among ``rows``."""

    images: int
    ids: tuple[int, ...]
    names: tuple[str, ...]
    shown: NDArray[np.int64]
    rows: Mapping[str, _Row]
    notes: tuple[str, ...] = ()

    def change(self, before: str, after: str) -> RowChange | None:
        """Return how row ``after`` differs from row ``before``; None where one of them has no records."""
        values = self._changes(before, after, 0)
        if not values:
            return None
        classes = [
            ClassChange(*one, id=id, name=name) for one, id, name in zip(values, self.ids, self.names, strict=False)
        ]
        measures = {name: Change(*one) for name, one in zip(MEASURED, values[len(classes) :], strict=True)}
        return RowChange(after, before, measures, tuple(classes))

    def accuracy(self, before: str, after: str) -> Change | None:
        """Return the change in mIoU over all classes alone."""
        values = self._changes(before, after, len(self.ids))
        return Change(*values[0]) if values else None

    def _changes(self, before: str, after: str, first: int) -> list[tuple[float, float, float, Interval | None]]:
        """Return before, after, difference and interval of every measure from the first one on."""
        if before not in self.rows or after not in self.rows:
            return []
        was, now = self.rows[before], self.rows[after]
        images = [*self.shown.tolist(), *[self.images] * len(MEASURED)]
        parts = [
            one[..., first:] for one in (now.found - was.found, now.drawn - was.drawn, now.left_out - was.left_out)
        ]
        ends = intervals(parts[0], parts[1], parts[2], images[first:], CONFIDENCE)
        pairs = zip(was.found[first:].tolist(), now.found[first:].tolist(), ends, strict=True)
        return [(a, b, b - a, one) for a, b, one in pairs]


def gather(rows: Mapping[str, Sequence[Run]]) -> Evidence:
    """Resample the images that the runs of all rows share; notes say which runs take no part, and why."""
    notes, chosen, ids = [], {}, None
    for label, runs in rows.items():
        records = [run.records.get(run.final.step) for run in runs]
        usable = [record for record, run in zip(records, runs, strict=True) if record and _agree(record, run)]
        if len(usable) < len(runs):
            why = "keep no record" if None in records else "have records of another evaluation than their results"
            notes.append(f"runs of row {label} {why} of every image, so no marks say whether the row differs")
            continue
        found = {frozenset(c.id for c in record.classes if c.scored) for record in usable}
        if len(found | ({ids} if ids else set())) > 1:
            notes.append(f"row {label} has other classes than the rows before it, so no marks say whether it differs")
            continue
        ids, chosen[label] = found.pop(), usable
    if not chosen:
        return Evidence(0, (), (), np.zeros(0, np.int64), {}, tuple(notes))
    first = next(iter(chosen.values()))[0]
    shared = set(first.images).intersection(*(record.images for own in chosen.values() for record in own))
    images = [id for id in first.images if id in shared]
    if len(images) < max(len(record.images) for own in chosen.values() for record in own):
        notes.append(f"differences are over the {len(images)} images that all runs were evaluated on")
    if not images:
        return Evidence(0, (), (), np.zeros(0, np.int64), {}, tuple(notes))
    return _resampled(rows, chosen, images, tuple(notes))


def _resampled(
    runs: Mapping[str, Sequence[Run]],
    records: Mapping[str, Sequence[EvaluationRecord]],
    images: Sequence[str],
    notes: tuple[str, ...],
) -> Evidence:
    first = next(iter(records.values()))[0]
    classes = [c for c in first.classes if c.scored]
    ids = tuple(c.id for c in classes)
    counts = {label: [_counts(record, ids, images) for record in own] for label, own in records.items()}
    shown = (next(iter(counts.values()))[0].truth > 0).sum(axis=0)
    present = shown > 0
    flat = [one for own in counts.values() for one in own]
    drawn = iter(resampled_ious(flat, RESAMPLES, SEED))
    rows = {}
    for label, own in counts.items():
        final = runs[label][0].final
        new = np.isin(ids, [c.id for c in final.classes if c.learned_at == final.step])
        groups = (present, present & ~new, present & new)
        found = [_measured(_ious(one), groups) for one in own]
        sets = [_measured(next(drawn), groups) for _ in own]
        left = [_measured(left_out_ious(one), groups) for one in own]
        rows[label] = _Row(*(np.mean(part, axis=0) for part in (found, sets, left)))
    return Evidence(len(images), ids, tuple(c.name for c in classes), shown, rows, notes)


def _measured(ious: Floats, groups: tuple[NDArray[np.bool_], ...]) -> Floats:
    """Append the means of all, old and new classes and the deviation over all to IoUs (…, C)."""
    everything = with_mean_and_std(ious, groups[0])
    means = [with_mean_and_std(ious, group)[..., -2:-1] for group in groups]
    return np.concatenate([ious, *means, everything[..., -1:]], axis=-1)


def _counts(record: EvaluationRecord, ids: Sequence[int], images: Sequence[str]) -> ImageCounts:
    """Return the counts of the given classes and images, in their order."""
    place = {id: k for k, id in enumerate(record.images)}
    columns = {c.id: k for k, c in enumerate(record.classes)}
    chosen = record.select([place[id] for id in images]).per_image()
    return ImageCounts(*(part[:, [columns[id] for id in ids]] for part in chosen))


def _ious(counts: ImageCounts) -> Floats:
    hits, truth, predicted = (part.sum(axis=0) for part in counts)
    union = truth + predicted - hits
    ious: Floats = np.where(truth > 0, 100 * hits / np.maximum(union, 1), np.nan)
    return ious


def _agree(record: EvaluationRecord, run: Run) -> bool:
    """Whether a record is of the evaluation that the run has noted: the same mean IoU."""
    counts = record.per_image()
    ious = _ious(counts)[[c.scored for c in record.classes]]
    return abs(float(np.nanmean(ious)) - run.final.groups["all"].miou) < _SAME
