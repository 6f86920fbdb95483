"""Methods around other methods: what they pass on, EWF's fusion and AWT's start of new classifiers."""

import dataclasses
import inspect
import math

import pytest
import torch
from tiny_steps import Run, World, through_disk

from faircl.config.run import parse_config
from faircl.errors import UserError
from faircl.labels import IGNORE
from faircl.methods.awt import strongest, top_channels
from faircl.methods.base import Method, Needs, ScannedBatch
from faircl.methods.ewf import fuse
from faircl.methods.state import load_method_state, method_state
from faircl.methods.wrapper import Wrapper
from faircl.models.segmenter import SegOutput
from faircl.registry import METHODS

WRAPPERS = ["ewf", "awt"]
each_wrapper = pytest.mark.parametrize("name", WRAPPERS)
NESTED = {"name": "ewf", "method": {"name": "awt", "method": {"name": "faircl", "period": 2}}}


def later(world=None, **options):
    """A run whose first step is trained and whose second is about to begin."""
    r = Run(world, **options).begin(0)
    r.iterate(4)
    return r.end()


def full_tree(method):
    return {"data": "scenes", "model": "small", "method": method}


# Settings


@each_wrapper
def test_wrap_mib_by_default(name):
    config = METHODS.parse_config(name)
    assert config.method == METHODS.parse_config("mib")
    assert METHODS.parse_config(config.model_dump(mode="json")) == config


def test_wrap_nested_settings_survive_being_written():
    config = parse_config(full_tree(NESTED))
    assert config.method.method.method.period == 2
    assert parse_config(config.model_dump(mode="json")) == config


@each_wrapper
def test_wrap_refuses_joint(name):
    with pytest.raises(ValueError, match="method joint has only one"):
        METHODS.parse_config({"name": name, "method": "joint"})


def test_wrap_refuses_itself_at_any_depth():
    with pytest.raises(ValueError, match="ewf is inside ewf"):
        METHODS.parse_config({"name": "ewf", "method": "ewf"})
    with pytest.raises(ValueError, match="ewf is inside ewf"):
        METHODS.parse_config({"name": "ewf", "method": {"name": "awt", "method": "ewf"}})


@pytest.mark.parametrize("depth", [1, 2])
def test_wrap_mistake_inside_is_told_in_one_sentence(depth):
    inner = {"name": "mib", "distil": 3}
    method = {"name": "ewf", "method": inner if depth == 1 else {"name": "awt", "method": inner}}
    words = r"Unknown setting 'distil' in method" + r"\.method" * depth + r"\. Did you mean 'distill'"
    with pytest.raises(UserError, match=words) as error:
        parse_config(full_tree(method))
    assert "\n" not in str(error.value)
    with pytest.raises(UserError, match="Unknown method 'mob'"):
        parse_config(full_tree({"name": "ewf", "method": "mob"}))


# Passing on


def test_wrap_passes_every_hook_on():
    hooks = {name for name, value in vars(Method).items() if inspect.isfunction(value) and not name.startswith("_")}
    # What a method calls itself is not the engine's to call.
    assert hooks - {"cross_entropy", "binary_cross_entropy"} <= set(vars(Wrapper))


@each_wrapper
@pytest.mark.parametrize("wants", [True, False])
def test_wrap_asks_for_attentions_if_the_inner_method_does(name, wants, monkeypatch):
    needs = Needs(attentions=wants)
    monkeypatch.setattr(METHODS.get("finetune"), "needs", needs)
    assert Run(name=name, method="finetune").method.needs is needs
    assert not Run(name="ewf").method.needs.attentions


@each_wrapper
def test_wrap_first_step_is_the_inner_methods(name):
    plain, wrapped = Run(name="mib").begin(0), Run(name=name).begin(0)
    assert plain.iterate(3) == wrapped.iterate(3)
    states = [r.end().model.state_dict() for r in (plain, wrapped)]
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])
    assert wrapped.method.step0_key() == {"wrapped": plain.method.step0_key()}


def test_wrap_state_goes_to_disk_and_back(tmp_path):
    r = Run(**NESTED).to_step_one()
    r.iterate(3)
    r.end()
    state = r.method.state_dict()
    assert "inner.inner.bank.prototypes" in state
    assert all(name.startswith("inner.inner.") for name in state)
    fresh = Run(**NESTED)
    load_method_state(fresh.method, through_disk(r.method, tmp_path))
    got = fresh.method.state_dict()
    assert all(torch.equal(got[name], state[name]) for name in state)
    assert fresh.method.inner.inner.old_classes == r.method.inner.inner.old_classes > 0
    with pytest.raises(ValueError, match="do not fit"):
        load_method_state(Run(name="faircl").method, method_state(r.method))


# EWF


def test_ewf_fuses_by_hand():
    state = {"w": torch.tensor([4.0, -2.0]), "new": torch.tensor([7.0]), "count": torch.tensor(9)}
    fuse(state, {"w": torch.tensor([0.0, 2.0])}, 0.25)
    assert state["w"].tolist() == [1.0, 1.0]
    assert state["new"].item() == 7
    assert state["count"].item() == 9


@pytest.mark.parametrize("background", [True, False])
def test_ewf_fuses_all_the_network_had_before(background):
    r = later(World(background), name="ewf", norm="batch", freeze_old=False)
    old = {k: v.clone() for k, v in r.model.state_dict().items()}
    r.begin(1)
    r.iterate(3)
    new = {k: v.clone() for k, v in r.model.state_dict().items()}
    r.end()
    share = math.sqrt(2 / (5 if background else 4))  # two classes join two, and the background where there is one
    got = r.model.state_dict()
    assert any("running_var" in name for name in old)
    for name, value in got.items():
        if name not in old or not value.is_floating_point():
            assert torch.equal(value, new[name]), name
        else:
            torch.testing.assert_close(value, (1 - share) * old[name] + share * new[name], msg=name)
    counter = next(name for name in got if name.endswith("num_batches_tracked"))
    assert got[counter] == old[counter] + 3
    assert r.method._old == {}


def test_ewf_leaves_the_first_step_alone():
    r = Run(name="ewf").begin(0)
    r.iterate(2)
    before = {k: v.clone() for k, v in r.model.state_dict().items()}
    after = r.end().model.state_dict()
    assert all(torch.equal(before[k], after[k]) for k in before)


@pytest.mark.parametrize("freeze", [True, False])
def test_ewf_freezes_old_classifiers(freeze):
    r = later(name="ewf", freeze_old=freeze, method={"name": "mib", "init": "random"})
    before = [p.clone() for p in r.model.classifier.heads[0].parameters()]
    r.begin(1)
    frozen = {n for n, p in r.model.named_parameters() if not p.requires_grad}
    assert frozen == ({"classifier.heads.0.weight", "classifier.heads.0.bias"} if freeze else set())
    r.iterate(2)
    same = [torch.equal(a, b) for a, b in zip(before, r.end().model.classifier.heads[0].parameters(), strict=True)]
    assert all(same) if freeze else not any(same)


def test_ewf_on_domain_steps():
    r = later(name="ewf", domain_alpha=0.25, method="finetune")
    old = {k: v.clone() for k, v in r.model.state_dict().items()}
    context = dataclasses.replace(r.world.context(1, r.model), classes=3, domain=True)
    r.method.begin_step(context)
    assert all(p.requires_grad for p in r.model.parameters())
    with torch.no_grad():
        for parameter in r.model.parameters():
            parameter += 1
    r.method.end_step(context)
    for name, parameter in r.model.named_parameters():
        torch.testing.assert_close(parameter.detach(), old[name] + 0.25)


# AWT


def scanned(embedding, labels):
    return ScannedBatch(["a", "b"], labels, SegOutput(embedding[:, :1], embedding, ()))


def test_awt_attribution_is_integrated_gradients():
    """The path integral of the gradient from zero, as a sum of many, against the closed form."""
    torch.manual_seed(0)
    x, w, b = torch.randn(1, 5, 2, 3).double(), torch.randn(5).double(), 0.7
    point = (torch.linspace(0, 1, 9).double()[:, None, None, None] * x).requires_grad_()
    (torch.einsum("ndhw,d->nhw", point, w) + b).sum().backward()
    integrated = x[0] * point.grad.mean(0)
    best = strongest(scanned(x, torch.full((1, 2, 3), 3)), w, 3, 1)
    torch.testing.assert_close(best[0, 0], integrated.flatten(1).amax(1))


def test_awt_scores_by_hand():
    embedding = torch.tensor([[[[1.0, 5, -3, 9]], [[2.0, 1, 4, 9]]], [[[7.0, 8, 9, 9]], [[1.0, 1, 1, 1]]]])
    labels = torch.tensor([[[3, 4, 3, IGNORE]], [[0, 0, 4, 1]]])
    weight = torch.tensor([2.0, -1.0])
    together = strongest(scanned(embedding, labels), weight, 3, 1)
    assert together.tolist() == [[[10, -1]], [[18, -1]]]
    each = strongest(scanned(embedding, labels), weight, 3, 2)
    assert each.tolist() == [[[2, -2], [10, -1]], [[-math.inf, -math.inf], [18, -1]]]


def test_awt_chooses_the_highest_share():
    scores = torch.tensor([[0.0, 3, -1, 2, -5, -6, -7, -8], [math.nan] * 8])
    mask = top_channels(scores, 0.25)
    assert mask.tolist() == [[False, True, False, True, False, False, False, False], [False] * 8]
    assert top_channels(scores[:1], 0.01).sum() == 1
    assert top_channels(-scores[:1].abs() - 1, 1.0).all()


@pytest.mark.parametrize("per_class", [True, False])
@pytest.mark.parametrize("inner", ["mib", "finetune"])
def test_awt_starts_from_random_and_the_background(inner, per_class):
    reference = later(name="finetune")
    reference.begin(1)
    r = later(name="awt", method=inner, per_class=per_class)
    r.model.load_state_dict({k: v for k, v in reference.model.state_dict().items() if "heads.1" not in k})
    background = r.model.classifier.heads[0].weight[0, :, 0, 0].detach().clone()
    bias = r.model.classifier.heads[0].bias.detach().clone()
    scores = r.method._scores(r.world.context(1, r.model.eval()), background, 2 if per_class else 1)
    r.begin(1)
    head, random = r.model.classifier.heads[1], reference.model.classifier.heads[1]
    difference = (head.weight - random.weight)[:, :, 0, 0]
    mask = top_channels(scores, 0.25).expand(2, -1)
    assert mask.sum(1).tolist() == [2, 2]
    torch.testing.assert_close(difference, mask * background)
    assert torch.equal(head.bias, torch.zeros(2))
    assert torch.equal(r.model.classifier.heads[0].bias, bias)


def test_awt_can_share_the_backgrounds_bias():
    r = later(name="awt", copy_bias=True, method="finetune")
    bias = r.model.classifier.heads[0].bias.detach().clone()
    r.begin(1)
    heads = r.model.classifier.heads
    torch.testing.assert_close(heads[0].bias[0], bias[0] - math.log(3))
    assert torch.equal(heads[0].bias[1:], bias[1:])
    assert torch.equal(heads[1].bias, heads[0].bias[:1].expand(2))


def test_awt_without_background_is_the_inner_method():
    states = []
    for options in ({"name": "mib"}, {"name": "awt"}):
        r = later(World(background=False), **options).begin(1)
        states.append(r.model.state_dict())
    assert all(torch.equal(states[0][k], states[1][k]) for k in states[0])


def test_awt_class_that_no_image_shows_starts_at_random():
    r, plain = later(name="awt", method="finetune"), later(name="finetune").begin(1)
    context = r.world.context(1, r.model)
    r.method.begin_step(dataclasses.replace(context, scan=lambda *_: iter(())))
    assert torch.equal(r.model.classifier.heads[1].weight, plain.model.classifier.heads[1].weight)
