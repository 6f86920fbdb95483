"""LwF, LwF-MC, ILT and MiB: what they add to cross-entropy, and what background means to MiB."""

from dataclasses import replace

import pytest
import torch
from tiny_steps import Run, World

from faircl.labels import UNLABELLED
from faircl.losses import upsampled_cross_entropy
from faircl.losses.binary import upsampled_binary_cross_entropy
from faircl.losses.distillation import binary_distillation, distillation, feature_distance, unbiased_distillation

METHODS = ("lwf", "lwf-mc", "ilt", "mib")
both = pytest.mark.parametrize("background", [True, False])


def at_step_one(name, background=True, **options):
    return Run(World(background), name=name, **options).to_step_one()


def outputs(r):
    batch = r.batch()
    with torch.no_grad():
        return batch, r.model(batch.image), r.teacher(batch.image)


@pytest.mark.parametrize("name", METHODS)
@both
def test_the_first_step_is_plain(name, background):
    r = Run(World(background), name=name).begin(0)
    _batch, out, targets, terms = r.forward()
    plain = upsampled_binary_cross_entropy if name == "lwf-mc" else upsampled_cross_entropy
    assert list(terms) == ["seg"]
    assert r.teacher is None
    torch.testing.assert_close(terms["seg"], plain(out.logits, targets))


@both
def test_terms_of_the_second_step(background):
    for name in METHODS:
        r = at_step_one(name, background)
        batch, out, old = outputs(r)
        targets = r.method.targets(batch, out, old)
        terms = r.method.losses(batch, out, old, targets)
        valid = torch.nn.functional.interpolate(
            (batch.labels != 65535)[:, None].float(), out.logits.shape[-2:], mode="nearest-exact"
        )[:, 0].bool()
        known = old.logits.shape[1]
        if name == "mib":
            grouped = known if background else 0
            kind = unbiased_distillation if background else distillation
            expected = {
                "seg": upsampled_cross_entropy(out.logits, targets, grouped=grouped),
                "distill": 10 * kind(out.logits, old.logits, valid),
            }
        elif name == "lwf-mc":
            expected = {
                "seg": upsampled_binary_cross_entropy(out.logits, targets),
                "distill": 10 * known * binary_distillation(out.logits, old.logits, valid),
            }
        else:
            expected = {
                "seg": upsampled_cross_entropy(out.logits, targets),
                "distill": 100 * distillation(out.logits, old.logits, valid),
            }
            if name == "ilt":
                expected["features"] = 100 * feature_distance(out.stages[-1], old.stages[-1])
        assert list(terms) == list(expected)
        for key, value in expected.items():
            torch.testing.assert_close(terms[key], value)


def test_mibs_first_iteration_costs_nothing_that_the_old_network_does_not():
    """Started from the background, new and old network agree: the unbiased distillation is the old entropy."""
    r = at_step_one("mib")
    batch, _, old = outputs(r)
    r.model.eval()
    with torch.no_grad():
        out = r.model(batch.image)
    everywhere = torch.ones(out.logits.shape[0], *out.logits.shape[-2:], dtype=torch.bool)
    entropy = -(old.logits.softmax(1) * old.logits.log_softmax(1)).mean(1).mean()
    torch.testing.assert_close(unbiased_distillation(out.logits, old.logits, everywhere), entropy)


@pytest.mark.parametrize("name", METHODS)
def test_domain_steps_train_on_all_labels_with_plain_distillation(name):
    r = Run(World(True), name=name).begin(0)
    r.iterate(2)
    r.end()
    world = r.world

    def context(step, model, original=world.context):
        made = original(0, model)
        return replace(made, step=step, old_classes=made.classes, domain=True, unlabelled=UNLABELLED)

    world.context = context
    world.labels = lambda step, original=world.labels: original(0)
    r.begin(1)
    assert r.model.classifier.sizes == [world.channels[0]]
    batch, _out, targets, terms = r.forward()
    assert torch.equal(targets, batch.labels)
    assert "distill" in terms
    if name == "mib":
        assert (r.method.grouped, r.method.background) == (0, 0)
    assert all(value.isfinite() for value in terms.values())


def test_sequential_background_hides_nothing():
    r = Run(World(True), name="mib").begin(0)
    r.iterate(1)
    r.end()
    context = replace(r.world.context(1, r.model.eval()), unlabelled=UNLABELLED)
    r.method.begin_step(context)
    assert (r.method.grouped, r.method.background) == (0, 1)  # yet the old network calls new classes background


@pytest.mark.parametrize("name", METHODS)
def test_a_weight_of_zero_switches_its_term_off(name):
    options = {"distill": 0} | ({"features": 0} if name == "ilt" else {})
    assert list(at_step_one(name, **options).forward()[-1]) == ["seg"]
