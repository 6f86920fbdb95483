"""What a version changed, by hand."""

import pytest

from faircl.deploy.adding.verdict import changes_table, compare_predictions, judge


def record(**ious):
    return {"classes": [{"id": k, "name": name, "iou": value} for k, (name, value) in enumerate(ious.items())]}


BEFORE = record(background=90.0, road=80.0, sky=70.0, tree=None)
AFTER = record(background=50.0, road=78.0, sky=64.0, tree=12.0, van=30.0)


def test_the_mean_loss_is_over_old_classes_without_background():
    verdict = judge(BEFORE, AFTER, 4.0, None, background=True)
    assert verdict.drop == pytest.approx((2 + 6) / 2)
    assert verdict.reason == ""
    assert [one.change for one in verdict.changes] == [-40, -2, -6, None, None]
    assert judge(BEFORE, AFTER, 4.0, None, background=False).drop == pytest.approx((40 + 2 + 6) / 3)


def test_limits_on_the_mean_and_on_every_class():
    assert "3.9 (--max-drop)" in judge(BEFORE, AFTER, 3.9, None, background=True).reason
    assert judge(BEFORE, AFTER, 4.0, 6.0, background=True).reason == ""
    reason = judge(BEFORE, AFTER, 4.0, 5.9, background=True).reason
    assert "'sky' lost 6.0" in reason


def test_a_gain_is_never_rejected():
    gained = record(background=90.0, road=80.5, sky=70.5, tree=None)
    verdict = judge(BEFORE, gained, 0.0, 0.0, background=True)
    assert (verdict.drop, verdict.reason) == (-0.5, "")


def test_nothing_to_compare():
    assert judge(record(road=None), record(road=None, van=3.0), 0.0, 0.0, background=False).drop is None


def test_the_agreement_is_the_mean_after():
    verdict = compare_predictions(BEFORE, AFTER, background=True)
    assert verdict.agreement == pytest.approx((78 + 64) / 2)
    assert (verdict.drop, verdict.reason) == (None, "")


def test_the_table_begins_with_the_greatest_loss():
    rows = changes_table(judge(BEFORE, AFTER, 9.0, None, background=True).changes).rows
    assert [row[0] for row in rows] == ["background", "sky", "road", "tree", "van"]
