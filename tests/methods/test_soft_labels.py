"""Soft labels: what is kept of the old network's class distribution, and how it comes back."""

from itertools import product

import pytest
import torch

from faircl.loading.batch import FixedWindow
from faircl.loading.soft_labels import LEVELS
from faircl.methods.faircl.soft_labels import SoftLabelScan

H, W = 3, 4
CPU = torch.device("cpu")


def scanned(windows=6, classes=5, seed=0):
    """Logits of fixed windows, sharp enough that some shares are tiny, and pixels that are unlabelled."""
    gen = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn((windows, classes, H, W), generator=gen)
    return logits, torch.rand((windows, 4 * H, 4 * W), generator=gen) > 0.4


def scan_of(kept, logits, unlabelled, order=None):
    scan = SoftLabelScan(kept, logits.shape[1])
    order = torch.arange(len(logits)) if order is None else order
    for part in order.split(2):
        scan.add(part.tolist(), logits[part], unlabelled[part], ~unlabelled[part])
    return scan


def stored(*given, **options):
    return scan_of(*given, **options).gather()


def background_share(*given, **options):
    scan = scan_of(*given, **options)
    scan.gather()
    return scan.background_share()


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
    return [FixedWindow(number, flip) for number in numbers]


@pytest.mark.parametrize("kept", [5, 8])
def test_all_classes_kept_is_the_softmax_in_eight_bits(kept):
    logits, unlabelled = scanned()
    found = stored(kept, logits, unlabelled).of(windows_of([4, 1]), CPU)
    assert found.shares.sum(3).allclose(torch.ones(1))
    assert_rounded(found, logits[[4, 1]].softmax(1))


def test_the_largest_classes_are_kept_and_have_a_sum_of_one():
    logits, unlabelled = scanned(seed=1)
    found = stored(2, logits, unlabelled).of(windows_of(range(6)), CPU)
    for b, i, j in torch.ones(6, H, W).nonzero().tolist():
        q = logits[b, :, i, j].softmax(0)
        first, second = q.argsort(descending=True)[:2].tolist()
        assert found.classes[b, i, j].tolist() == [first, second]
        expected = (q[first] / (q[first] + q[second])).item()
        assert found.shares[b, i, j].tolist() == pytest.approx([expected, 1 - expected], abs=1 / LEVELS)
    assert torch.equal(found.likeliest(), logits.argmax(1))


def test_a_mirrored_window_has_mirrored_labels():
    soft = stored(3, *scanned(seed=2))
    plain, mirrored = soft.of(windows_of([2, 5]), CPU), soft.of(windows_of([2, 5], flip=True), CPU)
    assert torch.equal(mirrored.classes, plain.classes.flip(2))
    assert torch.equal(mirrored.shares, plain.shares.flip(2))
    mixed = soft.of([FixedWindow(2, True), FixedWindow(5, False)], CPU)
    assert torch.equal(mixed.shares[0], mirrored.shares[0])
    assert torch.equal(mixed.shares[1], plain.shares[1])


def test_the_order_of_the_scan_is_of_no_matter():
    given = scanned(seed=3)
    order = torch.tensor([3, 5, 0, 4, 1, 2])
    one, other = (soft.of(windows_of(range(6)), CPU) for soft in (stored(4, *given), stored(4, *given, order=order)))
    assert torch.equal(one.classes, other.classes)
    assert torch.equal(one.shares, other.shares)
    assert background_share(4, *given) == pytest.approx(background_share(4, *given, order=order), rel=1e-6)


@pytest.mark.parametrize(("classes", "size"), [(256, 2), (257, 3), (300, 3)])
def test_numbers_of_many_classes_survive(classes, size):
    logits, unlabelled = scanned(2, classes)
    logits[:, classes - 1] += 100
    soft = stored(2, logits, unlabelled)
    assert soft.nbytes == 2 * H * W * 2 * size  # two windows, two classes of a cell
    assert soft.of(windows_of([0, 1]), CPU).likeliest().unique().tolist() == [classes - 1]


def test_the_share_of_background_equals_the_loop():
    logits, unlabelled = scanned(seed=4)
    background = total = 0.0
    for b, y, x in unlabelled.nonzero().tolist():
        background += logits[b, :, y // 4, x // 4].softmax(0)[0].item()
        total += 1
    assert background_share(4, logits, unlabelled) == pytest.approx(background / total, rel=1e-5)
    assert background_share(4, logits, torch.zeros_like(unlabelled)) == 0


def test_the_scan_hands_over_what_it_has_collected():
    scan = scan_of(4, *scanned())
    assert len(scan.gather()) == 6
    assert len(scan.labels) == 0
    assert scan.background_share() > 0


def test_half_precision_logits_are_soft_labels_in_single_precision():
    logits, unlabelled = scanned(seed=5)
    found = stored(5, logits.bfloat16(), unlabelled).of(windows_of(range(6)), CPU)
    assert_rounded(found, logits.bfloat16().float().softmax(1))


def test_taken_is_the_share_of_a_class_in_labelled_pixels():
    logits, unlabelled = scanned(seed=4)
    labelled, everywhere = torch.zeros(5), torch.zeros(5)
    for b, y, x in product(range(6), range(4 * H), range(4 * W)):
        q = logits[b, :, y // 4, x // 4].softmax(0)
        everywhere += q
        labelled += q * (not unlabelled[b, y, x])
    scan = scan_of(4, logits, unlabelled)
    scan.gather()
    torch.testing.assert_close(scan.taken().float(), labelled / everywhere)


def test_nothing_is_taken_where_nothing_is_labelled_or_found():
    logits, unlabelled = scanned()
    logits[:, 2] = -1e4
    scan = scan_of(4, logits, unlabelled)
    scan.gather()
    assert scan.taken()[2] == 0
    scan = scan_of(4, logits, torch.ones_like(unlabelled))
    scan.gather()
    assert scan.taken().tolist() == [0.0] * 5
