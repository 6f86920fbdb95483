"""Attention transfer against plain loops, and where stages end."""

import pytest
import torch

from faircl.labels import IGNORE
from faircl.losses.attention_transfer import attention_transfer, stage_ends


def attentions(images=3, heads=2, queries=12, keys=5, seed=0):
    gen = torch.Generator().manual_seed(seed)
    return torch.randn((images, heads, queries, keys), generator=gen, dtype=torch.float64).softmax(-1)


def by_loops(new, old, labels, first, classes):
    images = []
    for b in range(len(new)):
        found = []
        for c in range(first, classes):
            pixels = [q for q in range(labels.shape[1]) if labels[b, q] == c]
            if pixels:
                for h in range(new.shape[1]):
                    rows = [sum(a[b, h, q] for q in pixels) / len(pixels) for a in (new, old)]
                    found.append((rows[0] - rows[1]).square().sum().sqrt())
        if found:
            images.append(sum(found) / len(found))
    return sum(images) / len(images) if images else new.new_zeros(())


def mixed(images=3, queries=12):
    """Image 0 shows classes 0, 1 and 4 and void, image 1 class 2 alone, image 2 background and void alone."""
    labels = torch.zeros((images, queries), dtype=torch.int64)
    labels[0, 2:5], labels[0, 5], labels[0, 6:8] = 1, 4, IGNORE
    labels[1] = 2
    labels[2, 3:] = IGNORE
    return labels


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("heads", [1, 3])
def test_equals_loops(first, heads):
    new, old = attentions(heads=heads), attentions(heads=heads, seed=1)
    wanted = by_loops(new, old, mixed(), first, 5)
    assert wanted > 0
    torch.testing.assert_close(attention_transfer(new, old, mixed(), first, 5), wanted, rtol=0, atol=1e-12)
    single = attention_transfer(new.float(), old.float(), mixed(), first, 5)
    torch.testing.assert_close(single.double(), wanted, rtol=0, atol=1e-6)


def test_equals_loops_at_random():
    gen = torch.Generator().manual_seed(3)
    labels = torch.randint(7, (3, 12), generator=gen)
    labels[torch.rand((3, 12), generator=gen) < 0.2] = IGNORE
    new, old = attentions(), attentions(seed=1)
    wanted = by_loops(new, old, labels, 1, 6)
    torch.testing.assert_close(attention_transfer(new, old, labels, 1, 6), wanted, rtol=0, atol=1e-12)


def test_one_class():
    new, old = attentions(1), attentions(1, seed=1)
    labels = torch.ones((1, 12), dtype=torch.int64)
    wanted = (new.mean(2) - old.mean(2)).norm(dim=-1).mean()
    torch.testing.assert_close(attention_transfer(new, old, labels, 1, 2), wanted)


def test_equal_attentions_cost_nothing_and_have_a_gradient():
    new = attentions().requires_grad_()
    loss = attention_transfer(new, new.detach(), mixed(), 1, 5)
    loss.backward()
    assert loss.item() == 0
    assert new.grad.isfinite().all()


@pytest.mark.parametrize("label", [0, IGNORE])
def test_no_class_is_zero(label):
    new = attentions().requires_grad_()
    loss = attention_transfer(new, attentions(seed=1), torch.full((3, 12), label), 1, 5)
    loss.backward()
    assert loss.item() == 0
    assert not new.grad.any()


def test_gradient_reaches_the_pixels_of_classes_alone():
    new = attentions().requires_grad_()
    attention_transfer(new, attentions(seed=1), mixed(), 1, 5).backward()
    member = (mixed() > 0) & (mixed() != IGNORE)
    assert torch.equal(new.grad.ne(0).any(-1).all(1), member)
    assert not new.grad[~member[:, None].expand(new.shape[:3])].any()


def test_gradcheck():
    new, old = attentions().requires_grad_(), attentions(seed=1).requires_grad_()
    assert torch.autograd.gradcheck(lambda a, b: attention_transfer(a, b, mixed(), 1, 5), (new, old))


def test_half_precision_is_computed_in_single():
    new, old = attentions().bfloat16(), attentions(seed=1).bfloat16()
    loss = attention_transfer(new, old, mixed(), 1, 5)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss.double(), by_loops(new.double(), old.double(), mixed(), 1, 5), rtol=0, atol=1e-6)


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="of the same shape"):
        attention_transfer(attentions(), attentions(keys=4), mixed(), 1, 5)
    with pytest.raises(ValueError, match="one label per query"):
        attention_transfer(attentions(), attentions(), mixed(queries=10), 1, 5)


def test_a_stage_ends_where_the_queries_change():
    blocks = [attentions(1, 1, queries) for queries in (24, 24, 6, 2, 2, 2)]
    assert stage_ends(blocks, [(4, 6), (2, 3), (1, 2)]) == [(1, (4, 6)), (2, (2, 3)), (5, (1, 2))]
    assert stage_ends(blocks[:2], [(4, 6), (4, 6)]) == [(1, (4, 6))]


def test_queries_that_are_no_pixels_are_refused():
    with pytest.raises(ValueError, match=r"25 queries .* \(4x6\)"):
        stage_ends([attentions(1, 1, 25)], [(4, 6)])
