"""Forgetting and the average over steps, by hand."""

import math

import pytest
import torch

from faircl.metrics import Forgetting, StepMetrics, average_over_steps, forgetting, summarise

IDS, NAMES, LEARNED = [0, 7, 8, 9], ["background", "cat", "dog", "eel"], [0, 0, 1, 2]


def measured(step, percents) -> StepMetrics:
    """Step metrics whose class IoUs are the given percents (None: absent): misses go to a spare channel."""
    n = len(percents)
    counts = torch.zeros(n + 1, n + 1, dtype=torch.int64)
    for c, percent in enumerate(percents):
        if percent is not None:
            counts[c, c] = round(100 * percent)
            counts[c, n] = 10_000 - counts[c, c]
    ids, names, learned = [*IDS[:n], 99], [*NAMES[:n], "spare"], [*LEARNED[:n], 0]
    return summarise(counts, ids=ids, names=names, learned_at=learned, step=step, background=True)


STEPS = [measured(0, [90, 80]), measured(1, [92, 60, 50]), measured(2, [85, 70, 55, 40])]


def test_best_earlier_minus_now():
    lost = forgetting(STEPS)
    assert lost.classes["background"] == pytest.approx(7)
    assert lost.classes["cat"] == pytest.approx(10)
    assert lost.classes["dog"] == pytest.approx(-5)
    assert math.isnan(lost.classes["eel"])
    assert lost.mean == pytest.approx(4)
    assert lost.mean_without_background == pytest.approx(2.5)


def test_order_of_the_list_does_not_matter_and_later_steps_do_not_count():
    assert forgetting(STEPS[::-1]).to_json() == forgetting(STEPS).to_json()
    assert forgetting(STEPS[:2]).classes["cat"] == pytest.approx(20)


@pytest.mark.parametrize("step", [0, 2])
def test_one_step_has_nothing_to_forget(step):
    lost = forgetting([measured(step, [85, 70])])  # step 2: a joint run, with old and new classes but no history
    assert all(math.isnan(v) for v in lost.classes.values())
    assert lost.to_json()["mean_forgetting"] is None


def test_absent_classes():
    gone = forgetting([STEPS[0], measured(1, [90, None, 50])])
    assert math.isnan(gone.classes["cat"])
    late = forgetting([measured(0, [90, None]), measured(1, [90, 60, 50])])
    assert math.isnan(late.classes["cat"])
    assert late.mean == pytest.approx(0)


def test_json():
    lost = Forgetting({"cat": 1.5, "eel": math.nan}, 1.5, math.nan)
    assert lost.to_json() == {
        "forgetting": {"cat": 1.5, "eel": None},
        "mean_forgetting": 1.5,
        "mean_forgetting_without_background": None,
    }
    with pytest.raises(ValueError, match="at least one step"):
        forgetting([])


def test_average_over_steps():
    # The spare channel is never a truth class, so it never counts.
    assert average_over_steps(STEPS) == pytest.approx((85 + 202 / 3 + 62.5) / 3)
    assert average_over_steps(STEPS[:1]) == pytest.approx(85)
    assert math.isnan(average_over_steps([]))


def test_published_average():
    """FairCL paper, ADE 100-50: final 36.99, average 40.45 (43.91 is what these two imply for step 0)."""
    first, last = measured(0, [43.91, 43.91]), measured(1, [36.99, 36.99, 36.99])
    assert average_over_steps([first, last]) == pytest.approx(40.45)
