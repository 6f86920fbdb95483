"""Kernels of upsampled logits over any shape, scale, ignore pattern and weight, against the plain path."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from faircl.labels import IGNORE
from faircl.losses import cross_entropy
from faircl.losses import pixel_scores as scores

upsampled = pytest.importorskip("faircl.kernels.upsampled_logits", reason="Triton comes with torch for Linux alone")

SIDE = st.integers(1, 3)


@st.composite
def cases(draw):
    """Logits, labels, an offset or none, and a group."""
    images, classes = draw(st.integers(1, 2)), draw(st.sampled_from([1, 2, 5, 33, 40]))
    small, large = (draw(SIDE), draw(SIDE)), (draw(st.integers(1, 7)), draw(st.integers(1, 7)))
    gen = torch.Generator().manual_seed(draw(st.integers(0, 9999)))
    logits = draw(st.sampled_from([0.1, 3.0, 60.0])) * torch.randn((images, classes, *small), generator=gen)
    target = torch.randint(classes, (images, *large), generator=gen)
    target[torch.rand(target.shape, generator=gen) < draw(st.sampled_from([0.0, 0.3, 1.0]))] = IGNORE
    offset = torch.randn(classes, generator=gen) if draw(st.booleans()) else None
    layout = draw(st.sampled_from([torch.contiguous_format, torch.channels_last]))
    return logits.contiguous(memory_format=layout), target, offset, draw(st.integers(0, classes)), gen


def both_losses(case, monkeypatch, **weights):
    """Loss and gradient by the plain path in float64, and by the kernel."""
    logits, target, offset, grouped, _ = case
    found = []
    for number, kernel in ((torch.float64, False), (torch.float32, True)):
        one = logits.to(number).requires_grad_()
        with monkeypatch.context() as patch:
            if kernel:
                patch.setattr(cross_entropy, "MAX_CPU_LOGITS", -1)
                patch.setattr(cross_entropy, "pixel_scores", upsampled.pixel_scores)
            loss = cross_entropy.upsampled_cross_entropy(
                one,
                target,
                offset=None if offset is None else offset.to(number),
                grouped=grouped,
                **{
                    name: value.to(number) if isinstance(value, torch.Tensor) else value
                    for name, value in weights.items()
                },
            )
        loss.backward()
        found.append((loss.detach().double(), one.grad.double()))
    return found


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(cases(), st.booleans(), st.booleans(), st.sampled_from([0.0, 2.0]))
def test_cross_entropy_equals_the_plain_path(case, by_class, by_pixel, focal):
    logits, target, _, _, gen = case
    weights = {"focal": focal}
    if by_class:
        weights["class_weight"] = torch.rand(logits.shape[1], generator=gen) + 0.1
    if by_pixel:
        weights["pixel_weight"] = torch.rand(target.shape, generator=gen)
    with pytest.MonkeyPatch.context() as monkeypatch:
        (loss, grad), (ours, our_grad) = both_losses(case, monkeypatch, **weights)
    assert torch.allclose(ours, loss, rtol=1e-5, atol=1e-5)
    assert torch.allclose(our_grad, grad, rtol=1e-4, atol=1e-5 * (1 + grad.abs().max().item()))


def assert_sigmoid_scores(case):
    """Scores of sigmoids and their gradient are those of softplus in float64."""
    logits, target, _, _, _ = case
    one, exact = logits.clone().requires_grad_(), logits.double().requires_grad_()
    total, own = upsampled.pixel_scores(one, target, sigmoid=True)
    up = torch.nn.functional.interpolate(exact, target.shape[-2:], mode="bilinear", align_corners=False)
    valid = target != IGNORE
    wanted = torch.nn.functional.softplus(up).sum(1)
    score = up.gather(1, target.where(valid, 0)[:, None])[:, 0].where(valid, 0.0)
    ((total - own) * valid).sum().backward()
    ((wanted - score) * valid).sum().backward()
    assert torch.allclose(total.double(), wanted, rtol=1e-5, atol=1e-5)
    assert torch.allclose(own.double(), score, rtol=1e-5, atol=1e-5)
    assert torch.allclose(one.grad.double(), exact.grad, rtol=1e-4, atol=1e-5)


def test_sigmoid_scores_of_one_case():
    gen = torch.Generator().manual_seed(0)
    target = torch.randint(5, (2, 5, 4), generator=gen)
    target[0, :2] = IGNORE
    assert_sigmoid_scores((3 * torch.randn((2, 5, 3, 2), generator=gen), target, None, 0, gen))


@pytest.mark.slow
@settings(max_examples=6, deadline=None)
@given(cases())
def test_sigmoid_scores_equal_softplus(case):
    assert_sigmoid_scores(case)


@settings(max_examples=10, deadline=None)
@given(cases())
def test_the_largest_channel_is_the_plain_path_s(case):
    logits, target, _, _, _ = case
    found = upsampled.upsampled_argmax(logits, target.shape[-2:])
    up = torch.nn.functional.interpolate(logits.double(), target.shape[-2:], mode="bilinear", align_corners=False)
    best = up.gather(1, found[:, None])[:, 0]
    # Of two nearly equal channels either may be the largest.
    assert torch.allclose(best, up.amax(1), rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@settings(max_examples=6, deadline=None)
@given(cases())
def test_gradients_are_repeated_bit_for_bit(case):
    logits, target, offset, grouped, _ = case
    runs = []
    for _ in range(2):
        one = logits.clone().requires_grad_()
        total, own = upsampled.pixel_scores(one, target, offset, grouped)
        (total - own).where(target != IGNORE, 0.0).sum().backward()
        runs.append((total, own, one.grad))
    assert all(torch.equal(a, b) for a, b in zip(*runs, strict=True))


@pytest.mark.slow
def test_many_classes_a_large_scale_and_several_parts(monkeypatch):
    monkeypatch.setattr(upsampled, "MAX_CORNER_SUMS", 1)  # an image at a time
    logits = torch.randn(3, 1030, 1, 2, generator=torch.Generator().manual_seed(0)).requires_grad_()
    exact = logits.detach().double().requires_grad_()
    target = torch.tensor([1029, 0, IGNORE] * 22).expand(3, 1, 66)
    found, wanted = upsampled.pixel_scores(logits, target), scores.pixel_scores_per_image(exact, target)
    for one, other in zip(found, wanted, strict=True):
        assert torch.allclose(one.double(), other, atol=1e-5)
    for total, own in (found, wanted):
        (total - 2 * own).sum().backward()
    assert torch.allclose(logits.grad.double(), exact.grad, rtol=1e-4, atol=1e-5)
