"""The backward pass of consistency_loss against autograd of loops over pixels and neighbours."""

import loop_losses as loops
import pytest
import torch

from faircl.losses import consistency_loss

FORMS = ["smooth", "literal"]
SIZES = [(4, 5), (1, 1), (1, 5), (5, 1), (2, 2), (3, 2)]
SIGMAS = (0.3, 0.5)


def case(size=(4, 5), classes=4, seed=0, stride=2):
    """Noise, with a third of the pixels void."""
    gen = torch.Generator().manual_seed(seed)
    image = torch.rand((2, 3, size[0] * stride, size[1] * stride), generator=gen).double()
    logits = torch.randn((2, classes, *size), generator=gen).double()
    return image, logits, torch.rand((2, *size), generator=gen) > 0.33


def reference(image, logits, valid, window=3, form="smooth"):
    """Eqn 14-15 pixel by pixel and neighbour by neighbour, for autograd to differentiate."""
    reach, (h, w) = window // 2, logits.shape[-2:]
    values = []
    for b in range(len(logits)):
        colour = torch.tensor([loops.area_pool(plane, h, w) for plane in image[b].tolist()], dtype=torch.float64)
        y = torch.stack([logits[b, :, i, j].exp() / logits[b, :, i, j].exp().sum() for i in range(h) for j in range(w)])
        for i in range(h):
            for j in range(w):
                for k in range(max(i - reach, 0), min(i + reach + 1, h)):
                    for m in range(max(j - reach, 0), min(j + reach + 1, w)):
                        if (k, m) == (i, j) or not (valid[b, i, j] and valid[b, k, m]):
                            continue
                        alike = torch.exp(-(colour[:, i, j] - colour[:, k, m]).square().sum() / (2 * SIGMAS[0] ** 2))
                        agree = torch.exp(-(y[i * w + j] - y[k * w + m]).square().sum() / (2 * SIGMAS[1] ** 2))
                        values.append(alike * (1 - agree) if form == "smooth" else alike * agree)
    return sum(values) / len(values) if values else 0 * logits.sum()


def ours(image, logits, valid, window=3, form="smooth"):
    return consistency_loss(image, logits, valid, *SIGMAS, window, form)


def gradient(function, image, logits, *rest):
    leaf = logits.detach().requires_grad_()
    value = function(image, leaf, *rest)
    return value.item(), torch.autograd.grad(value, leaf)[0]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("window", [3, 5])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("void", [False, True])
def test_value_and_gradient_equal_the_loops(size, window, form, void):
    image, logits, valid = case(size)
    valid = valid if void else torch.ones_like(valid)
    value, found = gradient(ours, image, logits, valid, window, form)
    expected_value, expected = gradient(reference, image, logits, valid, window, form)
    assert value == pytest.approx(expected_value, abs=1e-9)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-10)
    if size == (4, 5):
        assert value > 0.01
        assert found.abs().max() > 1e-4


def test_the_reference_is_the_other_loop():
    image, logits, valid = case()
    for form in FORMS:
        value = reference(image, logits, torch.ones_like(valid), 5, form).item()
        assert value == pytest.approx(loops.consistency(image, logits, *SIGMAS, 5, form))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("window", [3, 5])
@pytest.mark.parametrize("size", [(3, 4), (1, 1), (1, 5)])
def test_finite_differences(size, window, form):
    image, logits, valid = case(size, classes=3, seed=2)
    assert loops.grad_ok(lambda z: ours(image, z, valid, window, form), logits)


@pytest.mark.parametrize("form", FORMS)
def test_the_loss_passes_on_what_it_is_given(form):
    """Scaling the loss scales its gradient."""
    image, logits, valid = case()
    _, plain = gradient(ours, image, logits, valid, 3, form)
    _, weighed = gradient(lambda *inputs: -2.5 * ours(*inputs), image, logits, valid, 3, form)
    torch.testing.assert_close(weighed, -2.5 * plain)


@pytest.mark.parametrize("form", FORMS)
def test_single_precision_equals_double(form):
    image, logits, valid = case((9, 11), classes=20)
    value, found = gradient(ours, image.float(), logits.float(), valid, 3, form)
    expected_value, expected = gradient(ours, image, logits, valid, 3, form)
    assert found.dtype == torch.float32
    assert value == pytest.approx(expected_value, rel=1e-5)
    assert (found - expected).norm() < 1e-5 * expected.norm()


LAYOUTS = {
    "channels last": lambda maps: maps.contiguous(memory_format=torch.channels_last),
    "permuted": lambda maps: maps.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2),
    "transposed": lambda maps: maps.transpose(2, 3).contiguous().transpose(2, 3),
    "every second": lambda maps: torch.stack([maps, 0 * maps], -1)[..., 0],
    "a part of a larger map": lambda maps: torch.nn.functional.pad(maps, (1, 2, 3, 1))[..., 3:-1, 1:-2],
    "expanded": lambda maps: maps[:1].expand_as(maps),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_layout(layout, form):
    image, logits, valid = case()
    turned = LAYOUTS[layout](logits)
    picture = LAYOUTS[layout](image)
    mask = valid.transpose(1, 2).contiguous().transpose(1, 2)
    assert not any(value.is_contiguous() for value in (turned, picture, mask))
    value, expected = gradient(ours, picture.contiguous(), turned.contiguous().clone(), valid, 3, form)
    found_value, found = gradient(ours, picture, turned, mask, 3, form)
    assert found_value == pytest.approx(value, rel=1e-12)
    torch.testing.assert_close(found, expected)


def test_logits_alone_have_a_gradient():
    image, logits, valid = case()
    image.requires_grad_()
    logits.requires_grad_()
    ours(image, logits, valid).backward()
    assert image.grad is None
    near = torch.nn.functional.max_pool2d(valid.double(), 3, 1, 1).bool()
    moved = logits.grad.ne(0).any(1)
    assert moved.any()
    assert not (moved & ~valid).any()
    assert not (moved & ~near).any()


def test_void_pixels_may_hold_anything():
    image, logits, valid = case()
    other = torch.where(valid[:, None], logits, 7 * torch.randn(logits.shape).double())
    found, expected = (gradient(ours, image, z, valid) for z in (other, logits))
    assert found[0] == pytest.approx(expected[0], rel=1e-12)
    torch.testing.assert_close(found[1], expected[1])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("size", SIZES)
def test_no_valid_pair(size, form):
    image, logits, valid = case(size)
    alone = torch.zeros_like(valid)
    alone[0, 0, 0] = True  # one pixel alone has no pair
    for mask in (torch.zeros_like(valid), alone):
        value, found = gradient(ours, image, logits, mask, 5, form)
        assert value == 0
        assert found.eq(0).all()


def test_inputs_are_left_as_they_were():
    inputs = case()
    copies = [value.clone() for value in inputs]
    gradient(ours, *inputs)
    assert all(torch.equal(value, copy) for value, copy in zip(inputs, copies, strict=True))
