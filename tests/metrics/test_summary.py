"""Step metrics against hand-computed cases and the arithmetic of published tables."""

import itertools
import json
import math
import statistics

import pytest
import torch

from faircl.metrics import StepMetrics, summarise

NAMES = ["background", "road", "pole", "rider"]


def small(step=1, background=True, learned_at=(0, 0, 1, 1)):
    """IoUs by hand: 8/11, 3/6, 1/3, absent; error rates 2/10, 1/4, 1/2, absent."""
    counts = torch.tensor([[8, 1, 1, 0], [1, 3, 0, 0], [0, 1, 1, 0], [0, 0, 0, 0]])
    return summarise(
        counts, ids=[0, 3, 5, 9], names=NAMES, learned_at=list(learned_at), step=step, background=background
    )


IOU = [100 * 8 / 11, 100 * 3 / 6, 100 * 1 / 3]
ERROR = [20.0, 25.0, 50.0]


def test_classes_by_hand():
    m = small()
    assert [c.iou for c in m.classes[:3]] == pytest.approx(IOU)
    assert [c.error_rate for c in m.classes[:3]] == pytest.approx(ERROR)
    assert [c.pixels for c in m.classes] == [10, 4, 2, 0]
    assert [c.id for c in m.classes] == [0, 3, 5, 9]
    assert [c.learned_at for c in m.classes] == [0, 0, 1, 1]
    assert math.isnan(m.classes[3].iou)
    assert math.isnan(m.classes[3].error_rate)


def test_groups_by_hand():
    groups = small().groups
    assert groups["all"].miou == pytest.approx(sum(IOU) / 3)
    assert groups["all"].miou_without_background == pytest.approx((IOU[1] + IOU[2]) / 2)
    assert groups["all"].std == pytest.approx(statistics.pstdev(IOU))
    assert groups["all"].std_without_background == pytest.approx(statistics.pstdev(IOU[1:]))
    assert groups["old"] == groups["initial"]
    assert groups["old"].miou == pytest.approx((IOU[0] + IOU[1]) / 2)
    assert groups["old"].miou_without_background == pytest.approx(IOU[1])
    assert groups["new"] == groups["added"]
    assert groups["new"].miou == pytest.approx(IOU[2])
    assert groups["new"].std == 0


def test_fairness_by_hand():
    m = small()
    assert m.gap == pytest.approx(IOU[0] - IOU[2])
    assert m.error_gap == pytest.approx(max(abs(a - b) for a, b in itertools.combinations(ERROR, 2)))
    assert m.worst.name == "pole"
    assert m.best.name == "background"
    assert m.pixel_accuracy == pytest.approx(100 * 12 / 16)
    assert m.mean_accuracy == pytest.approx(100 - sum(ERROR) / 3)


def test_thirds_never_hold_the_background_but_hold_class_zero_of_data_without_one():
    m = small()
    assert (m.rarest_third, m.frequent_third) == (pytest.approx(IOU[2]), pytest.approx(IOU[1]))
    assert m.rare_ids == (5,)
    plain = small(background=False)
    assert plain.frequent_third == pytest.approx(IOU[0])
    assert plain.groups["all"].miou == plain.groups["all"].miou_without_background


def test_third_is_rounded_down():
    size = [5, 40, 10, 80, 20, 30, 60, 70]
    counts = torch.diag(torch.tensor(size))
    m = summarise(counts, ids=range(8), names=list("abcdefgh"), learned_at=[0] * 8, step=0, background=False)
    assert m.rare_ids == (0, 2)  # 8 // 3 = 2


def test_first_step_and_domain_step():
    first = small(step=0, learned_at=(0, 0, 0, 0))
    assert math.isnan(first.groups["old"].miou)
    assert first.groups["new"] == first.groups["all"]
    domain = small(step=4, learned_at=(0, 0, 0, 0))
    assert domain.groups["old"] == domain.groups["all"]
    assert domain.to_json()["miou"]["new"] is None


def test_initial_and_added_differ_from_old_and_new_from_the_third_step_on():
    m = small(step=2, learned_at=(0, 0, 1, 2))
    assert m.groups["old"] == m.groups["all"]  # the only new class is absent
    assert math.isnan(m.groups["new"].miou)
    assert m.groups["added"].miou == pytest.approx(IOU[2])


def test_groups_are_called_as_in_published_tables():
    def called(sizes, background):
        """Names of the groups after steps with these numbers of classes, background not among them."""
        learned = [0] * background + [step for step, size in enumerate(sizes) for _ in range(size)]
        size, last = len(learned), len(sizes) - 1
        m = summarise(torch.eye(size, dtype=torch.int64), ids=list(range(size)), names=[str(k) for k in range(size)],
                      learned_at=learned, step=last, background=background)  # fmt: skip
        return m.published_groups, m.several_additions

    assert called([15, *[1] * 5], True) == ({"initial": "0-15", "added": "16-20"}, True)
    assert called([100, 50], True) == ({"initial": "0-100", "added": "101-150"}, False)
    assert called([50, 50, 50], True) == ({"initial": "0-50", "added": "51-150"}, True)
    assert called([19, 1], True) == ({"initial": "0-19", "added": "20"}, False)
    assert called([13, 6], False) == ({"initial": "1-13", "added": "14-19"}, False)
    assert called([20], True) == ({}, False)


def test_nothing_present():
    m = summarise(torch.zeros(2, 2, dtype=torch.int64), ids=[0, 1], names=["a", "b"], learned_at=[0, 0], step=0,
                  background=True)  # fmt: skip
    assert m.worst is None
    out = m.to_json()
    assert out["worst"] == {"name": None, "iou": None}
    assert out["pixel_accuracy"] is None
    assert out["rarest_third"] is None


def test_json_contract_and_round_trip():
    m = small()
    out = json.loads(json.dumps(m.to_json(), allow_nan=False))
    assert list(out)[:7] == ["step", "miou", "std", "gap", "error_gap", "worst", "classes"]
    assert set(out["miou"]) == {"old", "new", "all"}
    assert set(out["worst"]) == {"name", "iou"}
    assert set(out["classes"][0]) == {"id", "name", "iou", "pixels", "error_rate", "learned_at"}
    assert out["classes"][3]["iou"] is None
    again = StepMetrics.from_json({**out, "kind": "eval", "seconds": 1.0})
    assert again.to_json() == out
    assert again.rare_ids == m.rare_ids


@pytest.mark.parametrize(
    ("change", "message"),
    [({"ids": [0]}, "1 ids"), ({"learned_at": [0, 0, 3, 0]}, "Class 'pole' is learned at step 3")],
)
def test_bad_input(change, message):
    keywords = {"ids": [0, 1, 2, 3], "names": NAMES, "learned_at": [0, 0, 1, 1], "step": 1, "background": True}
    with pytest.raises(ValueError, match=message):
        summarise(torch.eye(4, dtype=torch.int64), **{**keywords, **change})


def counts_with_iou(sizes_and_ious, truth=1_000_000):
    """Confusion matrix of groups of classes, each class of a group with the same chosen IoU.

    In a cyclic group a class loses m pixels to the next and gains m from the one before: IoU = (n−m)/(n+m).
    """
    blocks = []
    for size, percent in sizes_and_ious:
        lost = round(truth * (1 - percent / 100) / (1 + percent / 100))
        eye = torch.eye(size, dtype=torch.int64)
        blocks.append(eye * (truth - lost) + eye.roll(1, dims=1) * lost)
    return torch.block_diag(*blocks)


@pytest.mark.parametrize(
    ("initial", "added", "published"),
    [((101, 43.40), (50, 24.04), 36.99), ((51, 49.65), (100, 26.84), 34.54), ((16, 72.0), (5, 22.7), 60.3)],
    ids=["ADE 100-50", "ADE 50-50", "VOC 15-1"],
)
def test_published_groups_weigh_up_to_all(initial, added, published):
    """Numbers of the FairCL paper: the group of the first step includes the background, and so does "all"."""
    total = initial[0] + added[0]
    m = summarise(
        counts_with_iou([initial, added]),
        ids=range(total),
        names=[f"c{i}" for i in range(total)],
        learned_at=[0] * initial[0] + [1] * added[0],
        step=1,
        background=True,
    )
    assert m.groups["initial"].miou == pytest.approx(initial[1], abs=1e-3)
    assert m.groups["added"].miou == pytest.approx(added[1], abs=1e-3)
    assert m.groups["all"].miou == pytest.approx(published, abs=0.05 if published == 60.3 else 0.006)
    weights = initial[0] * m.groups["initial"].miou + added[0] * m.groups["added"].miou
    assert m.groups["all"].miou == pytest.approx(weights / total)
