"""L_iou against a plain loop and hand-made cases, its gradient and where its minimum lies."""

import math

import pytest
import torch

from faircl.labels import IGNORE
from faircl.losses.iou import iou_loss, label_shares


def drawn(seed=0, classes=4):
    """Probabilities and targets (2, K, 3, 3), both 0 at some cells."""
    gen = torch.Generator().manual_seed(seed)
    shape = 2, classes, 3, 3
    known = (torch.rand((2, 1, 3, 3), generator=gen) < 0.8).double()
    p, t = (torch.randn(shape, generator=gen, dtype=torch.float64).mul(2).softmax(1) for _ in range(2))
    return p * known, t * known


def by_loop(p, t):
    logs = []
    for c in range(p.shape[1]):
        pairs = list(zip(p[:, c].flatten().tolist(), t[:, c].flatten().tolist(), strict=True))
        if sum(target for _, target in pairs) >= 1:
            logs.append(math.log((sum(map(min, pairs)) + 0.5) / (sum(map(max, pairs)) + 0.5)))
    return -sum(logs) / len(logs) if logs else 0.0


@pytest.mark.parametrize("seed", range(4))
def test_it_equals_the_loop(seed):
    p, t = drawn(seed)
    assert iou_loss(p, t).item() == pytest.approx(by_loop(p, t), rel=1e-12)


def test_by_hand():
    """Class 0: two cells, one and a half of them found; class 1: two cells, all found, half a cell too much."""
    t = torch.tensor([[1.0, 1, 0, 0], [0, 0, 1, 1]]).view(1, 2, 2, 2)
    p = torch.tensor([[1.0, 0.5, 0, 0], [0, 0.5, 1, 1]]).view(1, 2, 2, 2)
    expected = -(math.log(2 / 2.5) + math.log(2.5 / 3)) / 2
    assert iou_loss(p, t).item() == pytest.approx(expected, rel=1e-6)


def test_gradients():
    p, t = drawn(5)
    assert torch.autograd.gradcheck(lambda x: iou_loss(x, t), p.requires_grad_())


def test_hard_labels_have_the_soft_jaccard_index():
    """At hard labels Σ min and Σ max are Σ t·p and Σ (t + p − t·p)."""
    p, t = drawn(6)
    t = torch.nn.functional.one_hot(t.argmax(1), t.shape[1]).permute(0, 3, 1, 2).double()
    both = t * p
    iou = (both.sum((0, 2, 3)) + 0.5) / ((t + p - both).sum((0, 2, 3)) + 0.5)
    shown = t.sum((0, 2, 3)) >= 1
    assert iou_loss(p, t).item() == pytest.approx(-iou.log()[shown].mean().item(), rel=1e-9)


def test_soft_labels_are_its_minimum():
    """The product form is lower elsewhere: at p one on the likeliest class."""
    _, t = drawn(7)
    assert iou_loss(t, t).item() == pytest.approx(0, abs=1e-12)
    for seed in range(5):
        assert iou_loss(drawn(seed)[0], t) > 0


def test_a_class_that_is_found_less_has_the_larger_gradient():
    """Two classes of one size: one more point of the class at 20 % counts four times as much as at 80 %."""
    t = torch.zeros(1, 2, 20, 100)
    t[:, 0, :10] = t[:, 1, 10:] = 1
    p = (t * torch.tensor([0.2, 0.8])[:, None, None]).requires_grad_()
    (gradient,) = torch.autograd.grad(iou_loss(p, t), p)
    found = gradient[t > 0].view(2, -1).mean(1)
    assert (found < 0).all()
    assert (found[0] / found[1]).item() == pytest.approx(4, rel=0.01)


def test_a_class_of_less_than_a_cell_is_left_out():
    p, t = torch.full((1, 2, 2, 2), 0.5), torch.zeros(1, 2, 2, 2)
    t[:, 0], t[0, 1, 0, 0] = 1, 0.9
    assert iou_loss(p, t).item() == pytest.approx(-math.log(2.5 / 4.5), rel=1e-6)
    t[0, 1, 0, 0] = 1.0
    assert iou_loss(p, t).item() == pytest.approx(-(math.log(2.5 / 4.5) + math.log(1 / 3)) / 2, rel=1e-6)


def test_nothing_known_gives_zero_and_no_gradient():
    p = torch.zeros(1, 3, 2, 2, requires_grad=True)
    loss = iou_loss(p, torch.zeros(1, 3, 2, 2))
    loss.backward()
    assert loss == 0
    assert (p.grad == 0).all()


@pytest.mark.parametrize("side", [1, 2, 4])
def test_shares_of_labels_are_counted_exactly(side):
    gen = torch.Generator().manual_seed(side)
    labels = torch.randint(6, (2, 3, side, 5, side), generator=gen)
    labels = labels.where(labels < 5, IGNORE)
    shares = label_shares(labels, 5)
    assert shares.shape == (2, 6, 3, 5)
    for b, i, j in torch.ones(2, 3, 5).nonzero().tolist():
        cell = labels[b, i, :, j].flatten().tolist()
        expected = [cell.count(c) / side**2 for c in (0, 1, 2, 3, 4, IGNORE)]
        assert shares[b, :, i, j].tolist() == expected
