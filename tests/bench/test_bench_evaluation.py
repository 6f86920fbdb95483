"""``bench_evaluation``: three implementations of the argmax, two of the counts."""

import pytest
import torch

from faircl.bench import evaluation as bench
from faircl.bench.evaluation import ARGMAX, COUNTERS, COUNTS, PREDICTIONS, bench_evaluation, bincount, counts_by_image
from faircl.bench.problem_size import ProblemSize
from faircl.errors import UserError
from faircl.labels import IGNORE

TINY = ProblemSize(classes=5, size=12, stride=4, batch=2)
on_cpu = pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU has a peak")


@on_cpu
def test_rows(silent):
    rows = bench_evaluation([TINY, ProblemSize(5, 12, 2, 2)], 2, silent())
    argmax, counts = [*PREDICTIONS], [*COUNTERS]
    assert [(row.work, row.way) for row in rows] == [
        *((ARGMAX, way) for way in argmax * 2),
        *((COUNTS, way) for way in counts),  # once: the stride does not matter
    ]
    assert [row.stride for row in rows] == [4] * 3 + [2] * 3 + [None] * 2
    for row in rows:
        assert (row.classes, row.size, row.batch, row.extra_gib, row.note) == (5, 12, 2, None, "")
        low, high = row.spread
        assert 0 < low <= row.milliseconds <= high
        assert row.equal > 0.99
    for first in (0, 3, 6):
        assert rows[first].ratio == 1
        assert rows[first + 1].ratio == pytest.approx(rows[first].milliseconds / rows[first + 1].milliseconds)


def test_wrong_classes_and_counts_are_seen(monkeypatch, silent):
    def half(logits, size):
        found = bench.interpolate_argmax(logits, size)
        found[:1] = (found[:1] + 1) % logits.shape[1]  # one of two images
        return found

    monkeypatch.setattr(bench, "PREDICTIONS", {"right": bench.interpolate_argmax, "half": half})
    monkeypatch.setattr(bench, "COUNTERS", {"right": bincount, "none": lambda p, t, c: torch.zeros(c, c).long()})
    assert [row.equal for row in bench_evaluation([TINY], 1, silent())] == [1, 0.5, 1, 0]


def test_both_counts_are_the_same():
    target = torch.tensor([[0, 1, 2], [2, IGNORE, 1]])
    prediction = torch.tensor([[0, 2, 2], [1, 1, 1]])
    expected = [[1, 0, 0], [0, 1, 1], [0, 1, 1]]
    assert bincount(prediction, target, 3).tolist() == expected
    assert counts_by_image(prediction[None], target[None], 3).tolist() == expected


def test_predictions_to_count_are_mostly_right(monkeypatch, silent):
    seen = []
    monkeypatch.setattr(bench, "COUNTERS", {"seen": lambda p, t, c: [seen.append((p, t)), bincount(p, t, c)][1]})
    bench_evaluation([ProblemSize(20, 64, 4, 2)], 1, silent())
    prediction, target = seen[-1]
    counted = target != IGNORE
    assert 0.7 < (prediction == target)[counted].double().mean() < 0.85
    assert prediction.max() < 20


def test_no_room_is_a_note(monkeypatch, silent):
    def full(logits, size):
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(
        bench, "PREDICTIONS", {"interpolate + argmax": full, "image by image": bench.interpolate_argmax_by_image}
    )
    first, second, *_ = bench_evaluation([TINY], 1, silent())
    assert (first.milliseconds, first.ratio, first.equal, first.note) == (None, None, None, "out of memory")
    assert second.milliseconds > 0
    assert (second.ratio, second.equal, second.note) == (None, 1, "")


def test_nothing_to_time_is_refused(silent):
    with pytest.raises(UserError, match="--rounds is 0, expected at least 1"):
        bench_evaluation([TINY], 0, silent())


def test_logits_that_do_not_fit_are_a_sentence(silent, monkeypatch):
    def full(*_):
        raise MemoryError

    monkeypatch.setattr("faircl.bench.evaluation.random_logits", full)
    with pytest.raises(UserError, match="out of memory; lower --batch, --size or --classes"):
        bench_evaluation([ProblemSize(classes=5, size=12, stride=4, batch=2)], 1, silent())
