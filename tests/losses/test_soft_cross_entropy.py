"""Cross-entropy with soft labels against a plain loop, and where its minimum lies."""

import math

import pytest
import torch

from faircl.losses.soft_cross_entropy import marked_pixels, soft_cross_entropy_sum

B, C, H, W, N = 2, 5, 2, 3, 3


def drawn(seed=0, dtype=torch.float64):
    """Logits, kept classes, their shares, areas of cells and class weights."""
    gen = torch.Generator().manual_seed(seed)
    logits = torch.randn((B, C, H, W), generator=gen, dtype=dtype)
    classes = torch.rand((B, H, W, C), generator=gen).argsort(3)[..., :N]
    shares = torch.rand((B, H, W, N), generator=gen, dtype=dtype)
    pixels = torch.randint(5, (B, H, W), generator=gen).to(dtype)
    weight = torch.rand(C, generator=gen, dtype=dtype) + 0.1
    return logits, classes, shares / shares.sum(3, keepdim=True), pixels, weight


def by_loop(logits, classes, shares, pixels, weight):
    total = 0.0
    for b, i, j in torch.ones(B, H, W).nonzero().tolist():
        z = logits[b, :, i, j].tolist()
        log_sum = math.log(sum(math.exp(one) for one in z))
        entropy = cell_weight = 0.0
        for c, share in zip(classes[b, i, j].tolist(), shares[b, i, j].tolist(), strict=True):
            entropy -= share * (z[c] - log_sum)
            cell_weight += share * (1.0 if weight is None else weight[c].item())
        total += pixels[b, i, j].item() * cell_weight * entropy
    return total


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_it_equals_the_loop(seed, weighted):
    *given, weight = drawn(seed)
    weight = weight if weighted else None
    assert soft_cross_entropy_sum(*given, weight).item() == pytest.approx(by_loop(*given, weight), rel=1e-12)


@pytest.mark.parametrize("weighted", [True, False])
def test_gradients(weighted):
    logits, *rest, weight = drawn(4)
    rest.append(weight if weighted else None)
    assert torch.autograd.gradcheck(lambda z: soft_cross_entropy_sum(z, *rest), logits.requires_grad_())


def test_the_minimum_is_at_the_soft_label_whatever_the_class_weights():
    """A weight inside the sum over classes would move it to p ∝ w·q."""
    q = torch.tensor([0.5, 0.3, 0.15, 0.04, 0.01], dtype=torch.float64)
    classes, pixels = torch.arange(5).view(1, 1, 1, 5), torch.ones((1, 1, 1), dtype=torch.float64)
    weight = torch.tensor([0.2, 5.0, 1.0, 3.0, 0.5], dtype=torch.float64)
    logits = q.log().view(1, 5, 1, 1).requires_grad_()
    least = soft_cross_entropy_sum(logits, classes, q.view(1, 1, 1, 5), pixels, weight)
    (gradient,) = torch.autograd.grad(least, logits)
    assert gradient.abs().max() < 1e-12
    for seed in range(5):
        moved = logits + 0.1 * torch.randn(logits.shape, generator=torch.Generator().manual_seed(seed))
        assert soft_cross_entropy_sum(moved, classes, q.view(1, 1, 1, 5), pixels, weight) > least


def test_a_class_that_is_not_kept_is_pushed_down():
    logits = torch.zeros((1, 3, 1, 1), requires_grad=True)
    one = torch.ones((1, 1, 1))
    soft_cross_entropy_sum(logits, torch.tensor([[[[1]]]]), one[..., None], one).backward()
    torch.testing.assert_close(logits.grad.flatten(), torch.tensor([1 / 3, -2 / 3, 1 / 3]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_summed_in_single_precision(dtype):
    logits, classes, shares, pixels, weight = drawn(5, torch.float32)
    found = soft_cross_entropy_sum(logits.to(dtype), classes, shares, pixels, weight)
    assert found.dtype == torch.float32
    exact = by_loop(logits.to(dtype).double(), classes, shares, pixels, weight)
    assert found.item() == pytest.approx(exact, rel=1e-5)


@pytest.mark.parametrize(("size", "coarse"), [((8, 12), (2, 3)), ((9, 6), (3, 2)), ((4, 4), (4, 4)), ((6, 6), (1, 1))])
def test_marked_pixels_are_counted_per_cell(size, coarse):
    mask = torch.rand((2, *size), generator=torch.Generator().manual_seed(6)) > 0.5
    found = marked_pixels(mask, coarse)
    along, across = size[0] // coarse[0], size[1] // coarse[1]
    counts = torch.zeros((2, *coarse))
    for b, i, j in mask.nonzero().tolist():
        counts[b, i // along, j // across] += 1
    torch.testing.assert_close(found, counts)


def test_marked_pixels_of_uneven_cells_have_the_right_total():
    """Cells of 13 pixels in 4 overlap: a mask of ones has the area of the image, and none has nothing."""
    assert marked_pixels(torch.ones((1, 13, 11), dtype=torch.bool), (4, 3)).sum().item() == pytest.approx(143)
    assert not marked_pixels(torch.zeros((1, 13, 11), dtype=torch.bool), (4, 3)).any()
