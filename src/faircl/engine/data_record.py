"""Comparing the data of a run with those it was begun with, by the digests in its data.json."""

from __future__ import annotations

from pathlib import Path

from faircl.data.digests import DataDigests, describe_changes, digest_data
from faircl.data.label_index import LabelIndex
from faircl.data.sample import SegmentationData
from faircl.engine.plan import Plan
from faircl.errors import UserError
from faircl.progress import Reporter
from faircl.runs.reading import DATA, read_json


def unchanged_data(out: Path, plan: Plan, reporter: Reporter) -> DataDigests:
    """Return the digests of a run's data; raise a UserError if they are not those that the run was begun with.

    A run of an earlier version has none yet, and is taken up as it is.
    """
    before = _read(out)
    indices = [(plan.splits.train, plan.index), (plan.splits.test, plan.test_index)]
    if plan.validation is not None:
        indices.append((plan.validation.split, plan.validation.index))
    now = digest_data(plan.data, indices, before.kind if before else plan.config.data.digest, reporter)
    if before and (changes := describe_changes(before, now, plan.data)):
        raise UserError(
            f"The data have changed since {out} was begun: {changes}; restore them or start a new run in another "
            "folder."
        )
    return now


def note_changed_images(
    run: Path, data: SegmentationData, split: str, index: LabelIndex, reporter: Reporter, kind: str = "test"
) -> None:
    """Say which of the indexed images are not as they were when a run was begun; images new since then are not told."""
    before = _read(run)
    if before is None or split not in before.splits:
        return
    now = digest_data(data, [(split, index)], before.kind, reporter)
    both = before.splits[split].keys() & now.splits[split].keys()
    old, new = (DataDigests(before.kind, {split: {id: one.splits[split][id] for id in both}}) for one in (before, now))
    if changes := describe_changes(old, new, data):
        reporter.say(f"note: the {kind} data have changed since {run} was begun: {changes}")


def _read(run: Path) -> DataDigests | None:
    path = run / DATA
    if not path.is_file():
        return None
    try:
        return DataDigests.from_json(read_json(path))
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise UserError(f"Cannot read {path}: {error}; the run folder is damaged.") from None
