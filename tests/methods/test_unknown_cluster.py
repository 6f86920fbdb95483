"""The unknown cluster p_u: which pixels it takes, L_cluster with it, its prototype from step to step, its state."""

import copy
import math

import pytest
import torch
from loop_losses import cluster
from pydantic import ValidationError
from safetensors.torch import load_file
from tiny_steps import PERIOD, Run, World, through_disk

from faircl.labels import IGNORE
from faircl.losses import cluster_loss
from faircl.methods.faircl import FairCLConfig
from faircl.methods.faircl.unknown_cluster import UnknownCluster
from faircl.methods.state import load_method_state, method_state
from faircl.prototypes import PrototypeBank

TREATMENTS = ["paper", "soft", "assigned", "teacher", "online", "unbiased", "ignore", "background"]
SMALL_MARGIN = {"margin": 1.0, "scale_margin": False}  # some unlabelled pixels of the tiny network are farther
cells = (slice(None), slice(2, None, 4), slice(2, None, 4))  # nearest to the centres of 4×4 cells


# Which pixels


def banks(unknown=None, margin=5.0, order=2.0):
    """Classes 0 at (0, 0) and 1 at (20, 0), class 2 without a prototype, and p_u where it is given."""
    known = PrototypeBank(2, length=4, period=1, momentum=0.5)
    known.begin_step(3, background=False)
    known.prototypes[1] = torch.tensor([20.0, 0.0])
    known.ready[:2] = True
    own = UnknownCluster(2, 4, 1, 0.5, margin=margin, order=order)
    own.begin_step(3, background=False)
    if unknown is not None:
        own.prototypes[0], own.ready[0] = torch.tensor(unknown), True
    return known, own


def marked(points, labels, unlabelled, known, own, hides_classes=True):
    features = torch.tensor(points).t()[None, :, None]
    labels, unlabelled = torch.tensor([[labels]]), torch.tensor([[unlabelled]])
    return own.mark(features, labels, unlabelled, known, hides_classes)[0, 0].tolist()


def test_pixels_farther_than_the_margin_by_hand():
    points = [[3.0, 4.0], [3.1, 4.0], [14.0, 0.0], [9.0, 0.0], [0.0, 99.0]]
    given = [0, 0, 1, 0, 2]  # at 5, 5.06 and 6 from their class, and 9 but labelled; class 2 has no prototype
    assert marked(points, given, [True, True, True, False, True], *banks()) == [0, 3, 3, 0, 2]


def test_pixels_closer_to_the_unknown_cluster_by_hand():
    points = [[1.9, 0.0], [2.0, 0.0], [2.1, 0.0], [2.1, 0.0], [4.0, 4.0]]
    unlabelled = [True, True, True, False, True]
    assert marked(points, [0] * 5, unlabelled, *banks([4.0, 0.0])) == [0, 0, 3, 0, 3]
    assert marked(points, [0] * 5, unlabelled, *banks([99.0, 0.0])) == [0, 0, 0, 0, 3]  # 5.7 is beyond the margin
    assert marked(points, [0] * 5, unlabelled, *banks([99.0, 0.0], margin=8.0, order=1.0)) == [0] * 5  # |4| + |4| = 8


@pytest.mark.parametrize("hides_classes", [True, False])
def test_pixels_without_a_class(hides_classes):
    """Left out where they may show an old class, certainly unknown where they cannot."""
    found = marked([[0.0, 0.0]] * 2, [IGNORE] * 2, [True, False], *banks(), hides_classes=hides_classes)
    assert found == [IGNORE if hides_classes else 3, IGNORE]


# In a run


def at_step_one(background=True, iterations=PERIOD + 1, **options):
    given = {"unlabelled": "paper", "period": PERIOD, "unknown_cluster": True, "lambda_cluster": 0.02}
    options = {**given, **SMALL_MARGIN, **options}
    r = Run(World(background), **options).begin(0)
    r.iterate(2 * PERIOD)
    r.end().begin(1)
    r.iterate(iterations)
    return r


def loop_labels(r, batch, out):
    """Labels of L_cluster under ``paper`` at the second step, pixel by pixel."""
    bank, own, old = r.method.bank, r.method.unknown, r.world.channels[0]
    labels = batch.labels[cells].clone()
    for b, i, j in (labels == r.world.unlabelled).nonzero().tolist():
        f = out.embedding[b, :, i, j].tolist()
        known = [math.dist(f, p.tolist()) for p in bank.prototypes[:old]]
        alone = min(known) > min(r.method.margin, math.dist(f, own.prototypes[0].tolist()))
        labels[b, i, j] = bank.classes if alone else known.index(min(known))
    return labels


@pytest.mark.parametrize("background", [True, False])
def test_the_loss_and_the_queues_under_paper_by_a_loop(background):
    r = at_step_one(background)
    bank, own = r.method.bank, r.method.unknown
    assert own.ready.all()
    batch, out, targets, terms = r.forward()
    labels = loop_labels(r, batch, out)
    unknown = labels == bank.classes
    assert 0 < unknown.sum() < (batch.labels[cells] == r.world.unlabelled).sum()
    assert (targets[batch.labels == r.world.unlabelled] == IGNORE).all()  # L_seg knows nothing of it

    rows = out.embedding.detach().permute(0, 2, 3, 1).flatten(0, 2)
    prototypes = torch.cat([bank.prototypes, own.prototypes])
    pull, push = cluster(rows, labels.flatten(), prototypes, torch.ones(len(prototypes)).bool(), r.method.margin)
    expected = r.method.config.lambda_cluster * (pull + push)
    assert terms["cluster"].item() == pytest.approx(expected, rel=1e-4)

    before = own.filled.clone(), bank.filled.clone()
    r.method.observe(batch, out, targets, 99)
    assert own.filled - before[0] == min(unknown.sum(), r.method.config.quota)
    assert (bank.filled - before[1])[: r.world.channels[0]].eq(0).all()  # old classes are frozen, background too


def test_the_cluster_pulls_its_own_pixels_and_pushes_the_others():
    r = at_step_one(lambda_cluster=1.0)
    bank, own = r.method.bank, r.method.unknown
    batch, out, targets, _ = r.forward()
    features, labels = r.method._clustered(batch, out, targets)
    pixel = {name: (labels == c).nonzero()[0].tolist() for name, c in (("unknown", bank.classes), ("new", 3))}
    own.prototypes[0] = features.detach()[pixel["new"][0], :, pixel["new"][1], pixel["new"][2]] + 0.5
    leaf = features.detach().requires_grad_()
    loss = cluster_loss(leaf, labels, *own.beside(bank), 1e-3 + 0.5 * math.sqrt(8))
    for name, term, sign in (("unknown", loss.pull, 1), ("new", loss.push, -1)):
        (gradient,) = torch.autograd.grad(term, leaf, retain_graph=True)
        b, i, j = pixel[name]
        towards = own.prototypes[0] - leaf.detach()[b, :, i, j]
        step = -gradient[b, :, i, j]  # what descent adds to the feature
        assert sign * torch.dot(step, towards) > 0, name


@pytest.mark.parametrize("background", [True, False])
def test_the_first_step(background):
    """Background is split by the margin once it has a prototype; without one, unlabelled pixels are unknown at once."""
    r = Run(World(background), period=PERIOD, unknown_cluster=True, **SMALL_MARGIN).begin(0)
    r.iterate(PERIOD)
    bank, own = r.method.bank, r.method.unknown
    assert own.ready.tolist() == [not background]
    batch, out, targets, _ = r.forward()
    features, labels = r.method._clustered(batch, out, targets)
    unlabelled = batch.labels[cells] == r.world.unlabelled
    if background:
        far = (features.detach() - bank.prototypes[0][:, None, None]).norm(dim=1) > r.method.margin
        assert 0 < (far & unlabelled).sum() < unlabelled.sum()
        unlabelled &= far
    assert torch.equal(labels == bank.classes, unlabelled)
    assert torch.equal(labels[~unlabelled], batch.labels[cells][~unlabelled])


@pytest.mark.parametrize("treatment", TREATMENTS)
@pytest.mark.parametrize("background", [True, False])
def test_two_steps_under_every_treatment(treatment, background):
    r = at_step_one(background, unlabelled=treatment)
    batch, out, targets, terms = r.forward()
    assert all(value.isfinite() for value in terms.values())
    _, labels = r.method._clustered(batch, out, targets)
    unknown = labels == r.method.bank.classes
    assert (batch.labels[cells][unknown] == r.world.unlabelled).all()
    if treatment == "ignore" or (treatment == "background" and not background):
        assert not unknown.any()
    assert targets.lt(r.world.channels[1]).logical_or(targets == IGNORE).all()  # no channel for it


def test_one_more_prototype_than_classes_at_every_step():
    """As 152 for 151 classes; new classes take rows of their own, and p_u goes on."""
    r = Run(unlabelled="paper", period=PERIOD, unknown_cluster=True, **SMALL_MARGIN)
    for step, classes in enumerate((3, 5)):
        r.begin(step)
        prototypes, ready = r.method.unknown.beside(r.method.bank)
        assert prototypes.shape == (classes + 1, 8)
        assert ready.shape == (classes + 1,)
        assert r.method.bank.queue.shape == (classes, 500, 8)
        assert r.method.unknown.queue.shape == (1, 500, 8)
        r.iterate(2 * PERIOD)
        r.end()
        assert r.method.unknown.queue.shape == (1, 0, 8)
    assert r.method.unknown.beside(r.method.bank)[1].all()


def test_the_prototype_from_step_to_step_by_hand():
    """Kept until M, then the mean of the queue, then by momentum; background's is frozen after its step."""
    r = at_step_one(iterations=0, momentum=0.75)
    bank, own = r.method.bank, r.method.unknown
    start, classes = own.prototypes.clone(), bank.prototypes[:3].clone()
    r.iterate(PERIOD - 1)
    assert torch.equal(own.prototypes, start)
    r.iterate(1)
    mean = own.queue[0, : own.filled[0]].mean(0)
    torch.testing.assert_close(own.prototypes[0], mean)
    assert not torch.equal(own.prototypes, start)
    r.iterate(PERIOD)
    moved = 0.75 * mean + 0.25 * own.queue[0, : own.filled[0]].mean(0)
    torch.testing.assert_close(own.prototypes[0], moved)
    assert torch.equal(bank.prototypes[:3], classes)
    assert bank.moving.tolist() == [3, 4]


def test_replay_shows_kept_features_of_the_frozen_background():
    r = at_step_one(name="faircl", unlabelled="soft", replay=5)
    features, valid = r.method.memory.draw(r.method.bank, 0, 5)
    assert torch.equal(features[0], r.method.memory.features[0].float())
    assert valid[:3].all()


def test_both_sides_of_the_proposition_count_the_cluster():
    r = at_step_one(bound=True)
    batch, out, targets, _ = r.forward()
    old = r.teacher(batch.image)
    found = r.method.measures(batch, out, old, targets)["bound"]
    labels = loop_labels(r, batch, out)
    prototypes = torch.cat([r.method.bank.prototypes, r.method.unknown.prototypes])
    total, count = 0.0, 0
    for b, i, j in (labels != IGNORE).nonzero().tolist():
        p = prototypes[labels[b, i, j]].tolist()
        total += sum(math.dist(x.embedding[b, :, i, j].tolist(), p) for x in (out, old))
        count += 1
    assert found.item() == pytest.approx(total / count, rel=1e-4)


# State


@pytest.mark.parametrize("treatment", ["paper", "soft"])
def test_state_round_trip_within_a_step(treatment, tmp_path):
    r = at_step_one(unlabelled=treatment)
    fresh = at_step_one(unlabelled=treatment, iterations=0, seed=1)
    fresh.model, fresh.optimizer = copy.deepcopy(r.model), None
    fresh.method._classifier = fresh.model.classifier.weight_and_bias
    fresh.context.assigned, fresh.context.soft, fresh.iteration = r.context.assigned, r.context.soft, r.iteration
    load_method_state(fresh.method, through_disk(r.method, tmp_path))
    for x in (r, fresh):
        x.optimizer = torch.optim.Adam(x.model.parameters(), 0.01)
    histories = [x.iterate(2 * PERIOD) for x in (r, fresh)]
    assert histories[0] == histories[1]
    states = [method_state(x.method) for x in (r, fresh)]
    assert "unknown.prototypes" in states[0].tensors
    assert all(torch.equal(states[0].tensors[name], states[1].tensors[name]) for name in states[0].tensors)
    assert states[0].numbers == states[1].numbers


def test_off_by_default_and_then_nothing_is_kept():
    for name in ("faircl", "faircl-paper"):
        method = Run(name=name).begin(0).method
        assert method.unknown is None
        assert not any(key.startswith("unknown") for part in method_state(method) for key in part)
        assert torch.equal(method._prototypes()[0], method.bank.prototypes)


def test_it_needs_the_loss_it_acts_in():
    with pytest.raises(ValidationError, match="unknown_cluster acts in L_cluster, which lambda_cluster 0 switches off"):
        FairCLConfig(unknown_cluster=True, lambda_cluster=0)


def test_a_first_step_with_it_is_not_shared_with_one_without():
    assert Run(unknown_cluster=True).method.step0_key() != Run().method.step0_key()


def test_a_whole_run_has_it_in_its_files(tiny_train, tmp_path):
    method = (
        "method={name: faircl, unlabelled: paper, lambda_cluster: 0.02, period: 1, unknown_cluster: true, margin: 1.0}"
    )
    folder = tiny_train(tmp_path / "run", method, "scenario.task=6-4")
    assert all(math.isfinite(record["loss"]) for record in folder.records("train"))
    for step, classes in enumerate((7, 11)):
        state = load_file(folder.step_path(step) / "method.safetensors")
        assert state["bank.prototypes"].shape == (classes, 8)
        assert state["unknown.prototypes"].shape == (1, 8)
        assert state["unknown.ready"].all()
