"""PLOP's thresholds, pseudo labels, factor and weights, by hand and by loops."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.distributed as dist
from processes import start
from tiny_steps import Run, World

from faircl.distributed import global_sum, rank_slice, world_size
from faircl.labels import IGNORE, UNLABELLED
from faircl.losses import upsampled_cross_entropy
from faircl.losses.pod import like_old_logits, local_pod
from faircl.methods.assignment import Assignment, assign_by_softmax
from faircl.methods.entropy_labels import LEVELS, EntropyThresholds, kept_share, sure_labels
from faircl.methods.state import load_method_state, method_state

both_worlds = pytest.mark.parametrize("background", [True, False], ids=["background", "none"])


def plop(background=True, **options):
    return Run(World(background), name="plop", **options)


def one_row(labels, doubt):
    return Assignment(torch.tensor([[labels]]), torch.tensor([[doubt]]))


# Thresholds


def test_thresholds_are_medians_by_class():
    gen = torch.Generator().manual_seed(0)
    labels = torch.randint(4, (6, 15, 17), generator=gen)
    doubt = torch.rand((6, 15, 17), generator=gen) ** 3
    unlabelled = torch.rand((6, 15, 17), generator=gen) > 0.3
    doubts = EntropyThresholds(6)
    for k in (0, 2, 4):
        doubts.add(Assignment(labels[k : k + 2], doubt[k : k + 2]), unlabelled[k : k + 2])
    found = doubts.gather(0.001)
    for c in range(4):
        values = doubt[unlabelled & (labels == c)].numpy()
        median = np.quantile(values, 0.5, method="inverted_cdf")
        assert median < found[c] <= median + 1.01 / LEVELS
        assert (values < found[c].item()).mean() >= 0.5
    assert found[4:].tolist() == pytest.approx([0.001, 0.001])  # never predicted


def test_thresholds_by_hand():
    doubts = EntropyThresholds(3)
    everywhere = torch.ones(1, 1, 6, dtype=torch.bool)
    doubts.add(one_row([0, 0, 0, 1, 1, 1], [0.1, 0.9, 0.5, 0.0, 0.0, 1.0]), everywhere)
    assert doubts.gather(0.001).tolist() == pytest.approx([0.5 + 1 / LEVELS, 0.001, 0.001])
    assert doubts.gather(0.7).tolist() == pytest.approx([0.7, 0.7, 0.7])
    doubts.add(one_row([1] * 6, [1.0] * 6), everywhere)
    assert doubts.gather(0.001)[1].item() == 1
    doubts.add(one_row([2] * 6, [0.3] * 6), ~everywhere)  # labelled pixels do not count
    assert doubts.gather(0.001)[2].item() == pytest.approx(0.001)


@both_worlds
def test_thresholds_are_of_the_old_model_on_unlabelled_pixels(background):
    r = plop(background).begin(0)
    r.iterate(20)
    r.end().begin(1)
    world, known = r.world, r.world.channels[0]
    with torch.no_grad():
        logits = r.teacher(world.image).logits
    p = torch.nn.functional.interpolate(logits, (24, 24), mode="bilinear").softmax(1)
    doubt = -(p * p.log()).sum(1) / math.log(known)
    assert r.method.thresholds.shape == (known,)
    for c in range(known):
        values = doubt[(world.labels(1) == world.unlabelled) & (p.argmax(1) == c)].numpy()
        median = np.quantile(values, 0.5, method="inverted_cdf") if len(values) else 0.0
        assert r.method.thresholds[c].item() == pytest.approx(max(median, 0.001), abs=1.5 / LEVELS)


# Pseudo labels


def test_sure_labels_by_hand():
    tau = torch.tensor([0.2, 0.6, 0.001])
    given = one_row([0, 0, 0, 1, 1, 2], [0.1, 0.2, 0.3, 0.5, 0.7, 0.0])
    assert sure_labels(given, tau).tolist() == [[[0, IGNORE, IGNORE, 1, IGNORE, 2]]]


def test_kept_share_by_hand():
    targets = torch.tensor([[[0, IGNORE, 1, 3]], [[3, 3, IGNORE, 3]], [[IGNORE, IGNORE, 3, 3]]])
    unlabelled = torch.tensor([[[True, True, True, False]], [[False] * 4], [[True, True, False, False]]])
    assert kept_share(targets, unlabelled).tolist() == pytest.approx([2 / 3, 1, 0])


@both_worlds
def test_targets(background):
    r = plop(background).to_step_one(20)
    known = r.world.channels[0]
    r.method.thresholds = torch.linspace(0.3, 0.6, known)
    batch, _, targets, _ = r.forward()
    with torch.no_grad():
        logits = r.teacher(batch.image).logits
    labels, doubt = assign_by_softmax(logits, batch.labels.shape[-2:], doubt=True)
    kept = 0
    for y, was, c, u in zip(*(x.flatten().tolist() for x in (targets, batch.labels, labels, doubt)), strict=True):
        if was == r.world.unlabelled:
            sure = u < r.method.thresholds[c].item()
            assert y == (c if sure else IGNORE)
            kept += sure
        else:
            assert y == was  # new classes and void
    assert 0 < kept < (batch.labels == r.world.unlabelled).sum()


@both_worlds
def test_first_step_is_plain_cross_entropy(background):
    r = plop(background).begin(0)
    assert r.teacher is None
    batch, out, targets, terms = r.forward()
    assert torch.equal(targets, batch.labels.masked_fill(batch.labels == UNLABELLED, IGNORE))
    assert list(terms) == ["seg"]
    assert terms["seg"].item() == upsampled_cross_entropy(out.logits, targets).item()


@pytest.mark.parametrize("known", [1, 2])
def test_one_old_class_and_one_new_class(known):
    world = World(background=False)
    world.channels = [known, known + 1]
    world.truth = world.truth.clamp_max(known)
    r = Run(world, name="plop").to_step_one()
    batch, _, targets, terms = r.forward()
    assert r.method.thresholds.shape == (known,)
    if known == 1:  # a network of one class has no doubt
        assert (targets[batch.labels == UNLABELLED] == 0).all()
    assert all(term.isfinite() for term in terms.values())
    assert r.method._growth() == pytest.approx(math.sqrt(known + 1))


# Losses


@both_worlds
def test_losses_by_hand(background):
    r = plop(background, pod=0.3, pod_logits=0.7).to_step_one(20)
    r.method.thresholds = torch.full((r.world.channels[0],), 0.4)
    r.iterate(2)
    batch, out, targets, terms = r.forward()
    with torch.no_grad():
        old = r.teacher(batch.image)
    up = torch.nn.functional.interpolate(out.logits, (24, 24), mode="bilinear")
    total = 0.0
    for k in range(2):
        unlabelled = batch.labels[k] == r.world.unlabelled
        share = (unlabelled & (targets[k] != IGNORE)).sum() / unlabelled.sum()
        total += (
            share
            * torch.nn.functional.cross_entropy(up[k : k + 1], targets[k : k + 1], ignore_index=IGNORE)
            * ((targets[k] != IGNORE).sum())
        )
    torch.testing.assert_close(terms["seg"], total / (targets != IGNORE).sum())

    before, after = r.world.channels
    factor = math.sqrt(after / (after - before)) / 5  # three stages, embedding, logits
    maps = [*zip(out.stages, old.stages, strict=True), (out.embedding, old.embedding)]
    torch.testing.assert_close(terms["pod"], 0.3 * factor * sum(local_pod(a, b) for a, b in maps))
    seen = like_old_logits(out.logits, before, background)
    torch.testing.assert_close(terms["pod_logits"], 0.7 * factor * local_pod(seen, old.logits))
    assert terms["pod"] > 0
    assert terms["pod_logits"] > 0


def test_an_image_without_unlabelled_pixels_counts_in_full():
    r = plop().to_step_one()
    batch = r.batch()
    labels = batch.labels.clone()
    labels[0] = r.world.channels[0]
    targets = r.forward(batch._replace(labels=labels))[2]
    share = r.method._image_weight(batch._replace(labels=labels), targets)
    assert share.shape == labels.shape
    assert (share[0] == 1).all()
    assert (share[1] < 1).all()


@pytest.mark.parametrize(
    ("options", "names"),
    [({"pod": 0}, ["seg", "pod_logits"]), ({"pod_logits": 0}, ["seg", "pod"]), ({"pod": 0, "pod_logits": 0}, ["seg"])],
)
def test_terms_of_no_weight_are_left_out(options, names):
    r = plop(**options).to_step_one()
    assert list(r.forward()[-1]) == names
    assert r.teacher is not None  # it labels


def test_pod_of_a_network_that_has_not_moved_is_zero():
    r = plop(background=False, init="random").to_step_one()
    r.model.eval()
    terms = r.forward()[-1]
    assert terms["pod"].item() == 0
    assert terms["pod_logits"].item() < 1e-9  # a convolution with more channels rounds otherwise


# Other kinds of steps


class Domains(World):
    """All classes at both steps."""

    def __init__(self, background):
        super().__init__(background)
        self.unlabelled = UNLABELLED
        self.channels = [self.channels[1]] * 2

    def labels(self, step):
        return self.truth.masked_fill(self.void, IGNORE)

    def context(self, step, model):
        def scan():
            raise AssertionError("nothing is hidden")

        return replace(super().context(step, model), domain=step > 0, scan=scan)


@both_worlds
def test_domain_steps_have_pod_alone(background):
    r = Run(Domains(background), name="plop", pod=0.5).to_step_one()
    r.iterate(1)
    batch, out, targets, terms = r.forward()
    assert torch.equal(targets, batch.labels)
    assert r.method.thresholds.shape == (0,)
    assert terms["seg"].item() == upsampled_cross_entropy(out.logits, targets).item()
    with torch.no_grad():
        old = r.teacher(batch.image)
    maps = [*zip(out.stages, old.stages, strict=True), (out.embedding, old.embedding)]
    torch.testing.assert_close(terms["pod"], 0.5 / 5 * sum(local_pod(a, b) for a, b in maps))
    assert terms["pod_logits"] > 0


def test_domain_steps_without_pod_need_no_teacher():
    r = Run(Domains(False), name="plop", pod=0, pod_logits=0).to_step_one()
    assert r.teacher is None
    assert list(r.forward()[-1]) == ["seg"]


def test_a_step_that_hides_nothing_has_no_pseudo_labels():
    r = plop().begin(0)
    r.iterate(3)
    r.end()
    context = replace(r.world.context(1, r.model.eval()), unlabelled=UNLABELLED)
    assert not r.method.needs_scan(context)
    r.world.context = lambda step, model: context
    r.begin(1)
    batch, _, targets, terms = r.forward()
    assert torch.equal(targets, batch.labels)  # background is what it says
    assert list(terms) == ["seg", "pod", "pod_logits"]


# State


def test_state_is_whole():
    r = plop().to_step_one()
    r.iterate(1)
    fresh = plop()
    load_method_state(fresh.method, method_state(r.method))
    assert torch.equal(fresh.method.thresholds, r.method.thresholds)
    before, after = r.world.channels
    m = fresh.method
    assert (m.old_classes, m.classes, m.unlabelled_label, m.pseudo, m.background) == (before, after, 0, 1, 1)


def test_first_step_is_shared_by_all_settings():
    assert plop(pod=0.5, threshold=0.1, init="random").method.step0_key() == plop().method.step0_key()


# Processes


def shared_work():
    """POD, its gradient and thresholds over seven images, of which every process has its share."""
    gen = torch.Generator().manual_seed(0)
    new, old = torch.randn((2, 7, 3, 5, 6), generator=gen, dtype=torch.float64)
    labels, doubt = torch.randint(3, (7, 4, 5), generator=gen), torch.rand((7, 4, 5), generator=gen)
    scale = torch.tensor(1.5, dtype=torch.float64, requires_grad=True)
    loss = local_pod(scale * rank_slice(new), rank_slice(old))
    loss.backward()
    doubts = EntropyThresholds(4)
    for y, u in zip(rank_slice(labels), rank_slice(doubt), strict=True):
        doubts.add(Assignment(y[None], u[None]), torch.ones(1, 4, 5, dtype=torch.bool))
    means = [(global_sum(value) / world_size()).item() for value in (loss, scale.grad)]
    return means, doubts.gather(0.001).tolist()


@pytest.mark.slow
def test_several_processes_are_as_one():
    if not dist.is_gloo_available():
        pytest.skip("this torch has no gloo")
    means, thresholds = shared_work()
    for found in start(3, shared_work):
        assert found[0] == pytest.approx(means, abs=1e-12)
        assert found[1] == thresholds
