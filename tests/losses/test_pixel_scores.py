"""pixel_scores against plain interpolation: values, gradients and saved tensors."""

import loop_losses as loops
import pytest
import torch
from torch.nn import functional

from faircl.labels import IGNORE
from faircl.losses.cross_entropy import pixel_cross_entropy
from faircl.losses.pixel_scores import pixel_scores
from faircl.upsampling import _first_largest, upsampled_argmax

SIZES = [((3, 4), (7, 9)), ((2, 2), (8, 8)), ((1, 1), (3, 4)), ((5, 4), (5, 4)), ((5, 6), (3, 2))]


def case(small=(3, 4), large=(7, 9), classes=5, dtype=torch.float64):
    gen = torch.Generator().manual_seed(0)
    logits = (3 * torch.randn((2, classes, *small), generator=gen, dtype=torch.float64)).to(dtype)
    target = torch.randint(classes, (2, *large), generator=gen)
    target[torch.rand((2, *large), generator=gen) < 0.2] = IGNORE
    return logits, target, torch.randn(classes, generator=gen, dtype=torch.float64)


@pytest.mark.parametrize("grouped", [0, 3])
@pytest.mark.parametrize("with_offset", [False, True])
@pytest.mark.parametrize(("small", "large"), SIZES)
def test_difference_is_cross_entropy_and_so_is_its_gradient(small, large, with_offset, grouped):
    logits, target, offset = case(small, large)
    offset = offset if with_offset else None
    weight = torch.rand(target.shape, dtype=torch.float64)
    gradients = []
    for plain in (True, False):
        one = logits.clone().requires_grad_()
        if plain:
            loss = pixel_cross_entropy(one, target, offset=offset, grouped=grouped)
        else:
            lse, own = pixel_scores(one, target, offset, grouped)
            loss = (lse - own).where(target != IGNORE, 0.0)
        (loss * weight).sum().backward()
        gradients.append((loss.detach(), one.grad))
    for a, b in zip(*gradients, strict=True):
        assert torch.allclose(a, b, atol=1e-10)


@pytest.mark.parametrize("grouped", [0, 2])
def test_gradients_of_both_scores(grouped):
    logits, target, offset = case((2, 3), (4, 5), classes=3)
    assert loops.grad_ok(lambda z: pixel_scores(z, target, offset, grouped), logits)


def test_half_precision_is_computed_in_full_and_returned_in_half():
    logits, target, _ = case(dtype=torch.bfloat16)
    logits.requires_grad_()
    lse, own = pixel_scores(logits, target)
    assert lse.dtype == own.dtype == torch.float32
    (lse - own).sum().backward()
    assert logits.grad.dtype == torch.bfloat16
    exact = functional.interpolate(logits.detach().double(), target.shape[-2:], mode="bilinear").logsumexp(1)
    assert torch.allclose(lse.double(), exact, atol=1e-5)


def test_nothing_of_full_resolution_and_all_classes_is_kept():
    logits, target, _ = case((3, 4), (24, 32), classes=7)
    logits.requires_grad_()
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, lambda t: t):
        pixel_scores(logits, target)
    assert kept
    assert max(kept) <= 2 * 24 * 32


def test_largest_channel_is_that_of_plain_interpolation():
    logits = torch.randn(3, 7, 4, 5, generator=torch.Generator().manual_seed(0))
    for size in ((9, 13), (4, 5), (2, 3)):
        up = functional.interpolate(logits, size, mode="bilinear", align_corners=False)
        assert torch.equal(upsampled_argmax(logits, size), up.argmax(1))


def test_largest_channel_of_short_numbers_is_found_in_full_precision():
    logits = (8 + 0.3 * torch.randn(2, 9, 4, 4, generator=torch.Generator().manual_seed(0))).bfloat16()
    assert torch.equal(upsampled_argmax(logits, (13, 11)), upsampled_argmax(logits.float(), (13, 11)))


def test_deterministic_gradients_are_the_same():
    logits, target, offset = case()
    found = []
    for deterministic in (False, True):
        one = logits.clone().requires_grad_()
        torch.use_deterministic_algorithms(deterministic)
        try:
            total, own = pixel_scores(one, target, offset)
            (total - own).sum().backward()
        finally:
            torch.use_deterministic_algorithms(False)
        found.append(one.grad)
    assert torch.allclose(*found, atol=1e-12)


def test_a_batch_of_nothing():
    total, own = pixel_scores(torch.zeros(0, 3, 2, 2), torch.zeros((0, 4, 4), dtype=torch.int64))
    assert total.shape == own.shape == (0, 4, 4)


@pytest.mark.parametrize("channels", [1, 2, 255, 256, 300])
def test_the_first_of_several_largest_channels_counts(channels):
    values = torch.randint(0, 3, (channels, 7, 5), generator=torch.Generator().manual_seed(channels)).float()
    first = [[min(c for c in range(channels) if v[c] == v.max()) for v in row] for row in values.permute(1, 2, 0)]
    assert _first_largest(values).tolist() == first
