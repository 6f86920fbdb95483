"""Kernels of upsampled logits against torch's interpolation in float64."""

import pytest
import torch
from grids import grid
from torch.nn import functional

from faircl.labels import IGNORE

upsampled = pytest.importorskip("faircl.kernels.upsampled_logits", reason="Triton comes with torch for Linux alone")

CASES = {
    "integer scale": ((2, 2), (8, 8), 5, 0),
    "odd sizes": ((2, 3), (7, 5), 5, 3),
    "many channels": ((1, 2), (2, 4), 70, 65),
    "equal sizes": ((2, 2), (2, 2), 4, 0),
    "one logit": ((1, 1), (3, 5), 3, 2),
    "smaller": ((4, 3), (2, 2), 3, 0),
    "one class": ((2, 1), (3, 3), 1, 1),
}


def case(name, seed=0):
    small, large, classes, grouped = CASES[name]
    gen = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn((1, classes, *small), generator=gen)
    target = torch.randint(classes, (1, *large), generator=gen)
    target[torch.rand((1, *large), generator=gen) < 0.2] = IGNORE
    return logits, target, torch.randn(classes, generator=gen), grouped


def expected(logits, target, offset, grouped):
    z = functional.interpolate(logits, target.shape[-2:], mode="bilinear", align_corners=False)
    z = z if offset is None else z + offset[:, None, None]
    valid = target != IGNORE
    own = z.gather(1, target.where(valid, 0)[:, None])[:, 0]
    own = own.where(target != 0, z[:, :grouped].logsumexp(1)) if grouped else own
    return z.logsumexp(1), own.where(valid, 0.0)


@grid("with_offset", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_scores_and_gradients_equal_float64(name, with_offset):
    logits, target, offset, grouped = case(name)
    offset = offset if with_offset else None
    logits.requires_grad_()
    exact = logits.detach().double().requires_grad_()
    found = upsampled.pixel_scores(logits, target, offset, grouped)
    wanted = expected(exact, target, None if offset is None else offset.double(), grouped)
    weights = [torch.randn(target.shape) for _ in found]
    for scores in (found, wanted):
        sum((score * weight).sum() for score, weight in zip(scores, weights, strict=True)).backward()
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype == torch.float32
        assert torch.allclose(one.double(), other, atol=1e-5)
    assert torch.allclose(logits.grad.double(), exact.grad, atol=1e-5)


def test_half_precision_in_and_out():
    logits, target, _, _ = case("odd sizes")
    logits = logits.bfloat16().requires_grad_()
    exact = logits.detach().double().requires_grad_()
    for inputs, scores in ((logits, upsampled.pixel_scores), (exact, expected)):
        lse, own = scores(inputs, target, None, 0)
        ((lse - own) * (target != IGNORE)).sum().backward()
    assert logits.grad.dtype == torch.bfloat16
    error = (logits.grad.double() - exact.grad).norm() / exact.grad.norm()
    assert error < 2**-7  # the interpreter cuts bfloat16 off where GPUs round


@pytest.mark.parametrize("name", CASES)
def test_largest_channel(name):
    logits, target, _, _ = case(name)
    up = functional.interpolate(logits, target.shape[-2:], mode="bilinear", align_corners=False)
    assert torch.equal(upsampled.upsampled_argmax(logits, target.shape[-2:]), up.argmax(1))


def test_the_first_of_equal_channels_is_the_largest():
    logits = torch.zeros(1, 70, 1, 1)
    logits[:, [3, 66]] = 1.0
    assert upsampled.upsampled_argmax(logits, (2, 2)).unique().tolist() == [3]


def test_repeated_bit_for_bit():
    logits, target, offset, grouped = case("odd sizes")
    runs = []
    for _ in range(2):
        one = logits.clone().requires_grad_()
        lse, own = upsampled.pixel_scores(one, target, offset, grouped)
        (lse - own).sum().backward()
        runs.append((lse, own, one.grad))
    assert all(torch.equal(a, b) for a, b in zip(*runs, strict=True))
