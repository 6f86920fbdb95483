"""Parallel branches: where they are inserted, how they are mixed, and that folding does not change the output."""

import copy
from itertools import pairwise

import pytest
import torch
from network_tester import make
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from faircl.config.run import load_config
from faircl.engine.network import batch_norms, set_training_mode
from faircl.models.checkpointing import checkpoint_blocks
from faircl.models.parallel_branches import Branches, ConvGroup, TwoBranches, find_conv_groups, second_state_keys
from faircl.models.segmenter import Segmenter

MIB = {"name": "deeplabv3", "backbone": "mobilenet_v2", "head": "mib"}
NETWORKS = [
    {"name": "small"},
    {"name": "small", "norm": "group"},
    MIB,
    {"name": "deeplabv3plus", "backbone": "mobilenet_v2"},
    {"name": "segformer", "variant": "b0"},
    {"name": "timm", "backbone": "resnet18"},
    {"name": "timm", "backbone": "mobilenetv3_small_050"},
]
each_network = pytest.mark.parametrize("config", NETWORKS, ids=lambda c: "-".join(c.values()))


class Odd(nn.Module):
    """A network with many kinds of convolutions and of layers after them."""

    def __init__(self):
        super().__init__()
        self.plain = nn.Conv2d(3, 8, 3)
        self.plain_norm = nn.BatchNorm2d(8)
        self.strided = nn.Conv2d(8, 8, 3, stride=2, padding=2, dilation=2, bias=False)
        self.strided_norm = nn.BatchNorm2d(8, affine=False)
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.depthwise_norm = nn.BatchNorm2d(8, eps=1e-3)
        self.grouped = nn.Conv2d(8, 4, 3, padding=1, groups=2, padding_mode="reflect")
        self.grouped_norm = nn.GroupNorm(2, 4)
        self.read_twice = nn.Conv2d(4, 4, 3, padding=1)
        self.read_twice_norm = nn.BatchNorm2d(4)
        self.called_twice = nn.Conv2d(4, 4, 3, padding=1)
        self.called_twice_norm = nn.BatchNorm2d(4)
        self.left, self.right = nn.Conv2d(4, 3, 1), nn.Conv2d(4, 2, 3, padding=1)
        self.joined_norm = nn.BatchNorm2d(5)
        self.lasting = nn.BatchNorm2d(5, track_running_stats=False)
        self.before_lasting = nn.Conv2d(5, 5, 3, padding=1)
        self.wide = nn.Conv2d(5, 6, 5, padding=2)
        self.wide_norm = nn.BatchNorm2d(6)

    def forward(self, x):
        x = torch.relu_(self.plain_norm(self.plain(x)))
        x = self.depthwise_norm(self.depthwise(self.strided_norm(self.strided(x))))
        x = self.grouped_norm(self.grouped(x))
        y = self.read_twice(x)
        x = self.read_twice_norm(y) + y
        x = self.called_twice_norm(self.called_twice(self.called_twice(x)))
        x = self.joined_norm(torch.cat([self.left(x), self.right(x)], 1))
        return (self.wide_norm(self.wide(self.lasting(self.before_lasting(x)))),)


class OddNetwork(Segmenter):
    name = "odd"

    def __init__(self):
        super().__init__(Odd(), _Last(), embedding_width=6, stage_widths=(6,))


class _Last(nn.Module):
    def forward(self, stages):
        return stages[-1]


@torch.no_grad()
def trained(model, seed=0, classes=3):
    """Random statistics and affine parameters, as training would leave them."""
    gen = torch.Generator().manual_seed(seed)
    for norm in batch_norms(model):
        if norm.running_mean is not None:
            norm.running_mean.normal_(0, 0.3, generator=gen)
            norm.running_var.uniform_(0.5, 2, generator=gen)
        if norm.affine:
            norm.weight.uniform_(0.5, 1.5, generator=gen)
            norm.weight[0] *= -1  # weights of both signs
            norm.bias.normal_(0, 0.3, generator=gen)
    model.classifier.grow(classes)
    return model.eval()


@torch.no_grad()
def stirred(two, seed=1):
    """Move the second branches away from the first."""
    gen = torch.Generator().manual_seed(seed)
    for branches in two.branches.values():
        for name, value in branches.second.state_dict().items():
            if value.is_floating_point():
                noise = 0.3 * torch.rand(value.shape, generator=gen).to(value)
                value.mul_(1 + noise).add_(0 if "var" in name else 0.1 * value.abs().mean() * noise)
    return two


def opened(model, frozen=True, units=None, **more):
    return TwoBranches(model, units or find_conv_groups(model), frozen=frozen, seed=0, step=1, **more)


@torch.no_grad()
def outputs(model, size=32):
    image = torch.rand((2, 3, size, size), generator=torch.Generator().manual_seed(5))
    out = model(image.to(model.mean.dtype))
    return out.logits, out.embedding, *out.stages


def apart(a, b):
    return max(((x - y).abs().max() / x.abs().max()).item() for x, y in zip(a, b, strict=True))


# ---- where


def test_every_3x3_is_found_with_its_norm():
    units = find_conv_groups(make({"name": "small"}))
    assert units[0] == ConvGroup(("backbone.stem.0",), "backbone.stem.1")
    assert ConvGroup(("backbone.stage4.1.second",), "backbone.stage4.1.norm") in units
    assert units[-1] == ConvGroup(("decoder.mix.0",), "decoder.mix.1")
    assert len(units) == 10
    assert {unit.norm for unit in find_conv_groups(make({"name": "small", "norm": "group"}))} == {None}


def test_a_norm_over_several_convolutions_is_theirs_in_common():
    units = find_conv_groups(make({**MIB, "backbone": "resnet50"}))
    head = ConvGroup(tuple(f"decoder.branches.{k}" for k in range(4)), "decoder.branch_norm")
    assert head in units
    assert all(unit.norm is not None and len(unit.convs) == 1 for unit in units if unit != head)
    assert len(units) == 16 + 1


def test_odd_convolutions():
    found = {unit.convs: unit.norm for unit in find_conv_groups(OddNetwork())}
    assert found == {
        ("backbone.plain",): "backbone.plain_norm",
        ("backbone.strided",): "backbone.strided_norm",
        ("backbone.depthwise",): "backbone.depthwise_norm",
        ("backbone.grouped",): None,
        ("backbone.read_twice",): None,
        ("backbone.called_twice",): None,
        ("backbone.left", "backbone.right"): "backbone.joined_norm",
        ("backbone.before_lasting",): None,
    }


def test_layers_that_do_more_or_are_watched_are_left_alone():
    class Own(nn.Conv2d):
        pass

    class OwnNorm(nn.BatchNorm2d):
        pass

    network = OddNetwork()
    network.backbone.plain = Own(3, 8, 3)
    network.backbone.depthwise_norm = OwnNorm(8)
    network.backbone.strided.register_forward_hook(lambda *given: None)
    found = {unit.convs: unit.norm for unit in find_conv_groups(network)}
    assert ("backbone.plain",) not in found
    assert ("backbone.strided",) not in found
    assert found[("backbone.depthwise",)] is None


def test_finding_leaves_the_network_and_chance_alone():
    network = make({"name": "small"})
    before, state = copy.deepcopy(network.state_dict()), torch.get_rng_state()
    find_conv_groups(network)
    assert torch.equal(torch.get_rng_state(), state)
    assert network.training
    assert all(torch.equal(before[name], value) for name, value in network.state_dict().items())
    assert not any(module._forward_hooks for module in network.modules())


# ---- folding


@each_network
def test_folding_changes_nothing(config):
    check_folding(make(config))


def test_folding_odd_convolutions():
    check_folding(OddNetwork())


def check_folding(model):
    trained(model)
    units, modules, names = find_conv_groups(model), dict(model.named_modules()), list(model.state_dict())
    for dtype, close in ((torch.float32, 1e-5), (torch.float64, 1e-10)):
        plain = outputs(model.to(dtype))
        two = opened(model, units=units)
        assert apart(plain, outputs(model)) < close  # both branches start equal
        mixed = outputs(stirred(two).model)
        assert apart(plain, mixed) > 1e-3
        two.fold()
        assert apart(mixed, outputs(model)) < close
        assert list(model.state_dict()) == names
        after = dict(model.named_modules())
        assert list(after) == list(modules)
        assert all(after[name] is module for name, module in modules.items())
        assert all(p.requires_grad for p in model.parameters())
        assert not model._forward_pre_hooks


def test_a_folded_norm_could_go_on_training():
    """The folded norm has the statistics of its input: training and evaluation mode nearly agree."""
    torch.manual_seed(0)
    conv, norm = nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6)
    network = OddNetwork()
    network.backbone = nn.Sequential(conv, norm)
    units = [ConvGroup(("backbone.0",), "backbone.1")]
    x = torch.rand(64, 4, 9, 9) + 1
    two = opened(network, frozen=False, units=units)
    branches = two.branches["backbone.0"]
    with torch.no_grad():
        for part in (branches.first, branches.second):
            part.norm.momentum = None  # plain means over batches
            part.norm.weight.uniform_(0.5, 1.5)
            part.norm.bias.normal_()
        branches.second.conv.weight += 0.01 * torch.randn(6, 4, 3, 3)
        network.backbone.train()(x)
        two.fold()
        still, moving = network.backbone.eval()(x), network.backbone.train()(x)
    assert (still - moving).abs().max() < 0.05 * still.std()


def test_synchronised_norms_stay_what_they_are():
    model = nn.SyncBatchNorm.convert_sync_batchnorm(make({"name": "small"}))
    two = opened(trained(model))
    kinds = {type(branches.second.norm) for branches in two.branches.values()}
    assert kinds == {nn.SyncBatchNorm}
    mixed = outputs(stirred(two).model)
    two.fold()
    assert apart(mixed, outputs(model)) < 1e-5
    assert {type(norm) for norm in batch_norms(model)} == {nn.SyncBatchNorm}


def test_second_branches_are_kept_by_name():
    model = trained(make(MIB))
    units = find_conv_groups(model)
    wanted = second_state_keys(model, units)
    two = stirred(opened(model, units=units))
    state = {name: value.clone() for name, value in two.second_state().items()}
    assert list(state) == wanted
    assert state["decoder.branches.2.norm.running_var"].shape == (256,)
    two.fold()
    other = opened(model, units=units)
    assert any(not torch.equal(value, state[name]) for name, value in other.second_state().items())
    other.load_second_state(state)
    assert all(torch.equal(value, state[name]) for name, value in other.second_state().items())


# ---- training


def test_channels_are_of_one_branch_the_other_or_both():
    model = trained(make({"name": "small", "width": 24}))
    two = stirred(opened(model))
    model.train()
    counts, seen = torch.zeros(3), []
    chosen = two.branches["backbone.stage8.1.first.0"]
    x = torch.rand(2, 72, 6, 6)
    for _ in range(12):
        model(torch.rand(2, 3, 16, 16))
        assert chosen.mixing.shape == (72, 1, 1)
        for k, share in enumerate((0, 0.5, 1)):
            counts[k] += sum((branches.mixing == share).sum() for branches in two.branches.values())
        seen.append(chosen.mixing.clone())
    chosen.second.norm.eval()  # with running statistics
    with torch.no_grad():
        mixed, first, second = chosen(x), chosen.first(x), chosen.second(x)
    by_share = {0.0: first, 0.5: (first + second) / 2, 1.0: second}
    for d, share in enumerate(chosen.mixing.flatten().tolist()):
        torch.testing.assert_close(mixed[:, d], by_share[share][:, d])
    assert (counts / counts.sum() - 1 / 3).abs().max() < 0.03
    assert all(not torch.equal(a, b) for a, b in pairwise(seen))
    assert not torch.equal(two.branches["backbone.stage8.2.first.0"].mixing, chosen.mixing)


def test_the_mix_is_of_seed_step_and_pass_alone():
    shares = []
    for noise in (1, 2):
        torch.manual_seed(noise)
        model = trained(make({"name": "small"}))
        two = opened(model)
        for _ in range(noise):  # evaluation draws nothing
            outputs(model, 16)
        model.train()
        for _ in range(2):
            model(torch.rand(2, 3, 16, 16))
        shares.append([branches.mixing for branches in two.branches.values()])
    assert all(torch.equal(a, b) for a, b in zip(*shares, strict=True))


@pytest.mark.parametrize("frozen", [True, False])
def test_a_frozen_branch_stays(frozen):
    model = trained(make({"name": "small"}))
    two = opened(model, frozen)
    before = {name: copy.deepcopy(branches.state_dict()) for name, branches in two.branches.items()}
    given = {part for part, parameter in model.parameter_groups()}
    assert given == {"backbone", "decoder", "new_classifier"}
    assert sum(p.numel() for _, p in model.parameter_groups()) == sum(p.numel() for p in model.parameters())
    optimizer = torch.optim.SGD([p for _, p in model.parameter_groups() if p.requires_grad], 0.1)
    model.train()
    model(torch.rand(2, 3, 16, 16)).logits.square().sum().backward()
    optimizer.step()
    for name, branches in two.branches.items():
        for key, value in branches.state_dict().items():
            if key.endswith("conv.weight") or "running" in key:
                moved = not torch.equal(value, before[name][key])
                assert moved == (key.startswith("second.") or not frozen), (name, key)
    two.fold()


def test_frozen_norms_and_parts_are_set_by_the_engine():
    config = load_config("demo")
    model = trained(make({"name": "small"}))
    two = opened(model)
    always = config.model_copy(update={"train": config.train.model_copy(update={"frozen_norm": "always"})})
    set_training_mode(model, always, step=1)
    assert len(batch_norms(model)) == 20
    assert not any(norm.training for norm in batch_norms(model))
    set_training_mode(model, config, step=1)
    for branches in two.branches.values():
        assert branches.training
        assert branches.second.norm.training
        assert not branches.first.norm.training


@pytest.mark.parametrize("checkpointed", [True, False])
def test_copies_and_checkpointed_blocks_compute_the_same(checkpointed):
    model = trained(make({"name": "small"}))
    two = stirred(opened(model, frozen=False))
    twin = copy.deepcopy(model)
    if checkpointed:
        assert checkpoint_blocks(twin.blocks()) == 2
    image = torch.rand(2, 3, 24, 24)
    for _ in range(2):
        gradients = []
        for network in (model, twin):
            network.train().zero_grad()
            network(image).logits.square().sum().backward()
            gradients.append([p.grad for p in network.parameters()])
        assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))
    states = [network.state_dict() for network in (model, twin)]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert all(branches is not other for branches in two.branches.values() for other in twin.modules())
    assert sum(isinstance(module, Branches) for module in twin.modules()) == 10


def test_norms_of_branches_are_batchnorm_to_everyone():
    model = trained(make({"name": "small"}))
    opened(model)
    norms = [norm for norm in model.modules() if isinstance(norm, _BatchNorm)]
    assert len(norms) == 2 * 10


def test_mixings_are_pinned_in_the_type_that_is_copied(monkeypatch):
    model = make({"name": "small"})
    TwoBranches(model, find_conv_groups(model), frozen=False, seed=0, step=0)
    pinned = []
    monkeypatch.setattr(torch.Tensor, "is_cuda", True, raising=False)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: pinned.append(self.dtype) or self)
    for hook in model.train()._forward_pre_hooks.values():
        hook(model, ())
    assert pinned == [torch.float32]
