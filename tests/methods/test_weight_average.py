"""Averaging with the network before a step: which weights, by which share, and at which steps."""

import pytest
import torch
from tiny_steps import Run, World


def weights(network):
    return {name: value.detach().clone() for name, value in network.state_dict().items()}


def after_both_steps(**options):
    """The network before the second step, at its last update and when it has ended."""
    r = Run(World(), **options).begin(0)
    r.iterate(4)
    r.end()
    before = weights(r.model)
    r.begin(1, lr=0.05)
    r.iterate(4)
    trained = weights(r.model)
    r.end()
    return before, trained, weights(r.model)


def test_backbone_and_decoder_are_averaged_and_the_classifier_is_not():
    before, trained, ended = after_both_steps(average=0.25)
    moved = 0
    for name, value in ended.items():
        feature = name.startswith(("backbone.", "decoder.")) and value.is_floating_point()
        expected = 0.25 * before[name] + 0.75 * trained[name] if feature else trained[name]
        torch.testing.assert_close(value, expected)
        moved += feature and not torch.equal(before[name], trained[name])
    assert moved > 4
    heads = [name for name in ended if name.startswith("classifier.")]
    assert any(name in before and not torch.equal(before[name], ended[name]) for name in heads)


def test_a_share_of_zero_keeps_what_was_learned():
    _, trained, ended = after_both_steps()
    assert all(torch.equal(value, trained[name]) for name, value in ended.items())


def test_the_first_step_is_left_alone_and_shared():
    r = Run(World(), average=0.5).begin(0)
    r.iterate(2)
    trained = weights(r.model)
    r.end()
    assert all(torch.equal(value, trained[name]) for name, value in weights(r.model).items())
    assert r.method.step0_key() == Run(World()).begin(0).method.step0_key()


@pytest.mark.parametrize("share", [-0.1, 1.0])
def test_a_share_lies_in_its_range(share):
    with pytest.raises(ValueError, match="average"):
        Run(World(), average=share)
