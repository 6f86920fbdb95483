"""consistency_loss, Eqn 14-15, against a loop over pixels and their neighbours."""

import math

import loop_losses as loops
import pytest
import torch

from faircl import losses

FORMS = ["smooth", "literal"]


def consistency_loss(image, logits, *settings, valid=None, **named):
    """The loss with every pixel valid, unless told otherwise."""
    everywhere = torch.ones(logits[:, 0].shape, dtype=torch.bool)
    return losses.consistency_loss(image, logits, everywhere if valid is None else valid, *settings, **named)


def case(seed=0, size=(4, 5), stride=2, classes=3):
    gen = torch.Generator().manual_seed(seed)
    image = torch.rand((2, 3, size[0] * stride, size[1] * stride), generator=gen).double()
    return image, torch.randn((2, classes, *size), generator=gen).double()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("window", [3, 5])
@pytest.mark.parametrize("size", [(4, 5), (3, 3), (2, 6), (1, 4), (5, 1), (1, 1)])
def test_equals_the_loop(size, window, form):
    image, logits = case(size=size)
    value = consistency_loss(image, logits, 0.3, 0.5, window, form)
    assert value.shape == ()
    assert float(value) == pytest.approx(loops.consistency(image, logits, 0.3, 0.5, window, form), abs=1e-6)


@pytest.mark.parametrize("form", FORMS)
def test_image_of_uneven_stride_equals_the_loop(form):
    image, logits = case(size=(3, 4))
    image = torch.rand((2, 3, 10, 11), generator=torch.Generator().manual_seed(1)).double()
    expected = loops.consistency(image, logits, 0.3, 0.5, 3, form)
    assert float(consistency_loss(image, logits, 0.3, 0.5, 3, form)) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("window", [3, 5])
def test_gradient(window, form):
    image, logits = case(size=(3, 3))
    assert loops.grad_ok(lambda z: consistency_loss(image, z, 0.3, 0.5, window, form), logits)


@pytest.mark.parametrize("form", FORMS)
def test_a_single_pixel_has_no_neighbour(form):
    image, logits = case(size=(1, 1))
    logits.requires_grad_()
    value = consistency_loss(image, logits, 0.1, 0.5, 3, form)
    assert value.item() == 0
    value.backward()
    assert logits.grad.eq(0).all()


def test_two_pixels_by_hand():
    # Equal colours; predictions (1, 0) and (0, 1), so ‖Δy‖² = 2, in both directions of the pair.
    image = torch.full((1, 3, 2, 1), 0.4).double()
    logits = torch.tensor([[[[50.0], [-50.0]], [[-50.0], [50.0]]]]).double()
    kernel = math.exp(-2 / (2 * 0.5**2))
    assert float(consistency_loss(image, logits, 0.1, 0.5)) == pytest.approx(1 - kernel, abs=1e-9)
    assert float(consistency_loss(image, logits, 0.1, 0.5, form="literal")) == pytest.approx(kernel, abs=1e-9)


def test_constant_predictions():
    image, logits = case()
    constant = logits[..., :1, :1].expand_as(logits)
    assert float(consistency_loss(image, constant, 0.3, 0.5)) == pytest.approx(0, abs=1e-15)
    flat = torch.full_like(image, 0.5)
    # As printed the loss is largest there: every pair of equal colour and equal prediction counts one.
    assert float(consistency_loss(flat, constant, 0.3, 0.5, form="literal")) == pytest.approx(1)
    assert float(consistency_loss(flat, logits, 0.3, 0.5, form="literal")) < 1


def test_smooth_spares_colour_edges():
    image = torch.zeros(1, 3, 4, 4).double()
    image[..., 2:] = 1.0
    logits = torch.randn((1, 3, 1, 1), generator=torch.Generator().manual_seed(0)).double().repeat(1, 1, 4, 4)
    logits[..., 2:] = -logits[..., 2:]
    along = consistency_loss(image, logits, 0.1, 0.5)
    across = consistency_loss(image.transpose(2, 3).contiguous(), logits, 0.1, 0.5)
    assert float(along) < 1e-9
    assert float(across) > 0.01


@pytest.mark.parametrize(("form", "grows"), [("smooth", False), ("literal", True)])
def test_descent_smooths_or_drives_apart(form, grows):
    image = torch.full((1, 3, 1, 2), 0.5).double()
    logits = torch.tensor([[[[0.3, -0.3]], [[-0.3, 0.3]]]]).double().requires_grad_()
    gap = (logits.softmax(1)[..., 0] - logits.softmax(1)[..., 1]).norm().item()
    optimizer = torch.optim.SGD([logits], lr=0.3)
    for _ in range(200):
        optimizer.zero_grad()
        consistency_loss(image, logits, 0.1, 0.5, form=form).backward()
        optimizer.step()
    now = (logits.softmax(1)[..., 0] - logits.softmax(1)[..., 1]).norm().item()
    assert now > 1.0 if grows else now < 0.05 * gap


def test_no_gradient_needed_by_the_image():
    image, logits = case()
    consistency_loss(image, logits.requires_grad_(), 0.3, 0.5).backward()
    assert image.grad is None
    assert logits.grad.ne(0).any()


@pytest.mark.parametrize("size", [(4, 3), (3, 4), (1, 2), (2, 1), (9, 2)])
def test_a_window_wider_than_the_map_equals_the_loop(size):
    image, logits = case(size=size)
    expected = loops.consistency(image, logits, 0.3, 0.5, 9)
    assert float(consistency_loss(image, logits, 0.3, 0.5, 9)) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("form", FORMS)
def test_pairs_count_only_where_both_ends_are_valid(form):
    """Padding on the right: the loss is that of the map without it."""
    image, logits = case(size=(4, 6))
    valid = torch.zeros((2, 4, 6), dtype=torch.bool)
    valid[:, :, :4] = True
    whole = consistency_loss(image, logits, 0.3, 0.5, 3, form, valid=valid)
    part = consistency_loss(image[..., :8], logits[..., :4], 0.3, 0.5, 3, form)
    assert float(whole) == pytest.approx(float(part), abs=1e-12)
    nothing = consistency_loss(image, logits.requires_grad_(), 0.3, 0.5, 3, form, valid=torch.zeros_like(valid))
    nothing.backward()
    assert float(nothing.detach()) == 0
    assert logits.grad.abs().sum() == 0
