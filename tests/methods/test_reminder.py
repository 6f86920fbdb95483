"""REMINDER: PLOP's part as PLOP, prototypes by hand, similarities, and the steps that lack new classes."""

from dataclasses import replace

import pytest
import torch
from tiny_steps import Run, World

from faircl.labels import IGNORE, UNLABELLED
from faircl.losses.similarity_distillation import class_similarity, similarity_distillation
from faircl.methods.feature_grid import to_stride
from faircl.methods.reminder import REMINDERConfig
from faircl.methods.state import load_method_state, method_state

both_worlds = pytest.mark.parametrize("background", [True, False], ids=["background", "none"])


def reminder(background=True, **options):
    return Run(World(background), name="reminder", **options)


def mean_embedding(model, image, labels, c):
    with torch.no_grad():
        embedding = model.eval()(image).embedding
    chosen = to_stride(labels, embedding.shape[-2:]) == c
    return embedding.permute(0, 2, 3, 1)[chosen].mean(0)


@both_worlds
def test_prototypes_are_means_by_the_network_that_learned_the_class(background):
    r = reminder(background).begin(0)
    r.iterate(5)
    r.end()
    world, known = r.world, r.world.channels[0]
    assert r.method.prototypes.shape == (known, 8)
    assert r.method.ready.all()
    for c in range(known):
        wanted = mean_embedding(r.model, world.image, world.labels(0), c)
        torch.testing.assert_close(r.method.prototypes[c], wanted)
    first = r.method.prototypes.clone()
    r.begin(1).iterate(5)
    assert torch.equal(r.method.prototypes, first)
    r.end()
    assert torch.equal(r.method.prototypes[:known], first)  # background's too, which hides old classes by now
    for c in range(known, world.channels[1]):
        wanted = mean_embedding(r.model, world.image, world.labels(1), c)
        torch.testing.assert_close(r.method.prototypes[c], wanted)


@both_worlds
def test_terms_by_hand(background):
    r = reminder(background, similarity=0.7, temperature=2.0, delta=0.9).to_step_one(20)
    r.iterate(2)
    batch, out, targets, terms = r.forward()
    assert list(terms) == ["seg", "pod", "pod_logits", "similarity"]
    known, classes = r.world.channels
    with torch.no_grad():
        old = r.teacher(batch.image)
    labels = to_stride(targets, out.embedding.shape[-2:])
    rows = out.embedding.detach().permute(0, 2, 3, 1)
    means = torch.stack([rows[labels == c].mean(0) for c in range(known, classes)])
    assert (labels >= known).any()
    similar = class_similarity(means, r.method.prototypes, r.method.ready, 0.9)
    assert (similar == 0).any()
    wanted = 0.7 * similarity_distillation(out.logits, old.logits, labels, similar, 2.0)
    assert wanted > 0
    torch.testing.assert_close(terms["similarity"], wanted)


@both_worlds
def test_the_rest_is_plop(background):
    histories = [Run(World(background), name=name, **more).to_step_one() for name, more in METHOD_PAIR]
    terms = [x.forward()[-1] for x in histories]
    assert list(terms[0]) == ["seg", "pod", "pod_logits"]
    assert {k: terms[1][k].item() for k in terms[0]} == {k: v.item() for k, v in terms[0].items()}


METHOD_PAIR = [("plop", {}), ("reminder", {})]


def test_a_weight_of_zero_is_plop_without_another_look():
    r = reminder(similarity=0).to_step_one()
    assert list(r.forward()[-1]) == ["seg", "pod", "pod_logits"]
    assert r.method.prototypes.shape == (0, 8)
    histories = [x.iterate(3) for x in (r, Run(World(), name="plop").to_step_one())]
    assert histories[0] == histories[1]


def test_only_new_classes_pixels_are_distilled():
    r = reminder().to_step_one()
    r.iterate(1)
    _, out, targets, terms = r.forward()
    out.logits.retain_grad()
    terms["similarity"].backward()
    new = to_stride(targets, out.logits.shape[-2:])
    distilled = out.logits.grad.abs().sum(1) > 0
    known = r.world.channels[0]
    assert torch.equal(distilled, (new >= known) & (new != IGNORE))
    assert not out.logits.grad[:, known:].any()


def test_a_class_without_a_pixel_has_no_prototype_and_no_share():
    world = World()
    world.truth = world.truth.where(world.truth != 2, 1)
    r = Run(world, name="reminder").to_step_one()
    assert r.method.ready.tolist() == [True, True, False]
    assert r.method.prototypes.isfinite().all()
    assert r.forward()[-1]["similarity"].isfinite()


def test_no_new_pixel_in_the_batch():
    r = reminder().to_step_one()
    batch = r.batch()
    labels = batch.labels.where(batch.labels < r.world.channels[0], 0)
    terms = r.forward(batch._replace(labels=labels))[-1]
    assert terms["similarity"].item() == 0
    sum(terms.values()).backward()
    assert all(p.grad.isfinite().all() for p in r.model.parameters() if p.grad is not None)


class Domains(World):
    """All classes at both steps."""

    def __init__(self, background):
        super().__init__(background)
        self.unlabelled = UNLABELLED
        self.channels = [self.channels[1]] * 2

    def labels(self, step):
        return self.truth.masked_fill(self.void, IGNORE)

    def context(self, step, model):
        given = super().context(step, model)
        return given if step == 0 else replace(given, domain=True, scan=None)  # nobody looks


@both_worlds
def test_domain_steps_are_plops(background):
    runs = [Run(Domains(background), name=name).to_step_one() for name, _ in METHOD_PAIR]
    histories = [r.iterate(3) for r in runs]
    assert list(histories[0][0]) == ["seg", "pod", "pod_logits"]
    assert histories[0] == histories[1]
    prototypes = runs[1].method.prototypes.clone()
    assert torch.equal(runs[1].end().method.prototypes, prototypes)
    assert Run(Domains(background), name="reminder", pod=0, pod_logits=0).to_step_one().teacher is None


def test_the_old_network_is_run_for_similarity_alone():
    world = World()
    r = Run(world, name="reminder", pod=0, pod_logits=0)
    context = replace(world.context(1, r.model), unlabelled=UNLABELLED)  # sequential: no pseudo labels
    assert r.method.needs_teacher(context)
    assert not Run(world, name="reminder", pod=0, pod_logits=0, similarity=0).method.needs_teacher(context)


def test_state_is_whole():
    r = reminder().to_step_one()
    r.iterate(1)
    fresh = reminder()
    load_method_state(fresh.method, method_state(r.method))
    assert torch.equal(fresh.method.prototypes, r.method.prototypes)
    assert torch.equal(fresh.method.ready, r.method.ready)
    assert torch.equal(fresh.method.thresholds, r.method.thresholds)


def test_defaults_and_key():
    config = REMINDERConfig()
    assert (config.similarity, config.temperature, config.delta, config.pod) == (0.5, 3, 1, 0.01)
    keys = [reminder(**o).method.step0_key() for o in ({}, {"delta": 0, "pod": 1, "temperature": 1}, {"similarity": 0})]
    assert keys[0] == keys[1]
    assert keys[0] != keys[2]


def test_trains_through_the_engine_inside_a_wrapper(tiny_train, tmp_path):
    run = tiny_train(
        tmp_path / "run", "method={name: ewf, method: reminder}", "train.epochs=0.4", "train.later_epochs=0.4"
    )
    assert run.finished_steps() == 2
    terms = [record["terms"] for record in run.records("train") if record["step"] == 1]
    assert terms
    assert all(t["similarity"] > 0 for t in terms)
