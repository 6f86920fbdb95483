"""The features that prototype replay remembers: which, how many, and in what turn they are shown."""

import pytest
import torch

from faircl.methods.faircl.feature_memory import FeatureMemory
from faircl.prototypes import PrototypeBank, in_turn

WIDTH, LENGTH = 2, 12


def fill(bank, counts, first=0.0):
    """Give class c ``counts[c]`` features (value, c), the values counting on from ``first``."""
    for c, count in counts.items():
        values = first + torch.arange(count, dtype=torch.float32)
        rows = torch.stack([values, torch.full((count,), float(c))], 1)
        bank.push(rows, torch.full((count,), c), torch.arange(count) << 20, LENGTH)


def begun(classes=3, background=True):
    bank = PrototypeBank(WIDTH, LENGTH, 1, 0.9)
    bank.begin_step(classes, background)
    return bank


def next_step(bank, classes):
    bank.finish_step()
    bank.begin_step(classes, True)


def test_kept_features_are_spread_over_the_queue():
    bank, memory = begun(), FeatureMemory(4, WIDTH)
    fill(bank, {0: 12, 1: 4, 2: 9})
    memory.keep(bank)
    queue = bank.queue.half()
    assert memory.filled.tolist() == [4, 4, 4]
    assert torch.equal(memory.features[0], queue[0, [0, 3, 6, 9]])
    assert torch.equal(memory.features[1], queue[1, :4])
    assert torch.equal(memory.features[2], queue[2, [0, 2, 4, 6]])


def test_a_short_queue_is_kept_whole_and_a_class_without_features_has_none():
    bank, memory = begun(), FeatureMemory(5, WIDTH)
    fill(bank, {0: 3, 2: 1})
    memory.keep(bank)
    assert memory.filled.tolist() == [3, 0, 1]
    assert torch.equal(memory.features[0, :3], bank.queue[0, :3].half())
    assert torch.equal(memory.features[2, :1], bank.queue[2, :1].half())
    _, valid = memory.draw(bank, 0, 4)
    assert valid.all(1).tolist() == [True, False, True]


def test_later_steps_leave_old_classes_as_they_are_and_renew_the_background():
    bank, memory = begun(), FeatureMemory(3, WIDTH)
    fill(bank, {0: 3, 1: 3, 2: 3})
    memory.keep(bank)
    before = memory.features.clone()
    next_step(bank, 5)
    fill(bank, {0: 3, 1: 3, 3: 3}, first=50.0)  # class 1 is frozen, class 4 is never seen
    memory.keep(bank)
    assert torch.equal(memory.features[1:3], before[1:])
    assert memory.features[0, :, 0].tolist() == [50, 51, 52]
    assert memory.features[3, :, 0].tolist() == [50, 51, 52]
    assert memory.filled.tolist() == [3, 3, 3, 3, 0]


def test_a_step_that_never_shows_background_leaves_its_features():
    bank, memory = begun(), FeatureMemory(3, WIDTH)
    fill(bank, {0: 3, 1: 3, 2: 3})
    memory.keep(bank)
    before = memory.features.clone()
    next_step(bank, 4)
    fill(bank, {3: 3})
    memory.keep(bank)
    assert torch.equal(memory.features[:3], before)
    assert memory.filled.tolist() == [3, 3, 3, 3]


def test_drawn_features_take_turns():
    bank, memory = begun(), FeatureMemory(5, WIDTH)
    fill(bank, {0: 5, 1: 5, 2: 3})
    memory.keep(bank)
    next_step(bank, 4)
    fill(bank, {3: 4}, first=70.0)
    shown = [memory.draw(bank, turn, 2) for turn in range(3)]
    columns = [torch.cat([features[c, :, 0] for features, _ in shown]).tolist() for c in (1, 2, 3)]
    assert columns == [[0, 1, 2, 3, 4, 0], [0, 1, 2, 0, 1, 2], [70, 71, 72, 73, 70, 71]]
    for features, valid in shown:
        assert features.shape == (4, 2, WIDTH)
        assert features.dtype == bank.prototypes.dtype
        assert valid.tolist() == [[False] * 2] + [[True] * 2] * 3  # no background has come yet at this step
        assert (features[1:, :, 1] == torch.tensor([[1.0], [2.0], [3.0]])).all()


@pytest.mark.parametrize(
    ("filled", "turn", "count"), [(5, 0, 3), (5, 1, 3), (5, 7, 3), (2, 3, 5), (0, 4, 2), (1, 9, 1)]
)
def test_turns_by_counting(filled, turn, count):
    shown = [place % max(filled, 1) for place in range((turn + 1) * count)]
    assert in_turn(torch.tensor([filled]), turn, count).tolist() == [shown[turn * count :]]


def test_recent_features_are_those_of_the_moving_classes():
    bank = begun()
    fill(bank, {0: 2, 1: 3, 2: 1})
    next_step(bank, 5)
    fill(bank, {0: 2, 4: 3}, first=9.0)
    features, filled = bank.recent(1, 2)
    assert bank.moving.tolist() == [0, 3, 4]
    assert filled.tolist() == [2, 0, 3]
    assert features[0, :, 0].tolist() == [9, 10]
    assert features[2, :, 0].tolist() == [11, 9]


def test_large_features_are_clamped_to_half_precision():
    bank, memory = begun(classes=1), FeatureMemory(2, WIDTH)
    bank.push(
        torch.tensor([[1e6, -1e6], [3.0, -4.0]]), torch.zeros(2, dtype=torch.int64), torch.tensor([0, 1 << 20]), 2
    )
    memory.keep(bank)
    limit = torch.finfo(torch.float16).max
    assert memory.features[0].tolist() == [[limit, -limit], [3.0, -4.0]]


@pytest.mark.parametrize(("size", "width"), [(200, 256), (7, 3)])
def test_bytes_of_a_class(size, width):
    bank, memory = PrototypeBank(width, 4, 1, 0.9), FeatureMemory(size, width)
    bank.begin_step(5, True)
    memory.keep(bank)
    assert memory.features.nbytes == 5 * 2 * size * width


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_features_beyond_float16_are_kept_finite(dtype):
    bank, memory = begun(1), FeatureMemory(2, WIDTH)
    rows = torch.tensor([[1e6, -1e6], [1.0, -65000.0]], dtype=dtype)
    bank.push(rows, torch.zeros(2, dtype=torch.int64), torch.arange(2) << 20, LENGTH)
    memory.keep(bank)
    assert memory.features[0, 0].tolist() == [65504.0, -65504.0]
    assert torch.equal(memory.features[0, 1], rows[1].half())
