"""What charts of a page show, against hand-made records and a plain loop."""

import math

import numpy as np
import pytest
from records import named, random_record, record_of
from report_runs import make_report_run

from faircl.errors import UserError
from faircl.fairness.intervals import Interval
from faircl.report import run_rows
from faircl.report.confusion import confusion_shares, most_confused
from faircl.report.distribution import distribution, readable
from faircl.report.gallery_files import gallery_files
from faircl.report.measure_rows import reliability_rows, transfer_rows
from faircl.report.numbers import between, number, signed
from faircl.report.rendering import inert_json
from faircl.report.run_view import view_run
from faircl.runs.run import load_run


@pytest.fixture(scope="module")
def view(tmp_path_factory):
    return view_run(load_run(make_report_run(tmp_path_factory.mktemp("rows") / "run", 7, 3, 6)))


def test_bars_hold_ious_intervals_and_changes(view):
    rows = run_rows.bars(view)
    assert [len(row) for row in rows] == [7, 7, 7]
    for place, (step, row) in enumerate(zip(view.steps, rows, strict=True)):
        for c, bar in zip(view.classes, row, strict=True):
            if c.learned_at > step.number:
                assert (bar["kind"], bar["iou"]) == ("later", None)
                continue
            assert bar["kind"] == ("new" if c.learned_at == step.number else "old")
            assert bar["iou"] == pytest.approx(step.classes[c.id].iou, abs=0.01)
            interval = step.audited[c.id].interval
            assert (bar["low"] is None) == (interval is None)
            if c.learned_at < step.number:
                change = step.classes[c.id].iou - view.steps[place - 1].classes[c.id].iou
                assert bar["change"] == signed(change)
    assert [c.pixels for c in view.classes] == sorted((c.pixels for c in view.classes), reverse=True)


def test_heat_map_begins_where_a_class_was_learned(view):
    groups = run_rows.heat_map(view)
    assert [group.title for group in groups] == [f"learned at step {k}" for k in range(3)]
    for step, group in enumerate(groups):
        for _, cells in group.rows:
            assert [begins for *_, begins in cells] == [k == step for k in range(3)]
            assert all(text == "" for text, *_ in cells[:step])
            assert all(level is not None for _, level, _ in cells[step:])
    assert [run_rows.level(value) for value in (0, 50, 100, math.nan)] == [0, 10, 20, None]


def test_confusion_rows_are_those_of_the_records(view):
    found = run_rows.confusions(view)
    for place, step in enumerate(view.steps):
        shares = confusion_shares(step.record)
        for truth, row in enumerate(found["steps"][place]):
            if truth >= len(shares):
                assert row is None
                continue
            dense = dict(zip(row[::2], row[1::2], strict=True))
            size = len(shares)
            for k in range(size):
                assert dense.get(k, 0) == pytest.approx(10 * shares[truth, k], abs=0.51)
    matrix = run_rows.matrix(found, 2)
    assert len(matrix.rows) == 7
    assert matrix.rows[0][1][0][2]  # the diagonal
    assert matrix.rows[0][1][0][0] == f"{found['steps'][2][0][1] / 10 + 1e-9:.0f}"


def test_confusion_shares_and_most_confused_by_hand():
    truth, guess = np.array([[0] * 4 + [1] * 4 + [2] * 2]), np.array([[0] * 4 + [2, 2, 2, 1] + [2, 255]])
    shares = confusion_shares(record_of([(truth, guess)], named(4)))
    np.testing.assert_allclose(shares[:3], [[100, 0, 0, 0, 0], [0, 25, 75, 0, 0], [0, 0, 50, 0, 50]])
    assert not shares[3].any()
    assert most_confused(shares, 25) == [1, 2]


def test_many_classes_have_choices(tmp_path):
    many = view_run(load_run(make_report_run(tmp_path / "run", 50, 2, 3, gallery=False)))
    found = run_rows.confusions(many)
    labels = [choice["label"] for choice in found["choices"]]
    assert labels[:3] == ["the 25 most confused", "the 25 rarest", "the 25 most frequent"]
    assert "those of the last step" in labels
    assert len(labels) == 4 + 50
    assert all(choice["show"] == sorted(set(choice["show"])) for choice in found["choices"])
    for name, choice in zip(labels[4:], found["choices"][4:], strict=True):
        assert name.removesuffix(" and its neighbours") in [found["names"][k] for k in choice["show"]]


def test_flow_adds_up(view):
    for rows in run_rows.flow_rows(view):
        for row in rows:
            assert row["parts"] == [] or sum(row["parts"]) == pytest.approx(100, abs=0.05)


def test_headline_names_the_worst_class_with_its_own_interval(view):
    cards = {card.name.partition(":")[0]: card for card in run_rows.headline(view)}
    assert list(cards) == ["Mean IoU", "STD between classes", "Worst", "Forgetting"]
    worst = view.final.metrics.worst
    own = view.final.audited[worst.id].interval
    assert cards["Worst"].interval == (f"{own.low:.1f} – {own.high:.1f}" if own else "")
    assert f"mean of {view.final.metrics.groups['all'].miou:.1f}" in cards["STD between classes"].note


def test_reliability_by_a_plain_loop():
    record = random_record(images=3)
    for row in reliability_rows(record):
        low = round(float(row.confidences.split(" – ")[0]) * 15 / 100)
        pixels = correct = sure = total = 0
        for bin, n, right, confidence in zip(*record.reliability[2:], strict=True):
            total += n
            if bin == low:
                pixels, correct, sure = pixels + n, correct + right, sure + confidence
        assert row[1:] == pytest.approx((100 * pixels / total, 100 * sure / pixels, 100 * correct / pixels))


def test_transfer_needs_several_steps(view):
    assert [row.name for row in transfer_rows(view.metrics)] == ["Forgetting", "Backward transfer", "Plasticity"]
    assert transfer_rows(view.metrics[:1]) == []


def test_distribution_is_logarithmic(view):
    rows = distribution(view)
    assert [row.name for row in rows] == [c.name for c in view.classes]
    shares = [float(row.training.text) for row in rows]
    widths = [row.training.width for row in rows]
    slope = (widths[0] - widths[1]) / (math.log10(shares[0]) - math.log10(shares[1]))
    assert widths[0] - widths[-1] == pytest.approx(slope * (math.log10(shares[0]) - math.log10(shares[-1])), rel=0.1)
    assert [readable(v) for v in (43.21, 4.321, 0.04321, 100.0)] == ["43", "4.3", "0.043", "100"]


def test_a_gallery_keeps_to_its_room(view):
    whole = gallery_files(view.run, [0, 1, 2])
    total = sum(p.bytes for p in whole.pictures)
    small = gallery_files(view.run, [2], room=total * 2 // 3)
    tiny = gallery_files(view.run, [2], room=1)  # never below a recognisable size
    assert max(p.width for p in whole.pictures) == 96
    assert sum(p.bytes for p in small.pictures) <= total * 2 // 3
    assert max(p.width for p in tiny.pictures) == 64
    assert whole.kinds == ["worst image", "worst class", "median image"]
    assert set(small.pictures[0].masks) == {"truth", "2"}


def test_steps_of_a_view(view):
    assert [one.number for one in view_run(view.run, 1).steps] == [0, 1]
    with pytest.raises(UserError, match="no evaluation after step 7; it has: 0, 1, 2"):
        view_run(view.run, 7)


def test_json_cannot_end_its_element():
    text = str(inert_json({"a": "</script><!-- & \u2028"}))
    assert not set("<>&\u2028") & set(text)


def test_signs():
    assert [signed(v) for v in (1.26, -1.26, 0.01, -0.01)] == ["+1.3", "−1.3", "0.0", "0.0"]
    assert [number(v, 1) for v in (-1234.56, -0.01, math.nan, None, 7)] == ["−1,234.6", "0.0", "–", "–", "7"]
    assert (between(Interval(-1.0, 2.0)), between(None)) == ("−1.0 – 2.0", "")
