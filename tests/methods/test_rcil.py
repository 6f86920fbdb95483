"""RCIL: two branches while a step trains, a plain network between steps, and pooled distillation."""

import copy
import math
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from tiny_steps import Run, World, through_disk

from faircl.errors import UserError
from faircl.labels import IGNORE, UNLABELLED
from faircl.losses import upsampled_cross_entropy
from faircl.losses.distillation import distillation, unbiased_distillation
from faircl.losses.pod import like_old_logits
from faircl.losses.pooled_distillation import channel_pooled, spatial_pooled
from faircl.methods.feature_grid import valid_pixels
from faircl.methods.state import load_method_state
from faircl.models.parallel_branches import Branches
from faircl.registry import METHODS, MODELS

both_worlds = pytest.mark.parametrize("background", [True, False], ids=["background", "none"])
POOLED = ["spatial", "spatial_logits", "channel", "channel_embedding"]


def rcil(background=True, world=None, norm="batch", **options):
    return Run(world or World(background), norm=norm, **{"name": "rcil", **options})


def two(model):
    return [module for module in model.modules() if isinstance(module, Branches)]


class Domains(World):
    """All classes at both steps."""

    def __init__(self, background):
        super().__init__(background)
        self.unlabelled = UNLABELLED
        self.channels = [self.channels[1]] * 2

    def labels(self, step):
        return self.truth.masked_fill(self.void, IGNORE)

    def context(self, step, model):
        return replace(super().context(step, model), domain=step > 0)


# Steps


@pytest.mark.parametrize("norm", ["batch", "group"])
def test_between_steps_the_network_is_plain(norm):
    r = rcil(norm=norm)
    names = [name for name in r.model.state_dict() if not name.startswith("classifier.")]
    for step in (0, 1):
        r.begin(step)
        assert len(two(r.model)) == 10
        assert {branches.frozen for branches in two(r.model)} == {step > 0}
        r.iterate(3)
        mixed = r.model.eval()(r.world.image).logits
        r.end()
        assert two(r.model) == []
        assert [name for name in r.model.state_dict() if not name.startswith("classifier.")] == names
        torch.testing.assert_close(r.model.eval()(r.world.image).logits, mixed, rtol=1e-4, atol=1e-4)


def test_branches_begin_alike_and_the_teacher_is_plain():
    r = rcil().begin(0)
    for branches in two(r.model):
        first, second = branches.first.state_dict(), branches.second.state_dict()
        assert all(torch.equal(first[name], second[name]) for name in first)
    r.iterate(3)
    r.end().begin(1)
    assert two(r.teacher) == []


@pytest.mark.parametrize("branch", ["kept", "folded"])
def test_how_branches_begin_a_later_step(branch):
    r = rcil(branch=branch).begin(0)
    r.iterate(3)
    left = [copy.deepcopy(branches.second.state_dict()) for branches in two(r.model)]
    r.end()
    plain = copy.deepcopy(r.model.state_dict())
    r.begin(1)
    for branches, was in zip(two(r.model), left, strict=True):
        first, second = branches.first.state_dict(), branches.second.state_dict()
        wanted = was if branch == "kept" else first
        assert all(torch.equal(value, wanted[name]) for name, value in second.items())
    stem = two(r.model)[0].first
    assert torch.equal(stem.conv.weight, plain["backbone.stem.0.weight"])
    assert torch.equal(stem.norm.running_var, plain["backbone.stem.1.running_var"])


def test_the_frozen_branch_stays_and_all_else_trains():
    r = rcil().to_step_one()
    before = copy.deepcopy(r.model.state_dict())
    r.iterate(2)
    for name, value in r.model.state_dict().items():
        if value.is_floating_point():
            frozen = ".first.conv." in name or ".first.norm." in name
            assert torch.equal(value, before[name]) == frozen, name


def test_kept_branches_hold_no_memory_while_they_train():
    r = rcil().to_step_one()
    kept = dict(r.method.kept.named_buffers())
    assert all(value.numel() == 0 for value in kept.values())
    r.iterate(1)
    r.end()
    again = dict(r.method.kept.named_buffers())
    assert list(again) == list(kept)
    assert again["backbone/stem/0/conv/weight"].shape == (8, 3, 3, 3)
    assert list(rcil(branch="folded").method.state_dict()) == []


@pytest.mark.parametrize("branch", ["kept", "folded"])
def test_a_step_resumed_from_disk_is_the_same(branch, tmp_path):
    r = rcil(branch=branch).begin(0)
    r.iterate(2)
    r.end()
    fresh = rcil(branch=branch)
    load_method_state(fresh.method, through_disk(r.method, tmp_path))
    fresh.model.classifier.grow(r.world.channels[0])
    fresh.model.load_state_dict(r.model.state_dict())
    torch.manual_seed(3)
    wanted = r.begin(1).iterate(3)
    torch.manual_seed(4)  # branches are mixed by counters
    assert fresh.begin(1).iterate(3) == wanted
    states = [x.end().model.state_dict() for x in (r, fresh)]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_networks_without_3x3_are_refused():
    config = MODELS.parse_config({"name": "vit", "backbone": "vit_tiny_patch16_224"})
    model = MODELS.get("vit")(config)
    with pytest.raises(UserError, match="network 'vit' as configured has none; choose small, deeplabv3"):
        METHODS.get("rcil")(METHODS.parse_config("rcil"), model)


def test_first_steps_are_shared_where_they_leave_the_same():
    assert rcil(spatial=0.5, init="random", distill=1).method.step0_key() == rcil().method.step0_key()
    assert rcil(branch="folded").method.step0_key() != rcil().method.step0_key()


# Losses


@both_worlds
def test_first_step_is_plain_cross_entropy(background):
    r = rcil(background).begin(0)
    assert r.teacher is None
    _, out, targets, terms = r.forward()
    assert list(terms) == ["seg"]
    assert terms["seg"].item() == upsampled_cross_entropy(out.logits, targets).item()


@both_worlds
def test_losses_by_hand(background):
    weights = {"spatial": 0.3, "spatial_logits": 0.7, "channel": 0.2, "channel_embedding": 0.4}
    r = rcil(background, distill=3, **weights).to_step_one()
    r.iterate(1)
    batch, out, targets, terms = r.forward()
    with torch.no_grad():
        old = r.teacher(batch.image)
    before, after = r.world.channels
    grouped = before if background else 0
    assert terms["seg"].item() == upsampled_cross_entropy(out.logits, targets, grouped=grouped).item()
    distil = unbiased_distillation if background else distillation
    torch.testing.assert_close(
        terms["distill"], 3 * distil(out.logits, old.logits, valid_pixels(batch, out.logits.shape[-2:]))
    )
    growth = math.sqrt(after / (after - before))
    stages = list(zip(out.stages, old.stages, strict=True))
    maps = [*stages, (out.embedding, old.embedding)]
    seen = like_old_logits(out.logits, before, background)
    wanted = {
        "spatial": 0.3 * growth / 5 * sum(spatial_pooled(a, b) for a, b in maps),  # three stages, embedding, logits
        "spatial_logits": 0.7 * growth / 5 * spatial_pooled(seen, old.logits),
        "channel": 0.2 * growth / 4 * sum(channel_pooled(a, b) for a, b in stages),  # without the logits
        "channel_embedding": 0.4 * growth / 4 * channel_pooled(out.embedding, old.embedding),
    }
    assert list(terms) == ["seg", "distill", *POOLED]
    for name, value in wanted.items():
        torch.testing.assert_close(terms[name], value)
        assert value > 0


@pytest.mark.parametrize("off", ["distill", *POOLED])
def test_terms_of_no_weight_are_left_out(off):
    r = rcil(**{off: 0}).to_step_one(1)
    assert list(r.forward()[-1]) == [name for name in ("seg", "distill", *POOLED) if name != off]


@both_worlds
def test_domain_steps_have_pooled_distillation_alone(background):
    r = rcil(world=Domains(background)).to_step_one()
    r.iterate(1)
    batch, out, targets, terms = r.forward()
    assert list(terms) == ["seg", *POOLED]
    assert terms["seg"].item() == upsampled_cross_entropy(out.logits, targets).item()
    with torch.no_grad():
        old = r.teacher(batch.image)
    torch.testing.assert_close(terms["spatial_logits"], 5e-4 / 5 * spatial_pooled(out.logits, old.logits))


def test_the_teacher_is_asked_for_only_where_it_serves():
    nothing = dict.fromkeys(POOLED, 0)
    assert rcil(**nothing).to_step_one(1).teacher is not None  # for the logits
    assert rcil(**nothing, distill=0).to_step_one(1).teacher is None
    assert rcil(world=Domains(False), **nothing).to_step_one(1).teacher is None


# Around it


def test_ewf_around_it_fuses_plain_networks():
    r = rcil(name="ewf", method="rcil", freeze_old=False).begin(0)
    r.iterate(3)
    r.end()
    old = copy.deepcopy(r.model.state_dict())
    r.begin(1)
    r.iterate(2)
    alone = copy.deepcopy(r.method.inner._branches)
    alone.fold()
    new = alone.model.state_dict()
    r.end()
    share = math.sqrt(2 / 5)
    for name, value in r.model.state_dict().items():
        if name in old and value.is_floating_point():
            torch.testing.assert_close(value, (1 - share) * old[name] + share * new[name], msg=name)
    assert not torch.equal(old["backbone.stem.0.weight"], new["backbone.stem.0.weight"])


@pytest.mark.slow
def test_a_run_that_was_cut_short_ends_as_a_whole_one(tiny_train, silent, tmp_path):
    method = "method={name: ewf, method: rcil}"
    settings = (method, "scenario.task=4-3-3", "train.epochs=0.4", "train.later_epochs=0.4")
    whole = tiny_train(tmp_path / "whole", *settings)
    with pytest.raises(KeyboardInterrupt):
        tiny_train(tmp_path / "parts", *settings, reporter=silent("step 2 train"))
    parts = tiny_train(tmp_path / "parts", *settings, resume=True)
    for file in ("model.safetensors", "method.safetensors"):
        assert (parts.step_path(2) / file).read_bytes() == (whole.step_path(2) / file).read_bytes()
    assert "backbone.stem.0.weight" in load_file(whole.step_path(2) / "model.safetensors")
