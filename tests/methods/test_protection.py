"""Protection of old classes that look like new ones: its offset, by hand, and what it does to a gradient."""

import math

import pytest
import torch
import torch.nn.functional as F

from faircl.methods.faircl.protection import protection


def test_the_offset_by_hand():
    taken = torch.tensor([0.5, 0.0, 0.8, 1.0], dtype=torch.float64)
    offset = protection(taken, classes=6, strength=2.0, background=True)
    assert offset.tolist() == pytest.approx([0, 0, 2 * math.log(0.2), 2 * math.log(0.05), 0, 0])
    assert taken.tolist() == [0.5, 0.0, 0.8, 1.0]


def test_without_background_the_first_class_is_protected_too():
    offset = protection(torch.tensor([0.5, 0.0]), classes=3, strength=1.0, background=False)
    assert offset.tolist() == pytest.approx([math.log(0.5), 0, 0])


def test_a_protected_class_is_lowered_less_and_the_new_one_still_learns():
    logits = torch.tensor([[0.0, 2.0, 2.0, 1.0]], requires_grad=True)  # background, coat's look-alike, another, coat
    offset = protection(torch.tensor([0.0, 0.8, 0.0]), classes=4, strength=3.0, background=True)
    (plain,) = torch.autograd.grad(F.cross_entropy(logits, torch.tensor([3])), logits)
    (kept,) = torch.autograd.grad(F.cross_entropy(logits + offset, torch.tensor([3])), logits)
    assert 0 < kept[0, 1] < 0.02 * plain[0, 1]
    assert kept[0, 2] > plain[0, 2]
    assert kept[0, 3] < 0
