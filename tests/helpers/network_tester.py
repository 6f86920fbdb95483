"""What every network must do. A subclass of a tester supplies a fixture `case`; each test then runs for it."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from faircl.config.run import load_config
from faircl.engine.network import check_network
from faircl.errors import UserError
from faircl.models.checkpointing import checkpoint_blocks
from faircl.models.segmenter import Segmenter
from faircl.registry import MODELS


class Case(NamedTuple):
    """A network's configuration and what is known of it."""

    config: dict[str, Any]
    stride: int
    multiple: int = 0
    """What it resizes image sides to a multiple of; 0: its stride or less."""
    attentions: int = 0
    blocks: int = 1
    """How many gradient checkpointing finds at least."""
    pooled: bool = False
    """Whether it normalises over pooled images, and cannot train on a single one."""


def make(config: dict[str, Any]) -> Segmenter:
    """Build a network as a run would, without classes."""
    return MODELS.get(config["name"])(MODELS.parse_config(config))


def lively(config: dict[str, Any], *heads: int, seed: int = 0) -> Segmenter:
    """Build a network that looks trained.

    No parameter is constant, BatchNorm's statistics are those of some images, logits are of the order of one.
    """
    torch.manual_seed(seed)
    network = make(config)
    for size in heads:
        network.classifier.grow(size)
    with torch.no_grad():
        # Full residual branches would make a deep random network chaotic: rounding would change everything.
        for block in network.blocks():
            norms = [m for n, m in block.named_modules() if isinstance(m, nn.BatchNorm2d) and "downsample" not in n]
            for norm in norms[-1:]:
                norm.weight.uniform_(0.1, 0.3)
    enliven(network)
    with torch.no_grad():
        for head in network.classifier.heads:
            head.weight.normal_(std=network.embedding_width**-0.5)
            head.bias.normal_()
    return network


@torch.no_grad()
def enliven(network: nn.Module, side: int = 64) -> nn.Module:
    """Replace constant parameters by random ones and let BatchNorm see a batch."""
    for name, parameter in network.named_parameters():
        if parameter.min() == parameter.max():
            bias = name.endswith("bias") or "token" in name
            parameter.copy_(0.1 * torch.randn_like(parameter) if bias else 0.6 + 0.8 * torch.rand_like(parameter))
    norms = [m for m in network.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    before = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = 1.0
    network.train()
    network(images(8, side, side, seed=99))
    for norm, momentum in zip(norms, before, strict=True):
        norm.momentum = momentum
        norm.num_batches_tracked.fill_(7)
    return network.eval()


def images(batch: int = 2, height: int = 64, width: int = 64, seed: int = 0) -> Tensor:
    """Return smooth colours with noise, in [0, 1]."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand((batch, 3, 4, 4), generator=generator)
    smooth = nn.functional.interpolate(coarse, (height, width), mode="bilinear")
    return (0.8 * smooth + 0.2 * torch.rand((batch, 3, height, width), generator=generator)).clamp(0, 1)


def freeze_norm(network: nn.Module) -> nn.Module:
    """Set training mode, but for BatchNorm."""
    network.train()
    for module in network.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.eval()
    return network


def loss_of(network: Segmenter, batch: Tensor, **options: Any) -> Tensor:
    """Return a scalar that depends on every logit differently; dropout draws the same on every call."""
    torch.manual_seed(5)
    out = network(batch, **options)
    weight = torch.randn(out.logits.shape, generator=torch.Generator().manual_seed(6))
    total = (weight * out.logits).mean() + out.logits.square().mean()
    for attention in out.attentions or ():
        total = total + attention.square().sum(-1).mean()
    return total


def gradients(network: nn.Module) -> dict[str, Tensor]:
    """Return copies of the gradients by name; a parameter without one is an error."""
    missing = [name for name, p in network.named_parameters() if p.grad is None]
    assert missing == []
    return {name: p.grad.clone() for name, p in network.named_parameters()}


def close(found: Tensor, expected: Tensor, tolerance: float = 1e-5) -> None:
    """Compare to a fraction of the largest value, which is not to be nothing."""
    assert expected.std() > 0.01
    torch.testing.assert_close(found, expected, rtol=0, atol=tolerance * max(1.0, expected.abs().max().item()))


class Tester:
    """A network shared by all tests of a case and read only: who changes it takes a `changeable` copy."""

    @pytest.fixture(scope="class")
    def network(self, case):
        made = lively(case.config, 3, 2)
        before = {name: value.clone() for name, value in made.state_dict().items()}
        yield made
        changed = [name for name, value in made.state_dict().items() if not torch.equal(before[name], value)]
        assert changed == [], "a test has changed the shared network"

    @pytest.fixture
    def changeable(self, network):
        return copy.deepcopy(network)

    @pytest.fixture(scope="class")
    def reference(self, network):
        """The logits of `images()` in evaluation."""
        with torch.no_grad():
            return network.eval()(images()).logits


class NetworkTester(Tester):
    """What holds for every network."""

    # ---- the contract

    @torch.no_grad()
    def test_contract(self, network, case):
        out = network.eval()(images(2, 64, 96))
        size = (round(64 / case.stride), round(96 / case.stride))
        assert out.logits.shape == (2, 5, *size)
        assert out.embedding.shape == (2, network.embedding_width, *size)
        assert tuple(stage.shape[1] for stage in out.stages) == network.stage_widths
        assert all(stage.shape[0] == 2 and stage.ndim == 4 for stage in out.stages)
        heights = [stage.shape[2] for stage in out.stages]
        assert heights == sorted(heights, reverse=True)
        assert out.attentions is None
        for tensor in (out.logits, out.embedding, *out.stages):
            assert tensor.dtype == torch.float32
            assert tensor.isfinite().all()
        assert 0.1 < out.logits.std() < 10
        assert out.logits.std((2, 3)).min() > 1e-3

        weight = torch.cat([head.weight for head in network.classifier.heads]).flatten(1)
        bias = torch.cat([head.bias for head in network.classifier.heads])
        by_hand = torch.einsum("bdhw,kd->bkhw", out.embedding, weight) + bias[:, None, None]
        torch.testing.assert_close(out.logits, by_hand, rtol=1e-4, atol=1e-4)

    @torch.no_grad()
    def test_image_is_normalised_and_the_constants_are_not_weights(self, network):
        seen = []
        hook = network.backbone.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
        network.eval()(images())
        hook.remove()
        assert network.mean.shape == network.std.shape == (3, 1, 1)
        torch.testing.assert_close(seen[0] * network.std + network.mean, images(), rtol=0, atol=1e-6)
        assert not {"mean", "std"} & set(network.state_dict())

    @torch.no_grad()
    def test_images_do_not_mix_in_evaluation(self, network, reference):
        alone = network.eval()(images()[1:]).logits
        torch.testing.assert_close(alone, reference[1:], rtol=1e-3, atol=1e-4)
        assert (reference[0] - reference[1]).abs().max() > 1e-2

    def test_attentions_only_where_there_are_any(self, network, case):
        assert network.has_attentions == bool(case.attentions)
        if not case.attentions:
            with pytest.raises(ValueError, match="has no attentions"):
                network(images(), attentions=True)

    @torch.no_grad()
    @pytest.mark.parametrize(("height", "width"), [(65, 97), (47, 33)])
    def test_odd_sizes(self, network, case, height, width):
        out = network.eval()(images(1, height, width))
        assert out.logits.isfinite().all()
        assert out.embedding.shape[-2:] == out.logits.shape[-2:]
        for side, found in zip((height, width), out.logits.shape[-2:], strict=True):
            assert abs(found * case.stride - side) <= max(case.stride, case.multiple / 2)

    # ---- training

    def test_a_gradient_reaches_every_parameter(self, changeable):
        loss_of(freeze_norm(changeable), images()).backward()
        found = gradients(changeable)
        assert [name for name, gradient in found.items() if not gradient.isfinite().all()] == []
        assert [name for name, gradient in found.items() if not gradient.any()] == []

    def test_single_image_in_training(self, changeable, case):
        changeable.train()
        if case.pooled:
            with pytest.raises(ValueError, match="at least two per process"):
                changeable(images(1))
            freeze_norm(changeable)
        loss_of(changeable, images(1)).backward()
        assert all(gradient.isfinite().all() for gradient in gradients(changeable).values())

    def test_network_check(self, network, case):
        config = load_config("demo", ["train.crop=64", "train.batch=2"])
        check_network(config, network)
        assert {p.device.type for p in network.parameters()} == {"cpu"}
        if not case.pooled:
            check_network(config, network, images=1)
            return
        with pytest.raises(UserError, match="at least two per process"):
            check_network(config, network, images=1)
        check_network(load_config("demo", ["train.crop=64", "train.frozen_norm=always"]), network, images=1)

    # ---- growing, saving, copying

    def test_growing_by_a_step(self, changeable, reference):
        head = changeable.classifier.grow(4)
        with torch.no_grad():
            logits = changeable.eval()(images()).logits
        assert logits.shape[1] == 9
        torch.testing.assert_close(logits[:, :5], reference, rtol=1e-5, atol=1e-5)
        parts = list(changeable.parameter_groups())
        assert sorted(id(p) for _, p in parts) == sorted(id(p) for p in changeable.parameters())
        assert {id(p) for part, p in parts if part == "new_classifier"} == {id(p) for p in head.parameters()}
        assert sum(part == "old_classifier" for part, _ in parts) == 4
        for owner in ("backbone", "decoder"):
            expected = {id(p) for p in getattr(changeable, owner).parameters()}
            assert {id(p) for part, p in parts if part == owner} == expected
            assert expected

    @torch.no_grad()
    def test_saved_and_loaded(self, network, case, reference, tmp_path):
        save_file(network.state_dict(), tmp_path / "model.safetensors")
        fresh = make(case.config)
        for size in (3, 2):
            fresh.classifier.grow(size)
        assert not torch.allclose(fresh.eval()(images()).logits, reference, atol=1e-2)
        fresh.load_state_dict(load_file(tmp_path / "model.safetensors"))
        assert torch.equal(fresh.eval()(images()).logits, reference)

    @torch.no_grad()
    def test_copy_is_independent(self, network, changeable, reference):
        assert torch.equal(changeable.eval()(images()).logits, reference)
        own = {value.data_ptr() for value in (*network.parameters(), *network.buffers()) if value.numel()}
        assert not own & {value.data_ptr() for value in (*changeable.parameters(), *changeable.buffers())}
        for value in changeable.parameters():
            value.mul_(0.5)
        assert torch.equal(network.eval()(images()).logits, reference)
        assert not torch.allclose(changeable(images()).logits, reference, atol=1e-2)

    # ---- precision and compilers

    @torch.no_grad()
    def test_bfloat16(self, network, changeable, reference):
        with torch.autocast("cpu", torch.bfloat16):
            out = network.eval()(images())
        assert out.logits.dtype == torch.bfloat16
        logits = out.logits.float()
        assert logits.isfinite().all()
        # How much rounding matters depends on the network: compare with rounded weights in full precision.
        for parameter in changeable.parameters():
            parameter.copy_(parameter.bfloat16())
        unavoidable = (changeable.eval()(images()).logits - reference).norm() / reference.norm()
        assert (logits - reference).norm() / reference.norm() < 3 * unavoidable + 0.01
        assert unavoidable < 0.4

    # ---- gradient checkpointing

    @pytest.mark.parametrize("frozen", [False, True], ids=["norm", "frozen-norm"])
    def test_checkpointing_changes_nothing_but_memory(self, network, case, frozen):
        plain, forgetful = copy.deepcopy(network), copy.deepcopy(network)
        assert checkpoint_blocks(forgetful.blocks()) >= case.blocks
        found = []
        for one in (plain, forgetful):
            freeze_norm(one) if frozen else one.train()
            kept = 0

            def keep(value: Tensor) -> Tensor:
                nonlocal kept
                kept += value.numel()
                return value

            with torch.autograd.graph.saved_tensors_hooks(keep, lambda value: value):
                loss = loss_of(one, images())
            loss.backward()
            found.append((loss.detach(), gradients(one), kept))
        (loss, expected, much), (other_loss, other, little) = found
        assert torch.equal(loss, other_loss)
        for name, gradient in expected.items():
            torch.testing.assert_close(other[name], gradient, rtol=1e-5, atol=1e-7, msg=name)
        assert little < 0.8 * much
        state = forgetful.state_dict()
        assert list(state) == list(plain.state_dict())
        for name, value in plain.state_dict().items():
            assert torch.equal(state[name], value), name
        counters = {name: int(v) for name, v in state.items() if name.endswith("num_batches_tracked")}
        assert set(counters.values()) <= {7 if frozen else 8}

    def test_checkpointed_network_evaluates_and_copies(self, changeable, reference):
        checkpoint_blocks(changeable.blocks())
        checkpoint_blocks(changeable.blocks())  # twice is once
        twin = copy.deepcopy(changeable)
        with torch.no_grad():
            assert torch.equal(changeable.eval()(images()).logits, reference)
            assert torch.equal(twin.eval()(images()).logits, reference)
        torch.testing.assert_close(twin(images()).logits, reference, rtol=1e-5, atol=1e-5)
        loss_of(twin.train(), images()).backward()
        assert gradients(twin)
        assert all(p.grad is None for p in changeable.parameters())
        twin.classifier.grow(1)
        assert list(twin.state_dict())[: len(changeable.state_dict())] == list(changeable.state_dict())


class AttentionTester(Tester):
    """What holds for a network with attentions."""

    def test_attentions(self, network, case, reference):
        assert network.has_attentions
        with torch.no_grad():
            out = network.eval()(images(), attentions=True)
        assert len(out.attentions) == case.attentions == len(list(network.blocks()))
        for attention in out.attentions:
            assert attention.ndim == 4
            assert len(attention) == 2
            assert attention.min() >= 0
            torch.testing.assert_close(attention.sum(-1), torch.ones(attention.shape[:-1]))
        # Some block looks more closely at one place than at another.
        assert max(attention.std(-1).max() * attention.shape[-1] for attention in out.attentions) > 0.05
        torch.testing.assert_close(out.logits, reference, rtol=0, atol=1e-4)

    @torch.no_grad()
    def test_attention_is_fused_again_after_it_was_shown(self, network, case, monkeypatch):
        network.eval()
        fused = []
        plain = nn.functional.scaled_dot_product_attention

        def counted(*args, **options):
            fused.append(1)
            return plain(*args, **options)

        monkeypatch.setattr(nn.functional, "scaled_dot_product_attention", counted)
        hooks = sum(len(module._forward_hooks) for module in network.modules())
        network(images(1))
        assert len(fused) == case.attentions
        network(images(1), attentions=True)
        assert len(fused) == case.attentions
        with monkeypatch.context() as broken:
            broken.setattr(list(network.blocks())[-1], "forward", _fail)
            with pytest.raises(RuntimeError, match="on purpose"):
                network(images(1), attentions=True)
        assert len(fused) == case.attentions
        assert network(images(1)).attentions is None
        assert len(fused) == 2 * case.attentions
        assert sum(len(module._forward_hooks) for module in network.modules()) == hooks

    def test_a_gradient_flows_through_attentions(self, changeable):
        out = changeable.eval()(images(), attentions=True)
        sum(attention.square().sum() for attention in out.attentions).backward()
        first = next(changeable.backbone.parameters())
        assert all(p.grad is not None for p in next(iter(changeable.blocks())).parameters())
        assert first.grad is not None
        assert first.grad.any()

    def test_attentions_under_checkpointing(self, network):
        plain, forgetful = copy.deepcopy(network), copy.deepcopy(network)
        checkpoint_blocks(forgetful.blocks())
        for one in (plain, forgetful):
            loss_of(one.train(), images(), attentions=True).backward()
        other = gradients(forgetful)
        for name, gradient in gradients(plain).items():
            torch.testing.assert_close(other[name], gradient, rtol=1e-5, atol=1e-7, msg=name)
        assert all(block.recompute for block in forgetful.blocks())


def _fail(*args: Any, **options: Any) -> None:
    raise RuntimeError("on purpose")
