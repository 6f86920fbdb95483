"""SDR: its terms by step and setting, its running prototypes, its state."""

import copy
from dataclasses import replace

import pytest
import torch
from tiny_steps import Run, World

from faircl.labels import IGNORE, UNLABELLED
from faircl.losses import upsampled_cross_entropy
from faircl.losses.distillation import distillation, unbiased_distillation
from faircl.losses.latent_space import attraction, matching, repulsion, sparsity
from faircl.methods.feature_grid import to_stride, valid_pixels
from faircl.methods.sdr import SDRConfig
from faircl.methods.state import load_method_state, method_state

LATENT = ["match", "attract", "repel", "sparse"]
OFF = dict.fromkeys(["distill", *LATENT], 0.0)
both_worlds = pytest.mark.parametrize("background", [True, False], ids=["background", "none"])


class Domains(World):
    """All classes, labelled, at both steps."""

    def __init__(self, background=False):
        super().__init__(background)
        self.unlabelled, self.channels = UNLABELLED, [self.channels[1]] * 2

    def labels(self, step):
        return self.truth.masked_fill(self.void, IGNORE)

    def context(self, step, model):
        return replace(super().context(step, model), domain=step > 0)


def sdr(background=True, world=None, **options):
    return Run(world or World(background), name="sdr", **options)


def seen(r):
    """One forward pass: the batch, both outputs, targets at the encoder's stride, terms."""
    batch, out, targets, terms = r.forward()
    with torch.no_grad():
        old = r.teacher(batch.image)
    return batch, out, old, to_stride(targets, out.stages[-1].shape[-2:]), terms


def test_published_defaults():
    config = SDRConfig()
    assert (config.init, config.distill, config.match) == ("random", 100, 0.01)
    assert (config.attract, config.repel, config.sparse) == (0.001, 0.001, 0.001)


@both_worlds
def test_first_step_is_plain_training(background):
    r = sdr(background).begin(0)
    assert r.teacher is None
    _, out, targets, terms = r.forward()
    assert list(terms) == ["seg"]
    assert terms["seg"].item() == upsampled_cross_entropy(out.logits, targets).item()
    assert r.method.step0_key() == sdr(background, sparse=0.5, init="background").method.step0_key()


@both_worlds
def test_terms_of_a_later_step(background):
    r = sdr(background).to_step_one(30)  # until the old network tells classes from background
    r.iterate(2)
    batch, out, old, labels, terms = seen(r)
    method, known = r.method, r.context.old_classes
    ready, classes, features = method.count > 0, r.context.classes, out.stages[-1]
    valid = valid_pixels(batch, out.logits.shape[-2:])
    targets = batch.labels.masked_fill(batch.labels == UNLABELLED, IGNORE)
    distil = unbiased_distillation if background else distillation
    coarse = to_stride(batch.labels, features.shape[-2:])
    guess = to_stride(old.logits.argmax(1), features.shape[-2:])
    pseudo = torch.where(coarse == r.world.unlabelled, guess, IGNORE)
    if background:
        pseudo[pseudo == 0] = IGNORE
    wanted = {
        "seg": upsampled_cross_entropy(out.logits, targets, grouped=known if background else 0),
        "distill": 100 * distil(out.logits, old.logits, valid),
        "match": 0.01 * matching(features, pseudo, method.prototypes, ready),
        "attract": 0.001 * attraction(features, labels, method.prototypes, ready),
        "repel": 0.001 * repulsion(features, labels, classes),
        "sparse": 0.001 * sparsity(features, labels, classes),
    }
    assert list(terms) == list(wanted)
    assert all(value > 0 for value in terms.values())
    for name, value in wanted.items():
        assert terms[name].item() == pytest.approx(value.item()), name


@pytest.mark.parametrize("name", ["distill", *LATENT])
def test_weights(name):
    r = sdr().to_step_one(30)
    r.iterate(2)
    before = r.forward()[-1][name].item()
    assert before > 0
    r.method.config = r.method.config.model_copy(update={name: 3 * getattr(r.method.config, name)})
    assert r.forward()[-1][name].item() == pytest.approx(3 * before)
    r.method.config = r.method.config.model_copy(update={name: 0.0})
    assert name not in r.forward()[-1]


def test_zero_weights_equal_plain_training():
    """Without a background class; with one the cross-entropy is MiB's, which is not plain."""
    histories = [Run(World(False), **o).to_step_one().iterate(4) for o in ({"name": "finetune"}, OFF | {"name": "sdr"})]
    assert histories[0] == histories[1]


@pytest.mark.parametrize(
    ("options", "wanted"),
    [({}, True), ({"distill": 0}, True), ({"match": 0}, True), ({"match": 0, "distill": 0}, False)],
)
def test_the_teacher_is_run_where_a_term_reads_it(options, wanted):
    assert (sdr(**options).to_step_one(1).teacher is not None) == wanted


@both_worlds
def test_prototypes_are_means_over_all_batches(background):
    r = sdr(background)
    features, labels = [], []
    for step in (0, 1):
        r.begin(step)
        for index in ((0, 1), (2, 3), (1,), (0, 3)):
            batch, out, targets, terms = r.forward(r.batch(index))
            sum(terms.values()).backward()
            r.update(batch, out, targets)
            features.append(out.stages[-1].detach().permute(0, 2, 3, 1).flatten(0, 2).double())
            labels.append(to_stride(targets, out.stages[-1].shape[-2:]).flatten())
        r.end()
    every, label = torch.cat(features), torch.cat(labels)
    assert r.method.count[0].item() == 0 or not background
    for y in range(int(background), r.context.classes):
        assert r.method.count[y] == (label == y).sum() > 0
        assert torch.allclose(r.method.prototypes[y].double(), every[label == y].mean(0), atol=1e-6)


def test_old_prototypes_stay_where_their_classes_are_hidden():
    r = sdr().to_step_one()
    before = r.method.prototypes[: r.context.old_classes].clone()
    r.iterate(3)
    assert torch.equal(r.method.prototypes[: r.context.old_classes], before)
    assert r.method.count[r.context.old_classes :].all()


def test_labelled_old_classes_are_matched_by_their_labels():
    """The sequential setting: nothing is hidden, background is background."""
    r = sdr().to_step_one()
    r.method.unlabelled_label = UNLABELLED
    batch = r.batch()._replace(labels=r.world.truth[:2])
    out, old = r.model(batch.image), r.teacher(batch.image)
    got = r.method._old_labels(batch, out, old)
    true = to_stride(batch.labels, out.stages[-1].shape[-2:])
    assert torch.equal(got, true.where(true < r.context.old_classes, IGNORE))


@both_worlds
def test_domain_step(background):
    r = sdr(world=Domains(background)).to_step_one()
    before = r.method.count.clone()
    batch, out, old, _, terms = seen(r)
    assert list(terms) == ["seg", "distill", "attract", "repel", "sparse"]
    assert terms["seg"].item() == upsampled_cross_entropy(out.logits, batch.labels).item()
    valid = valid_pixels(batch, out.logits.shape[-2:])
    assert terms["distill"].item() == pytest.approx(100 * distillation(out.logits, old.logits, valid).item())
    r.iterate(1)
    first = int(background)
    assert (r.method.count[first:] > before[first:]).all()
    assert sdr(world=Domains(), distill=0).to_step_one(1).teacher is None


def test_state_round_trip():
    r = sdr().to_step_one()
    r.iterate(2)
    fresh = sdr()
    load_method_state(fresh.method, method_state(r.method))
    fresh.model, fresh.teacher = copy.deepcopy(r.model), r.teacher
    fresh.step, fresh.context, fresh.iteration = r.step, r.context, r.iteration
    assert (fresh.method.old_classes, fresh.method.background, fresh.method.domain) == (3, 1, 0)
    for x in (r, fresh):
        x.optimizer = torch.optim.SGD(x.model.parameters(), 0.01)
    assert r.iterate(3) == fresh.iterate(3)
    assert all(torch.equal(a, b) for a, b in zip(r.method.buffers(), fresh.method.buffers(), strict=True))


@both_worlds
def test_a_batch_without_a_class_moves_nothing(background):
    r = sdr(background).to_step_one()
    batch = r.batch()
    batch = batch._replace(labels=torch.full_like(batch.labels, IGNORE))
    before = r.method.prototypes.clone()
    terms = r.iterate(1, batch)[0]
    assert set(terms.values()) == {0.0}
    assert torch.equal(r.method.prototypes, before)
