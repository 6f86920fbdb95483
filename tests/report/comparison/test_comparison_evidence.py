"""Paired differences of rows: equal to those of two records, means over seeds, and what takes no part."""

import numpy as np
import pytest
from recorded_run import make_recorded_run

from faircl.fairness import Interval, paired_difference
from faircl.fairness.record_file import RECORD, save_record
from faircl.report.comparison.evidence import centred, gather
from faircl.runs.run import load_run


def runs_of(tmp_path, *settings, **common):
    return [load_run(make_recorded_run(tmp_path / f"r{k}", **common, **one)) for k, one in enumerate(settings)]


def test_of_single_runs_it_is_the_difference_of_their_records(tmp_path):
    first, second = runs_of(tmp_path, {"right": 0.6}, {"right": 0.7, "seed": 1})
    found = gather({"a": [first], "b": [second]}).change("a", "b")
    expected = paired_difference(first.records[1], second.records[1])
    for name in ("miou", "std"):
        mine, theirs = found.measures["all" if name == "miou" else name], getattr(expected, name)
        assert (mine.before, mine.after) == pytest.approx((theirs.before, theirs.after))
        assert mine.interval == pytest.approx(theirs.interval)
    for mine, theirs in zip(found.classes, expected.classes, strict=True):
        assert (mine.id, mine.name, mine.difference) == (theirs.id, theirs.name, pytest.approx(theirs.difference))
        assert mine.interval == pytest.approx(theirs.interval)
    for group in ("old", "new", "all"):
        change = found.measures[group]
        assert change.before == pytest.approx(first.final.groups[group].miou)
        assert change.after == pytest.approx(second.final.groups[group].miou)
        assert change.interval.low < change.difference < change.interval.high


def test_seeds_are_averaged_and_images_are_resampled(tmp_path):
    one, two, other = runs_of(tmp_path, {"right": 0.5}, {"right": 0.7, "seed": 1}, {"right": 0.9, "seed": 2})
    evidence = gather({"x": [one, two], "y": [other]})
    change = evidence.change("x", "y")
    mean = np.mean([run.final.groups["all"].miou for run in (one, two)])
    assert change.measures["all"].before == pytest.approx(mean)
    assert change.measures["std"].before == pytest.approx(np.mean([r.final.groups["all"].std for r in (one, two)]))
    ious = np.mean([[c.iou for c in run.final.classes] for run in (one, two)], axis=0)
    assert [c.before for c in change.classes] == pytest.approx(ious)
    assert change.measures["all"].significant
    assert change.measures["all"].difference == pytest.approx(other.final.groups["all"].miou - mean)
    assert evidence.clearly_above("x", "y")
    assert not evidence.clearly_above("y", "x")


@pytest.mark.parametrize(
    ("ends", "middle", "wanted", "expected"),
    [
        (Interval(10, 30), 20, 25, Interval(15, 35)),
        (Interval(10, 100), 70, 70, Interval(10, 100)),
        (Interval(-100, 20), -50, -40, Interval(-100, 30)),
        (None, 20, 25, None),
    ],
)
def test_an_interval_that_was_cut_at_one_end_is_not_narrowed(ends, middle, wanted, expected):
    assert centred(ends, middle, wanted) == expected


def test_equal_runs_differ_in_nothing(tmp_path):
    first, second = runs_of(tmp_path, {}, {})
    evidence = gather({"a": [first], "b": [second]})
    change = evidence.change("a", "b")
    assert not any(one.significant for one in (*change.measures.values(), *change.classes))
    assert not evidence.clearly_above("a", "b")


def test_runs_without_records_of_another_evaluation_or_class_are_said(tmp_path):
    with_records, without, damaged, fewer = runs_of(
        tmp_path, {}, {"records": False}, {"right": 0.9}, {"names": ("background", "road", "car")}
    )
    save_record(with_records.records[1], damaged.folder / "steps/01" / RECORD)  # not what the run has noted
    evidence = gather({"a": [with_records], "b": [without], "c": [load_run(damaged.folder)], "d": [fewer]})
    assert list(evidence.rows) == ["a"]
    assert [note.split(",")[0] for note in evidence.notes] == [
        "runs of row b keep no record of every image",
        "runs of row c keep records of another evaluation than their results",
        "row d has other classes than the rows before it",
    ]
    assert evidence.change("a", "b") is None
    assert evidence.clearly_above("a", "b") is None


def test_only_shared_images_count(tmp_path):
    many, few = runs_of(tmp_path, {"images": 24}, {"images": 12})
    evidence = gather({"a": [many], "b": [few]})
    assert evidence.images == 12
    assert evidence.notes == ("differences are over the 12 images that all runs were evaluated on",)
    assert evidence.change("b", "a").measures["all"].before == pytest.approx(few.final.groups["all"].miou)
