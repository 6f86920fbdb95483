"""Metrics, data and tables of benchmarks/unknown.py against counts over all pairs and thresholds."""

import json
import math

import numpy as np
import pytest
import unknown
from hypothesis import given, settings
from hypothesis import strategies as st
from unknown_runs import cases, training
from unknown_runs.cases import Case, Scenes, open_data, training_settings
from unknown_runs.measuring import measure
from unknown_runs.pixel_metrics import separation
from unknown_runs.tables import background_table, best_score, case_table, summary_table
from unknown_runs.voided import VoidedData, class_ids

from faircl.deploy.unknown import SCORES
from faircl.errors import UserError
from faircl.progress import SilentReporter
from faircl.readers.scenes import SceneData
from faircl.runs.folder import RunFolder

# ---- metrics


def auroc(scores, unknown):
    """The share of pairs in the right order; ties count half."""
    pairs = [(a > b) + (a == b) / 2 for a in scores[unknown] for b in scores[~unknown]]
    return sum(pairs) / len(pairs)


def fpr95(scores, unknown):
    """The smallest false positive rate of all thresholds with a true positive rate of at least 0.95."""
    rates = [((scores[unknown] >= t).mean(), (scores[~unknown] >= t).mean()) for t in scores]
    return min(fpr for tpr, fpr in rates if tpr >= 0.95)


def average_precision(scores, unknown):
    """The sum of precisions at every threshold, weighted by the gain in recall."""
    total = last = 0.0
    for t in sorted(set(scores.tolist()), reverse=True):
        at = scores >= t
        recall = (at & unknown).sum() / unknown.sum()
        total += (recall - last) * (at & unknown).sum() / at.sum()
        last = recall
    return total


@given(st.lists(st.tuples(st.integers(0, 8), st.booleans()), min_size=2, max_size=60))
@settings(max_examples=150, deadline=None)
def test_metrics_equal_plain_counts_ties_included(pixels):
    scores = np.array([score for score, _ in pixels], np.float32) / 8
    unknown = np.array([label for _, label in pixels])
    if unknown.all() or not unknown.any():
        assert all(math.isnan(value) for value in separation(scores, unknown))
        return
    expected = [measure(scores, unknown) for measure in (auroc, fpr95, average_precision)]
    assert list(separation(scores, unknown)) == pytest.approx(expected)


def test_metrics_of_many_distinct_scores():
    generator = np.random.default_rng(0)
    unknown = generator.random(400) < 0.2
    scores = (generator.normal(size=400) + unknown).astype(np.float32)
    expected = [measure(scores, unknown) for measure in (auroc, fpr95, average_precision)]
    assert list(separation(scores, unknown)) == pytest.approx(expected)


def test_metrics_by_hand():
    scores, unknown = np.array([0.9, 0.8, 0.7, 0.6], np.float32), np.array([True, False, True, False])
    assert list(separation(scores, unknown)) == pytest.approx([3 / 4, 1 / 2, 1 / 2 + 1 / 3])
    assert list(separation(np.ones(4, np.float32), unknown)) == pytest.approx([1 / 2, 1, 1 / 2])
    with pytest.raises(ValueError, match="finite"):
        separation(np.array([math.nan, 1], np.float32), unknown[:2])


# ---- data


def test_held_out_classes_are_void_and_nothing_else_changes():
    data = SceneData(6, 2, 32)
    voided = VoidedData(data, ("car", "road"))
    ids = [data.classes.names.index(name) for name in ("car", "road")]
    found = 0
    for id in data.ids("train"):
        before, after = data.read("train", id), voided.read("train", id)
        held_out = np.isin(before.mask, ids)
        found += held_out.sum()
        assert (after.mask[held_out] == 255).all()
        assert (after.mask[~held_out] == before.mask[~held_out]).all()
        assert after.mask.dtype == before.mask.dtype
        assert (after.image == before.image).all()
        assert (voided.read_mask("train", id) == after.mask).all()
    assert found > 0


def test_wrong_classes_are_refused():
    with pytest.raises(UserError, match="'bicycle'"):
        class_ids(SceneData(1, 1, 32), ["bicycle"])
    data = SceneData(1, 1, 32)
    with pytest.raises(UserError, match="All classes are held out"):
        class_ids(data, data.classes.names[1:])


def test_validation_scenes_are_others():
    data = Scenes()
    assert not (data.read("val", data.ids("val")[0]).mask == data.read("test", data.ids("test")[0]).mask).all()


def test_what_camvid_needs_is_said():
    case = Case("camvid", ("car",))
    with pytest.raises(UserError, match="--camvid"):
        open_data("camvid", None)
    with pytest.raises(UserError, match="--weights"):
        training_settings(case, SceneData(1, 1, 32), None, None)
    assert unknown.main(["--data", "camvid", "--out", "nowhere"]) == 2


# ---- a case from beginning to end


@pytest.mark.slow
def test_a_case_is_trained_and_measured_once(tmp_path, monkeypatch, tiny_config, capsys):
    monkeypatch.setattr(cases, "SCENES", {"images": 24, "test_images": 8, "size": 32})
    monkeypatch.setattr(cases, "HELD_OUT", {"scenes": (("building", "car"),)})
    tiny = ("train.epochs=2", "train.crop=32", "train.batch=8", "model.width=8", "model.embedding=8", "train.workers=0")
    monkeypatch.setattr(
        training, "training_settings", lambda *given: [*training_settings(*given), *tiny, "train.scale=[1, 1]"]
    )
    out, kept = tmp_path / "out", tmp_path / "kept.jsonl"
    words = ["--data", "scenes", "--out", str(out), "--images", "test", "--jsonl", str(kept)]
    assert unknown.main(words) == 0
    records = [json.loads(line) for line in kept.read_text().splitlines()]
    assert [(r["score"], r["background"]) for r in records] == [
        (name, kind) for name in SCORES for kind in (True, False)
    ]
    run = RunFolder(out / "runs" / "scenes-building-car")
    assert run.load_scenario().names == (
        "background",
        "road",
        "tree",
        "van",
        "pedestrian",
        "pavement",
        "fence",
        "kiosk",
        "cyclist",
    )
    pixels = np.stack([Scenes().read_mask("test", id) for id in Scenes().ids("test")])
    assert records[0]["unknown"] == pytest.approx(100 * np.isin(pixels, [2, 4]).mean(), abs=0.01)
    assert records[0]["pixels"] == pixels.size
    monkeypatch.setattr(unknown, "train", None)  # not called again
    assert unknown.main(words) == 0
    assert "best mean AUROC" in capsys.readouterr().out
    again = measure(Case("scenes", ("building", "car")), run.path, Scenes(), "test", SilentReporter())
    assert [r["auroc"] for r in again] == [r["auroc"] for r in records]


# ---- tables


def record(data, case, score, value, background=True):
    measured = {"auroc": value, "fpr95": value + 1, "ap": value + 2, "alarms": 4.0, "unknown": 3.0}
    return {"data": data, "case": case, "score": score, "background": background, **measured}


RECORDS = [
    *(record("scenes", "a", score, value) for score, value in (("x", 60.0), ("y", 70.0))),
    *(record("scenes", "b", score, value) for score, value in (("x", 60.0), ("y", 70.0))),
    *(record("camvid", "c", score, value) for score, value in (("x", 90.0), ("y", 78.0))),
]


def test_the_best_score_is_best_over_data_sets_not_over_cases():
    assert best_score(RECORDS) == "x"  # (60 + 90) / 2 > (70 + 78) / 2, though y has the larger sum over cases
    assert best_score(RECORDS[:4]) == "y"


def test_tables_hold_means_over_cases_and_data_sets():
    rows = summary_table(RECORDS).rows
    assert rows[0] == ["x", 60.0, 61.0, 62.0, 90.0, 91.0, 92.0, 75.0, 76.0, 77.0]
    assert rows[1][-3:] == [74.0, 75.0, 76.0]
    assert summary_table(RECORDS[:4]).rows[0] == ["x", 60.0, 61.0, 62.0]
    assert case_table(RECORDS[:2]).rows[1] == ["y", 70.0, 71.0, 72.0, 4.0]
    without = [record("scenes", "a", score, 50.0, background=False) for score in ("x", "y")]
    assert background_table([*RECORDS, *without]).rows == [["x", 60.0, 50.0], ["y", 70.0, 50.0]]
