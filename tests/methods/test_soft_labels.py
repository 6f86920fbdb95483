"""Soft labels: what is kept of the old network's class distribution, and how it comes back."""

import pytest
import torch

from faircl.methods.faircl.soft_labels import LEVELS, SoftLabels

H, W = 3, 4


def scanned(windows=6, classes=5, seed=0):
    """Logits of fixed windows, sharp enough that some shares are tiny, and pixels that are unlabelled."""
    gen = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn((windows, classes, H, W), generator=gen)
    return logits, torch.rand((windows, 4 * H, 4 * W), generator=gen) > 0.4


def stored(kept, logits, unlabelled, order=None):
    soft = SoftLabels(kept)
    order = torch.arange(len(logits)) if order is None else order
    for part in order.split(2):
        soft.add(part, logits[part], unlabelled[part])
    soft.gather()
    return soft


def as_planes(targets, classes):
    """Distributions (B, C, h, w) of soft targets."""
    q = torch.zeros((*targets.classes.shape[:3], classes)).scatter_add_(3, targets.classes, targets.shares)
    return q.permute(0, 3, 1, 2)


def assert_rounded(targets, q):
    """q to half a level of each class, and its part of the change that makes the sum one again."""
    classes = q.shape[1]
    bound = (0.5 + q * classes / 2) / (LEVELS - classes / 2)
    assert ((as_planes(targets, classes) - q).abs() <= bound + 1e-6).all()


def windows_of(numbers, flip=False):
    return torch.tensor([[number, flip] for number in numbers])


@pytest.mark.parametrize("kept", [5, 8])
def test_all_classes_kept_is_the_softmax_in_eight_bits(kept):
    logits, unlabelled = scanned()
    found = stored(kept, logits, unlabelled).of(windows_of([4, 1]))
    assert found.shares.sum(3).allclose(torch.ones(1))
    assert_rounded(found, logits[[4, 1]].softmax(1))


def test_the_largest_classes_are_kept_and_have_a_sum_of_one():
    logits, unlabelled = scanned(seed=1)
    found = stored(2, logits, unlabelled).of(windows_of(range(6)))
    for b, i, j in torch.ones(6, H, W).nonzero().tolist():
        q = logits[b, :, i, j].softmax(0)
        first, second = q.argsort(descending=True)[:2].tolist()
        assert found.classes[b, i, j].tolist() == [first, second]
        expected = (q[first] / (q[first] + q[second])).item()
        assert found.shares[b, i, j].tolist() == pytest.approx([expected, 1 - expected], abs=1 / LEVELS)
    assert torch.equal(found.likeliest(), logits.argmax(1))


def test_a_mirrored_window_has_mirrored_labels():
    soft = stored(3, *scanned(seed=2))
    plain, mirrored = soft.of(windows_of([2, 5])), soft.of(windows_of([2, 5], flip=True))
    assert torch.equal(mirrored.classes, plain.classes.flip(2))
    assert torch.equal(mirrored.shares, plain.shares.flip(2))
    mixed = soft.of(torch.tensor([[2, 1], [5, 0]]))
    assert torch.equal(mixed.shares[0], mirrored.shares[0])
    assert torch.equal(mixed.shares[1], plain.shares[1])


def test_the_order_of_the_scan_is_of_no_matter():
    given = scanned(seed=3)
    one, other = stored(4, *given), stored(4, *given, order=torch.tensor([3, 5, 0, 4, 1, 2]))
    assert torch.equal(one.classes, other.classes)
    assert torch.equal(one.shares, other.shares)
    assert one.background_share() == pytest.approx(other.background_share(), rel=1e-6)


@pytest.mark.parametrize(("classes", "dtype"), [(256, torch.uint8), (257, torch.int16), (300, torch.int16)])
def test_numbers_of_many_classes_survive(classes, dtype):
    logits, unlabelled = scanned(2, classes)
    logits[:, classes - 1] += 100
    soft = stored(2, logits, unlabelled)
    assert soft.classes.dtype == dtype
    assert soft.shares.dtype == torch.uint8
    assert soft.of(windows_of([0, 1])).likeliest().unique().tolist() == [classes - 1]


def test_the_share_of_background_equals_the_loop():
    logits, unlabelled = scanned(seed=4)
    background = total = 0.0
    for b, y, x in unlabelled.nonzero().tolist():
        background += logits[b, :, y // 4, x // 4].softmax(0)[0].item()
        total += 1
    soft = stored(4, logits, unlabelled)
    assert soft.background_share() == pytest.approx(background / total, rel=1e-5)
    assert stored(4, logits, torch.zeros_like(unlabelled)).background_share() == 0


def test_nothing_is_left_after_a_step():
    soft = stored(4, *scanned())
    assert len(soft.shares) == 6
    soft.clear()
    assert [value.numel() for value in soft.state_dict().values()] == [0, 0]
    assert all(torch.equal(a, b) for a, b in zip(soft.buffers(), SoftLabels(3).buffers(), strict=True))


def test_without_a_scan_the_state_stays_as_it_is():
    """A run that is resumed within a step does not scan again."""
    soft = stored(4, *scanned())
    before = soft.shares.clone()
    soft.gather()
    assert torch.equal(soft.shares, before)
    assert soft.background_share() == 0


def test_half_precision_logits_are_soft_labels_in_single_precision():
    logits, unlabelled = scanned(seed=5)
    found = stored(5, logits.bfloat16(), unlabelled).of(windows_of(range(6)))
    assert_rounded(found, logits.bfloat16().float().softmax(1))
