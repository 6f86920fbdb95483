"""The growing classifier: old logits do not change by growing, and initialisations of new heads."""

import pytest
import torch

from faircl.models.classifier import GrowingClassifier


def grown(*sizes, width=6, seed=0):
    """Return a classifier with weights of the scale of trained ones."""
    torch.manual_seed(seed)
    made = GrowingClassifier(width)
    for size in sizes:
        made.grow(size)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.normal_()
    return made


def embedding(seed=1, width=6):
    return torch.randn((2, width, 5, 4), generator=torch.Generator().manual_seed(seed))


def test_logits_are_weight_times_embedding_plus_bias():
    c, x = grown(2, 3), embedding()
    logits = c(x)
    assert c.sizes == [2, 3]
    assert c.classes == 5
    weight = [row for head in c.heads for row in head.weight.flatten(1).tolist()]
    bias = [value for head in c.heads for value in head.bias.tolist()]
    for k in range(5):
        by_hand = sum(w * v for w, v in zip(weight[k], x[1, :, 3, 2].tolist(), strict=True)) + bias[k]
        assert logits[1, k, 3, 2].item() == pytest.approx(by_hand, abs=1e-5)


def test_growing_keeps_old_classes():
    c, x = grown(3), embedding()
    before, state = c(x), {k: v.clone() for k, v in c.state_dict().items()}
    head = c.grow(2)
    assert c.heads[-1] is head
    for name, value in state.items():
        assert torch.equal(c.state_dict()[name], value)
    assert c(x).shape == (2, 5, 5, 4)
    # The products are the same; a wider convolution may add them in another order.
    torch.testing.assert_close(c(x)[:, :3], before, rtol=1e-6, atol=1e-6)


def test_new_head_starts_small_and_differs_between_classes():
    c = grown(2)
    head = c.grow(4)
    assert head.bias.eq(0).all()
    assert 0 < head.weight.abs().max() < 0.1
    assert len(head.weight.flatten(1).unique(dim=0)) == 4


@pytest.mark.parametrize("new", [1, 4])
def test_init_from_background_shares_its_probability(new):
    c, x = grown(3), embedding()
    old = c(x).softmax(1)
    c.grow(new)
    c.init_from_background()
    now = c(x).softmax(1)
    torch.testing.assert_close(now[:, 0] + now[:, 3:].sum(1), old[:, 0], rtol=0, atol=1e-6)
    torch.testing.assert_close(now[:, 1:3], old[:, 1:3], rtol=0, atol=1e-6)
    torch.testing.assert_close(now[:, 3:], now[:, :1].expand(-1, new, -1, -1), rtol=0, atol=1e-6)


def test_init_from_background_twice():
    c, x = grown(2), embedding()
    old = c(x).softmax(1)
    for new in (2, 1):
        c.grow(new)
        c.init_from_background()
    now = c(x).softmax(1)
    torch.testing.assert_close(now[:, 1], old[:, 1], rtol=0, atol=1e-6)
    torch.testing.assert_close(now[:, 4], now[:, 0], rtol=0, atol=1e-6)
    torch.testing.assert_close(now.sum(1) - now[:, 1], old[:, 0], rtol=0, atol=1e-6)


def at(c, feature):
    return c(feature.view(1, -1, 1, 1))[0, :, 0, 0]


def test_init_from_prototypes_splits_half_way():
    c = grown(3)
    new, reference = torch.randn(2, 6), torch.randn(6)
    state = {k: v.clone() for k, v in c.state_dict().items()}
    c.grow(2)
    c.init_from_prototypes(new, reference, background=True)
    for k, p in enumerate(new):
        middle, own, other = at(c, (p + reference) / 2), at(c, p), at(c, reference)
        assert middle[3 + k].item() == pytest.approx(middle[0].item(), abs=1e-4)
        assert own[3 + k] > own[0] + 0.1
        assert other[3 + k] < other[0] - 0.1
    for name, value in state.items():
        assert torch.equal(c.state_dict()[name], value)


def test_init_from_prototypes_grows_by_the_mean_norm_of_old_weights():
    c = grown(3)
    old = torch.cat([head.weight for head in c.heads]).flatten(1)
    new, reference = torch.randn(1, 6), torch.randn(6)
    c.grow(1)
    c.init_from_prototypes(new, reference, background=True)
    step = c.heads[-1].weight.flatten() - old[0]
    mean_norm = sum(sum(v * v for v in row) ** 0.5 for row in old.tolist()) / 3
    assert step.norm().item() == pytest.approx(mean_norm, rel=1e-5)
    cosine = torch.nn.functional.cosine_similarity(step, new[0] - reference, dim=0)
    assert cosine.item() == pytest.approx(1, abs=1e-5)


def test_init_from_prototypes_without_background_starts_from_the_mean_class():
    c = grown(2, 2)
    weight, bias = (x.detach().clone() for x in c.weight_and_bias())
    new, reference = torch.randn(1, 6), torch.randn(6)
    c.grow(1)
    c.init_from_prototypes(new, reference, background=False)
    middle = (new[0] + reference) / 2
    average = (weight @ middle + bias).mean()
    assert at(c, middle)[4].item() == pytest.approx(average.item(), abs=1e-4)
    assert at(c, new[0])[4] > (weight @ new[0] + bias).mean()


def test_a_class_without_features_keeps_its_random_start():
    c = grown(2)
    head = c.grow(3)
    weight, bias = head.weight.detach().clone(), head.bias.detach().clone()
    new = torch.randn(3, 6)
    new[1] = float("nan")
    c.init_from_prototypes(new, torch.randn(6), background=True)
    assert torch.equal(head.weight[1], weight[1])
    assert head.bias[1] == bias[1]
    assert head.weight.isfinite().all()
    assert not torch.equal(head.weight[0], weight[0])
    assert not torch.equal(head.weight[2], weight[2])


@pytest.mark.parametrize("background", [True, False])
def test_a_reference_without_features_leaves_the_head_random(background):
    c = grown(2)
    head = c.grow(2)
    weight, bias = head.weight.detach().clone(), head.bias.detach().clone()
    c.init_from_prototypes(torch.randn(2, 6), torch.full((6,), float("nan")), background)
    assert torch.equal(head.weight, weight)
    assert torch.equal(head.bias, bias)


def test_new_classes_can_be_trained_after_every_init():
    c = grown(2)
    c.grow(1)
    c.init_from_background()
    c.init_from_prototypes(torch.randn(1, 6), torch.randn(6), background=True)
    c(embedding()).square().sum().backward()
    assert all(p.grad is not None and p.grad.ne(0).any() for p in c.parameters())
