"""Gradient checkpointing of single blocks."""

import pytest
import torch
from torch import nn

from faircl.models.checkpointing import checkpoint_blocks, without_checkpointing


class Counted(nn.Module):
    """A block that counts its passes."""

    def __init__(self):
        super().__init__()
        self.layer, self.passes = nn.Linear(3, 3), 0

    def forward(self, x, scale=1.0):
        self.passes += 1
        return self.layer(x).tanh() * scale


class Fuse(nn.Module):
    """A block that replaces the entries of the list it is given, as HRNet's do."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, parts):
        for index, part in enumerate(parts):
            parts[index] = self.layer(part).tanh()
        return torch.stack(parts).sum(0)


class Dense(nn.Module):
    """A block that reads the list of all outputs before it, as RDNet's do."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, parts):
        return self.layer(torch.stack(parts).sum(0)).tanh()


def gradients(module, run):
    module.zero_grad()
    run().square().sum().backward()
    return [p.grad.clone() for p in module.parameters()]


def test_a_block_runs_again_in_the_backward_pass_only_when_it_trains():
    block, x = Counted(), torch.rand(2, 3)
    kind = type(block)
    assert checkpoint_blocks([block]) == 1
    assert isinstance(block, kind)
    assert type(block).__name__ == "Counted"
    with torch.no_grad():
        block(x)
    assert block.passes == 1
    out = block(x, scale=2.0)
    assert block.passes == 2
    out.sum().backward()
    assert block.passes == 3
    with without_checkpointing([block, nn.Linear(1, 1)]):
        out = block(x)
    out.sum().backward()
    assert block.passes == 4
    block(x).sum().backward()
    assert block.passes == 6


def test_remembered_ends_with_an_error():
    block = Counted()
    checkpoint_blocks([block])

    def fail():
        with without_checkpointing([block]):
            assert not block.recompute
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert block.recompute


def test_keyword_arguments_count():
    torch.manual_seed(0)
    block, x = Counted(), torch.rand(2, 3)
    expected = gradients(block, lambda: block(x, scale=3.0))
    checkpoint_blocks([block])
    for found, other in zip(gradients(block, lambda: block(x, scale=3.0)), expected, strict=True):
        assert torch.equal(found, other)


def test_a_list_changed_inside_the_block():
    torch.manual_seed(0)
    block, x = Fuse(), torch.rand(2, 3)
    expected = gradients(block, lambda: block([x, 2 * x]))
    checkpoint_blocks([block])
    for found, other in zip(gradients(block, lambda: block([x, 2 * x])), expected, strict=True):
        assert torch.equal(found, other)


def test_a_list_that_grows_after_the_block():
    torch.manual_seed(0)
    block, x = Dense(), torch.rand(2, 3)

    def run():
        parts = [x]
        for _ in range(3):
            parts.append(block(parts))
        return torch.cat(parts)

    expected = gradients(block, run)
    checkpoint_blocks([block])
    for found, other in zip(gradients(block, run), expected, strict=True):
        torch.testing.assert_close(found, other)


@pytest.mark.parametrize("momentum", [0.1, None])
def test_statistics_move_once(momentum):
    torch.manual_seed(0)
    block = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, momentum=momentum), nn.ReLU())
    twin = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, momentum=momentum), nn.ReLU())
    twin.load_state_dict(block.state_dict())
    checkpoint_blocks([block])
    own = block[1].running_mean
    for _ in range(3):
        x = torch.rand(5, 3)
        for one in (block, twin):
            one(x).square().sum().backward()
    assert block[1].running_mean is own
    assert block[1].num_batches_tracked == 3
    for key, value in twin.state_dict().items():
        assert torch.equal(block.state_dict()[key], value), key
    for p, q in zip(block.parameters(), twin.parameters(), strict=True):
        assert torch.equal(p.grad, q.grad)


def test_a_norm_without_statistics():
    block = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, track_running_stats=False))
    checkpoint_blocks([block])
    block(torch.rand(5, 3)).square().sum().backward()
    assert block[0].weight.grad.any()
    assert block[1].running_mean is None
