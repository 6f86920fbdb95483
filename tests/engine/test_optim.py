"""Learning-rate schedules against hand-computed values; parts of the network and their factors."""

import math

import pytest
import torch

from faircl.config.schema import OptimConfig, PartRates
from faircl.engine.optim import lr_factor, make_optimizer, make_schedule
from faircl.errors import UserError
from faircl.models.small import Small, SmallConfig


def network(heads=(3,)) -> Small:
    model = Small(SmallConfig(width=4, embedding=4))
    for size in heads:
        model.classifier.grow(size)
    return model


def factors(iterations: int, **settings) -> list[float]:
    return [lr_factor(OptimConfig(**settings), done, iterations) for done in range(iterations)]


def test_poly_by_hand():
    assert factors(4, schedule="poly", power=0.9) == pytest.approx([1, 0.75**0.9, 0.5**0.9, 0.25**0.9])
    assert factors(4, schedule="poly", power=2) == pytest.approx([1, 0.5625, 0.25, 0.0625])


def test_cosine_by_hand():
    half = math.sqrt(0.5)
    assert factors(4, schedule="cosine") == pytest.approx([1, (1 + half) / 2, 0.5, (1 - half) / 2])


def test_constant():
    assert factors(5, schedule="constant") == [1] * 5


def test_warm_up_by_hand():
    assert factors(6, schedule="constant", warmup=4) == pytest.approx([0.25, 0.5, 0.75, 1, 1, 1])
    assert factors(6, schedule="poly", power=1, warmup=2) == pytest.approx([0.5, 1, 1, 0.75, 0.5, 0.25])
    assert factors(6, schedule="cosine", warmup=2)[2:4] == pytest.approx([1, (1 + math.sqrt(0.5)) / 2])


@pytest.mark.parametrize("schedule", ["poly", "cosine", "constant"])
@pytest.mark.parametrize(("warmup", "iterations"), [(0, 1), (5, 3), (3, 3), (10, 1)])
def test_short_steps_and_long_warm_ups_stay_within_bounds(schedule, warmup, iterations):
    config = OptimConfig(schedule=schedule, warmup=warmup)
    for done in range(iterations + 2):  # LambdaLR asks once more after the last update
        factor = lr_factor(config, done, iterations)
        assert 0 <= factor <= 1
        assert isinstance(factor, float | int)
    assert lr_factor(config, 0, iterations) > 0


def test_the_schedule_multiplies_every_groups_rate():
    config = OptimConfig(lr=0.1, schedule="poly", power=1, parts=PartRates(backbone=0.5))
    optimizer = make_optimizer(config, network(), 0)
    schedule = make_schedule(config, optimizer, 4)
    seen = []
    for _ in range(4):
        seen.append({group["name"]: group["lr"] for group in optimizer.param_groups})
        optimizer.step()
        schedule.step()
    assert [rates["decoder"] for rates in seen] == pytest.approx([0.1, 0.075, 0.05, 0.025])
    assert [rates["backbone"] for rates in seen] == pytest.approx([0.05, 0.0375, 0.025, 0.0125])


def test_kinds_and_their_settings():
    sgd = make_optimizer(OptimConfig(lr=0.2, momentum=0.8, weight_decay=0.01, nesterov=True), network(), 0)
    assert isinstance(sgd, torch.optim.SGD)
    assert {(g["momentum"], g["weight_decay"], g["nesterov"]) for g in sgd.param_groups} == {(0.8, 0.01, True)}
    plain = make_optimizer(OptimConfig(momentum=0, nesterov=True), network(), 0)  # else an error in torch
    assert not plain.param_groups[0]["nesterov"]
    adam = make_optimizer(OptimConfig(name="adamw", betas=(0.8, 0.9), weight_decay=0.3), network(), 0)
    assert isinstance(adam, torch.optim.AdamW)
    assert {(g["betas"], g["weight_decay"]) for g in adam.param_groups} == {((0.8, 0.9), 0.3)}


def test_later_steps_have_their_own_rate_and_heads_their_own_part():
    config = OptimConfig(lr=0.1, later_lr=0.01, parts=PartRates(old_classifier=0.1, new_classifier=10))
    first = {g["name"]: g["lr"] for g in make_optimizer(config, network((3,)), 0).param_groups}
    later = {g["name"]: g["lr"] for g in make_optimizer(config, network((3, 2, 1)), 2).param_groups}
    assert first == pytest.approx({"backbone": 0.1, "decoder": 0.1, "new_classifier": 1})
    assert later == pytest.approx({"backbone": 0.01, "decoder": 0.01, "old_classifier": 0.001, "new_classifier": 0.1})
    assert make_optimizer(OptimConfig(lr=0.1), network(), 3).param_groups[0]["lr"] == 0.1


def test_every_parameter_is_in_exactly_one_group():
    model = network((3, 2))
    groups = make_optimizer(OptimConfig(), model, 1).param_groups
    ids = [id(p) for group in groups for p in group["params"]]
    assert sorted(ids) == sorted(id(p) for p in model.parameters())


def test_a_part_with_factor_zero_is_left_out():
    model = network()
    frozen = make_optimizer(OptimConfig(parts=PartRates(backbone=0)), model, 0)
    assert {group["name"] for group in frozen.param_groups} == {"decoder", "new_classifier"}
    assert not any(p.requires_grad for p in model.backbone.parameters())


def test_what_a_method_froze_stays_frozen():
    model = network()
    model.backbone.stem.requires_grad_(False)
    optimizer = make_optimizer(OptimConfig(), model, 1)
    moving = {id(p) for group in optimizer.param_groups for p in group["params"]}
    assert moving == {id(p) for p in model.parameters()} - {id(p) for p in model.backbone.stem.parameters()}
    assert not any(p.requires_grad for p in model.backbone.stem.parameters())


def test_parameters_outside_the_parts_are_refused():
    model = network()
    model.extra = torch.nn.Linear(2, 2)
    with pytest.raises(ValueError, match="never be trained"):
        make_optimizer(OptimConfig(), model, 0)


@pytest.mark.parametrize("settings", [{"betas": (1.0, 0.9)}, {"betas": (0.9, -0.1)}, {"warmup": -1}])
def test_values_that_torch_would_refuse_are_refused_by_the_configuration(settings):
    from faircl.config.run import parse_config

    with pytest.raises(UserError, match="optim"):
        parse_config({"data": "scenes", "model": "small", "method": "finetune", "optim": settings})


def test_nothing_left_to_train_is_refused():
    from faircl.config.run import parse_config

    parts = {"backbone": 0, "decoder": 0, "new_classifier": 0}
    with pytest.raises(UserError, match=r"optim: .*nothing would be trained"):
        parse_config({"data": "scenes", "model": "small", "method": "finetune", "optim": {"parts": parts}})


def test_nothing_left_to_train_at_later_steps_is_refused():
    from faircl.config.run import parse_config

    tree = {"data": "scenes", "model": "small", "method": "finetune"}
    none = {"backbone": 0, "decoder": 0, "old_classifier": 0, "new_classifier": 0}
    with pytest.raises(UserError, match="later steps"):
        parse_config(tree | {"optim": {"later_parts": none}})
    left = parse_config(tree | {"optim": {"later_parts": none | {"old_classifier": 1}}})
    assert left.optim.later_parts.old_classifier == 1


def test_factors_of_later_steps_act_at_later_steps_alone():
    config = OptimConfig(
        lr=0.1, parts=PartRates(backbone=0.5), later_parts=PartRates(backbone=0.0, decoder=0.2, old_classifier=0.3)
    )
    first = make_optimizer(config, network(), 0)
    assert sorted({group["lr"] for group in first.param_groups}) == pytest.approx([0.05, 0.1])
    model = network((3, 2))
    later = make_optimizer(config, model, 1)
    rates = {id(p): group["lr"] for group in later.param_groups for p in group["params"]}
    found = {part: rates.get(id(p), 0.0) for part, p in model.parameter_groups()}
    assert found == pytest.approx({"backbone": 0.0, "decoder": 0.02, "old_classifier": 0.03, "new_classifier": 0.1})
    frozen = {part for part, p in model.parameter_groups() if not p.requires_grad}
    assert frozen == {"backbone"}


def test_without_factors_of_later_steps_all_steps_have_the_same():
    config = OptimConfig(parts=PartRates(decoder=0.5))
    assert config.part_rates(0) == config.part_rates(3) == PartRates(decoder=0.5)
