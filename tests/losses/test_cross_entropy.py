"""upsampled_cross_entropy against a loop over pixels with its own bilinear interpolation."""

import math

import loop_losses as loops
import pytest
import torch
from torch.nn import functional

from faircl.labels import IGNORE
from faircl.losses import cross_entropy, upsampled_cross_entropy

CLASSES = 4
OPTIONS = {
    "plain": {},
    "class_weight": {"class_weight": torch.tensor([0.3, 1.0, 2.5, 0.0]).double()},
    "offset": {"offset": torch.tensor([-2.0, 0.5, 0.0, 1.5]).double()},
    "pixel_weight": {"pixel_weight": torch.linspace(0, 2, 2 * 7 * 9).view(2, 7, 9).double()},
    "grouped": {"grouped": 3},
}
OPTIONS["all"] = {k: v for options in list(OPTIONS.values()) for k, v in options.items()}


def case(seed=0, size=(7, 9), coarse=(3, 4)):
    gen = torch.Generator().manual_seed(seed)
    logits = torch.randn((2, CLASSES, *coarse), generator=gen).double() * 2
    target = torch.randint(CLASSES - 1, (2, *size), generator=gen)  # class 3 is absent
    target[torch.rand((2, *size), generator=gen) < 0.3] = IGNORE
    target[0, 0, 0] = 0
    return logits, target


@pytest.mark.parametrize("name", OPTIONS)
def test_equals_the_loop(name):
    logits, target = case()
    expected = loops.cross_entropy(logits, target, **OPTIONS[name])
    assert expected > 0.1
    assert float(upsampled_cross_entropy(logits, target, **OPTIONS[name])) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("name", OPTIONS)
def test_image_by_image_equals_the_loop(name, monkeypatch):
    monkeypatch.setattr(cross_entropy, "MAX_CPU_LOGITS", 0)
    logits, target = case()
    logits.requires_grad_()
    found = upsampled_cross_entropy(logits, target, **OPTIONS[name])
    assert "Scores" in names(found.grad_fn)
    assert found.item() == pytest.approx(loops.cross_entropy(logits, target, **OPTIONS[name]), abs=1e-6)


def names(node):
    """Names of all functions behind a result."""
    return " ".join([node.name(), *(names(one) for one, _ in node.next_functions if one is not None)])


@pytest.mark.parametrize("name", OPTIONS)
def test_gradient(name):
    logits, target = case(size=(4, 5), coarse=(2, 3))
    options = {k: v[:, :4, :5] if k == "pixel_weight" else v for k, v in OPTIONS[name].items()}
    assert loops.grad_ok(lambda z: upsampled_cross_entropy(z, target, **options), logits)


@pytest.mark.parametrize("coarse", [(7, 9), (7, 3), (1, 1), (14, 5)])
def test_other_sizes_equal_the_loop(coarse):
    logits, target = case(1, coarse=coarse)
    expected = loops.cross_entropy(logits, target)
    assert float(upsampled_cross_entropy(logits, target)) == pytest.approx(expected, abs=1e-6)


def test_two_by_two_by_hand():
    # Probabilities 3/4 and 1/4 at every pixel; one pixel of class 0, two of class 1, one ignored.
    logits = torch.tensor([math.log(3.0), 0.0], dtype=torch.float64).view(1, 2, 1, 1)
    target = torch.tensor([[[0, 1], [1, IGNORE]]])
    expected = (-math.log(0.75) - 2 * math.log(0.25)) / 3
    assert float(upsampled_cross_entropy(logits, target)) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("name", OPTIONS)
def test_all_ignored_is_zero_with_finite_gradients(name):
    logits, target = case()
    logits.requires_grad_()
    loss = upsampled_cross_entropy(logits, torch.full_like(target, IGNORE), **OPTIONS[name])
    loss.backward()
    assert loss.item() == 0
    assert logits.grad.eq(0).all()


@pytest.mark.parametrize("grouped", [0, 2])
def test_ignored_pixels_neither_count_nor_pull(grouped):
    logits, target = case(size=(3, 4))
    logits.requires_grad_()
    target[1] = IGNORE
    loss = upsampled_cross_entropy(logits, target, grouped=grouped)
    loss.backward()
    assert logits.grad[1].eq(0).all()
    assert logits.grad[0].ne(0).any()
    alone = upsampled_cross_entropy(logits[:1], target[:1], grouped=grouped)
    torch.testing.assert_close(loss, alone)


def test_weights_are_not_divided_out_again():
    logits, target = case()
    plain = upsampled_cross_entropy(logits, target)
    tripled = upsampled_cross_entropy(logits, target, class_weight=torch.full((CLASSES,), 3.0))
    torch.testing.assert_close(tripled, 3 * plain)


def test_an_absent_class_still_loses_probability():
    logits, target = case(size=(3, 4))
    logits.requires_grad_()
    upsampled_cross_entropy(logits, target).backward()
    assert (logits.grad[:, 3].sum() > 0).all()


def test_group_of_one_is_plain_and_group_of_all_costs_background_nothing():
    logits, target = case()
    plain = upsampled_cross_entropy(logits, target)
    torch.testing.assert_close(upsampled_cross_entropy(logits, target, grouped=1), plain)
    background = torch.zeros_like(target)
    assert abs(float(upsampled_cross_entropy(logits, background, grouped=CLASSES))) < 1e-12


def test_grouping_is_the_sum_of_the_old_probabilities_only_for_background():
    logits = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64).log().view(1, 4, 1, 1)
    for label, likelihood in ((0, 0.3), (1, 0.2), (2, 0.3), (3, 0.4)):
        loss = upsampled_cross_entropy(logits, torch.full((1, 2, 2), label), grouped=2)
        assert float(loss) == pytest.approx(-math.log(likelihood), abs=1e-9)


def test_agrees_with_torch_after_upsampling():
    logits, target = case()
    up = functional.interpolate(logits, target.shape[-2:], mode="bilinear", align_corners=False)
    expected = functional.cross_entropy(up, target, ignore_index=IGNORE)
    torch.testing.assert_close(upsampled_cross_entropy(logits, target), expected)


def test_a_label_beyond_the_channels_is_an_error():
    logits, target = case()
    target[0, 0, 0] = CLASSES
    with pytest.raises((IndexError, RuntimeError)):
        upsampled_cross_entropy(logits, target)
