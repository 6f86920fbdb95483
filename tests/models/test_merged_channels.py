"""Merged and dropped classes of a classifier: probabilities are sums, and what is dropped is renormalised away."""

import copy

import pytest
import torch

from faircl.class_groups import joined, padded_groups
from faircl.errors import UserError
from faircl.models.classifier import GrowingClassifier
from faircl.models.merged_channels import MergedChannels
from faircl.registry import MODELS

WIDTH = 6


def grown(*sizes, seed=0, dtype=torch.float64):
    torch.manual_seed(seed)
    made = GrowingClassifier(WIDTH)
    for size in sizes:
        made.grow(size)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.normal_(std=2)
    return made.to(dtype)


def embedding(seed=1, dtype=torch.float64):
    return torch.randn((2, WIDTH, 5, 4), generator=torch.Generator().manual_seed(seed), dtype=dtype)


def probabilities(classifier, x):
    return classifier(x).softmax(1)


def test_groups_are_padded_with_their_first_member():
    members, real = padded_groups([[2], [0, 3, 1]])
    assert members.tolist() == [[2, 2, 2], [0, 3, 1]]
    assert real.tolist() == [[True, False, False], [True, True, True]]
    assert joined([[1], [0, 2]], parts=[(0,), (1, 4), (2, 3)]) == [[1, 4], [0, 2, 3]]


def test_the_probability_of_a_merged_class_is_the_sum():
    c, x = grown(3, 3), embedding()
    p = probabilities(c, x)
    c.regroup([[0], [4, 1, 5], [2], [3]])
    expected = torch.stack([p[:, 0], p[:, 4] + p[:, 1] + p[:, 5], p[:, 2], p[:, 3]], 1)
    torch.testing.assert_close(probabilities(c, x), expected, rtol=1e-12, atol=1e-14)
    assert torch.equal(probabilities(c, x).argmax(1), expected.argmax(1))
    assert (c.classes, c.sizes, c.groups) == (4, [6], [(0,), (1, 2, 3), (4,), (5,)])


def test_extreme_logits_neither_overflow_nor_vanish():
    merged = MergedChannels([[0, 1], [2]])
    logits = torch.tensor([[900.0, 900.0, -900.0], [-900.0, -901.0, 900.0]])
    assert merged(logits, 1)[0].tolist() == pytest.approx([900 + torch.tensor(2.0).log().item(), -900])
    assert merged(logits, -1)[1, 0].item() == pytest.approx(-900 + torch.tensor(1 + torch.e**-1).log().item())


def test_dropping_renormalises_and_leaves_other_logits_as_they_are():
    c, x = grown(2, 3), embedding()
    before, weight = c(x), c.weight_and_bias()[0]
    c.regroup([[0], [2], [4]])
    assert torch.equal(c.weight_and_bias()[0], weight[[0, 2, 4]])
    torch.testing.assert_close(c(x), before[:, [0, 2, 4]])
    kept = before.softmax(1)[:, [0, 2, 4]]
    torch.testing.assert_close(probabilities(c, x), kept / kept.sum(1, keepdim=True))
    assert (c.classes, c.sizes, c.merged) == (3, [3], None)


def test_merged_classes_merge_again_and_are_dropped_whole():
    c, x = grown(5), embedding()
    p = probabilities(c, x)
    c.regroup([[0], [1, 3], [2], [4]])
    c.regroup([[0], [2, 1], [3]])
    expected = torch.stack([p[:, 0], p[:, 1] + p[:, 2] + p[:, 3], p[:, 4]], 1)
    torch.testing.assert_close(probabilities(c, x), expected, rtol=1e-12, atol=1e-14)
    c.regroup([[0], [2]])
    kept = p[:, [0, 4]]
    torch.testing.assert_close(probabilities(c, x), kept / kept.sum(1, keepdim=True), rtol=1e-12, atol=1e-14)
    assert c.merged is None


def test_growing_after_a_merge_appends_channels():
    c, x = grown(4), embedding()
    c.regroup([[0], [1, 2], [3]])
    before = c(x)
    c.grow(2).to(torch.float64)
    assert c.classes == 5
    assert torch.equal(c(x)[:, :3], before)
    weight, bias = c.heads[-1].weight, c.heads[-1].bias
    torch.testing.assert_close(c(x)[:, 3:], torch.nn.functional.conv2d(x, weight, bias))
    assert c.groups == [(0,), (1, 2), (3,), (4,), (5,)]


def test_single_features_are_classified_as_maps_are():
    c, x = grown(5), embedding()
    c.regroup([[0, 4], [2], [1, 3]])
    rows = x.permute(0, 2, 3, 1)
    torch.testing.assert_close(c.classify(rows).permute(0, 3, 1, 2), c(x))
    assert c.classify(rows[0, 0, 0]).shape == (3,)


def test_gradients_are_those_of_the_sum():
    merged = MergedChannels([[2], [0, 3, 4], [1, 5]])
    logits = torch.randn((2, 6, 3), dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda z: merged(z, 1), logits)
    p = logits.softmax(1)
    (by_hand,) = torch.autograd.grad(-(p[:, 0] + p[:, 3] + p[:, 4]).log().sum(), logits)
    (found,) = torch.autograd.grad(-merged(logits, 1).log_softmax(1)[:, 1].sum(), logits)
    torch.testing.assert_close(found, by_hand)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_stays_half_precision(dtype):
    merged = MergedChannels([[0, 1], [2]])
    logits = torch.randn(4, 3)
    low = merged(logits.to(dtype), 1)
    assert low.dtype == dtype
    torch.testing.assert_close(low.float(), merged(logits, 1), rtol=2e-2, atol=2e-2)


def test_the_background_is_divided_after_a_merge_as_before():
    c, x = grown(4), embedding()
    c.regroup([[0, 3], [1], [2]])
    before = probabilities(c, x)
    c.grow(2).to(torch.float64)
    c.init_from_background()
    after = probabilities(c, x)
    torch.testing.assert_close(after[:, 0] + after[:, 3] + after[:, 4], before[:, 0])
    torch.testing.assert_close(after[:, 1:3], before[:, 1:3])


def test_the_unknown_head_joins_a_merged_background():
    c, x = grown(4), embedding()
    c.regroup([[0, 3], [1], [2]])
    c.add_unknown(background=True)
    c.double().eval()
    known = c.classify(x.permute(0, 2, 3, 1))
    torch.testing.assert_close(c(x)[:, 0], torch.logaddexp(known[..., 0], c.unknown(x)[:, 0]))
    torch.testing.assert_close(c(x)[:, 1:], known[..., 1:].permute(0, 3, 1, 2))


def test_groups_move_with_the_network_and_are_not_part_of_its_state():
    c = grown(4)
    keys = set(c.state_dict())
    c.regroup([[0], [1, 2], [3]])
    assert set(c.state_dict()) == keys
    twin = copy.deepcopy(c).to("meta")
    assert twin.merged.members.device.type == "meta"
    assert twin(torch.empty((1, WIDTH, 2, 2), dtype=torch.float64, device="meta")).shape == (1, 3, 2, 2)


def test_a_network_with_merged_classes_is_not_exported_to_other_libraries():
    made = MODELS.get("small")
    network = made(made.Config(name="small"))
    network.classifier.grow(3)
    network.check_plain_classifier()
    network.classifier.regroup([[0], [1, 2]])
    with pytest.raises(UserError, match="merged classes"):
        network.check_plain_classifier()
