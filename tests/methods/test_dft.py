"""DFT*: after the first step only new classifiers move."""

import dataclasses

import pytest
import torch
from tiny_steps import Run, World

from faircl.config.run import parse_config
from faircl.engine.network import set_training_mode
from faircl.engine.optim import make_optimizer
from faircl.labels import BACKGROUND


def first_step(**options):
    r = Run(name="dft", norm="batch", **options).begin(0)
    assert all(p.requires_grad for p in r.model.parameters())
    r.iterate(5)
    return r.end()


def settings(**changes):
    return parse_config({"data": "scenes", "model": "small", "method": "dft", **changes})


def test_dft_first_step_is_fine_tuning():
    histories = [Run(name=name).begin(0).iterate(4) for name in ("dft", "finetune")]
    assert histories[0] == histories[1]


@pytest.mark.parametrize("background", [True, False])
def test_dft_moves_the_new_head_alone(background):
    """As the engine trains it: weights, statistics and counters of all else stay bit for bit."""
    config = settings(optim={"weight_decay": 0.1})
    r = first_step(world=World(background))
    before = {k: v.clone() for k, v in r.model.state_dict().items()}
    r.begin(1)
    start = r.model.classifier.heads[1].weight.detach().clone()
    r.optimizer = make_optimizer(config.optim, r.model, 1)
    set_training_mode(r.model, config, 1)
    r.iterate(4)
    after = r.end().model.state_dict()
    assert any("running_mean" in name for name in before)
    assert [name for name in before if not torch.equal(before[name], after[name])] == []
    assert [group["name"] for group in r.optimizer.param_groups] == ["new_classifier"]
    assert not torch.equal(start, r.model.classifier.heads[1].weight)


def test_dft_background_pixels_only_push_new_logits_down():
    r = first_step().begin(1)
    batch = r.batch()
    batch = batch._replace(labels=torch.full_like(batch.labels, BACKGROUND))
    _, _, _, terms = r.forward(batch)
    terms["seg"].backward()
    assert (r.model.classifier.heads[1].bias.grad > 0).all()
    assert r.model.classifier.heads[0].bias.grad is None


def test_dft_domain_step_trains_the_whole_classifier():
    r = first_step()
    context = dataclasses.replace(r.world.context(1, r.model), classes=3, domain=True)
    r.method.begin_step(context)
    moving = {name for name, p in r.model.named_parameters() if p.requires_grad}
    assert moving == {"classifier.heads.0.weight", "classifier.heads.0.bias"}


def test_dft_frozen_parts_are_in_evaluation_mode_and_only_those():
    r = first_step()
    model = set_training_mode(r.model, settings(), 0)
    assert model.backbone.training
    assert model.decoder.training
    r.begin(1)
    model = set_training_mode(r.model, settings(), 1)
    assert not any(module.training for part in (model.backbone, model.decoder) for module in part.modules())
    assert model.training
    assert model.classifier.training
    assert model.dropout.training
