"""FairCL on domain steps: the same classes in new domains, all labelled.

(1) Prototypes go on from where they are, or stay as anchors, and without a background class there is no p_0; (2) the
class distribution is that of all domains so far; (3) nothing is assigned, and no teacher is run. Nothing is replayed,
but the features of classes that a domain shows are renewed.
"""

import copy
from dataclasses import replace

import pytest
import torch
from tiny_steps import IMAGES, PERIOD, Run, World

from faircl.labels import IGNORE, UNLABELLED
from faircl.methods.base import ScannedBatch
from faircl.methods.state import load_method_state, method_state
from faircl.prototypes import PrototypeBank

TREATMENTS = ("assigned", "teacher", "online", "unbiased", "paper", "ignore", "background", "soft")


class Domains(World):
    """Two domains with all classes at both steps; in the second, class 0 is not to be seen."""

    def __init__(self, background=False, lacks=0):
        super().__init__(background)
        self.unlabelled = UNLABELLED
        self.lacks = lacks
        self.scans = 0

    def labels(self, step):
        labels = self.truth.masked_fill(self.void, IGNORE)
        return labels.masked_fill(labels == self.lacks, IGNORE) if step > 0 else labels

    def context(self, step, model):
        context = super().context(step, model)
        classes = self.channels[1]
        labels = self.labels(step)

        def scan(windows=0):
            self.scans += 1
            for k in range(IMAGES):
                yield ScannedBatch([str(k)], labels[k : k + 1], model(self.image[k : k + 1]))

        return replace(
            context,
            old_classes=classes if step else 0,
            classes=classes,
            domain=step > 0,
            label_pixels=torch.bincount(labels[labels < classes], minlength=classes),
            pixels=int((labels != IGNORE).sum()),
            scan=scan,
        )


def trained(step=0, world=None, iterations=6, **method):
    """A run at the end of a step."""
    r = Run(world or Domains(), **{"period": PERIOD, "queue": 20, **method})
    for t in range(step + 1):
        r.begin(t)
        for _ in range(iterations):
            update(r)
        r.method.end_step(r.context)
    return r


def update(r):
    """One update as the engine makes it."""
    r.iteration += 1
    batch, out, targets, terms = r.forward()
    assert all(term.isfinite() for term in terms.values())
    r.optimizer.zero_grad()
    sum(terms.values()).backward()
    r.optimizer.step()
    r.method.observe(batch, out, targets, r.iteration)
    r.method.after_update(r.iteration)


each_name = pytest.mark.parametrize("name", ["faircl-paper", "faircl"])


@each_name
@pytest.mark.parametrize("treatment", TREATMENTS)
def test_true_labels_are_trained_on_and_nothing_is_assigned(treatment, name):
    world = Domains()
    r = trained(world=world, name=name, unlabelled=treatment)
    r.begin(1)
    batch, _, targets, terms = r.forward()
    assert torch.equal(targets, batch.labels)
    assert batch.windows is None
    assert "replay" not in terms
    assert r.context.assigned is None
    assert r.teacher is None
    assert world.scans == 0


@each_name
def test_the_classifier_neither_grows_nor_starts_anew(name):
    r = trained(name=name)
    before = copy.deepcopy(r.model.state_dict())
    r.begin(1)
    assert all(torch.equal(value, before[name]) for name, value in r.model.state_dict().items())
    assert r.model.classifier.sizes == [4]


@each_name
def test_without_a_background_class_there_is_no_p0(name):
    r = trained(name=name)
    assert r.method.bank.classes == 4
    assert r.method.bank.ready.all()


@each_name
def test_prototypes_go_on_slowly_from_where_they_are(name):
    r = trained(name=name, lambda_cluster=0.1)
    before = r.method.bank.prototypes.clone()
    r.begin(1, lr=0.0)
    bank = r.method.bank
    assert not bank.frozen.any()
    for _ in range(PERIOD):
        update(r)
    # By hand: at M already p moves by .999 towards the mean of the queue, and does not jump to it.
    for c in range(4):
        filled = int(bank.filled[c])
        expected = before[c] if filled == 0 else 0.999 * before[c] + 0.001 * bank.queue[c, :filled].mean(0)
        torch.testing.assert_close(bank.prototypes[c], expected)
    assert torch.equal(bank.prototypes[0], before[0])  # a class that the new domain lacks
    assert not torch.equal(bank.prototypes[1:], before[1:])


@each_name
def test_anchors_stay_bitwise_and_draw_features(name):
    r = trained(name=name, lambda_cluster=0.1, domain_prototypes="anchor")
    before = r.method.bank.prototypes.clone()
    r.begin(1)
    assert r.method.bank.frozen.all()
    for _ in range(3 * PERIOD):
        update(r)
    _, _, _, terms = r.forward()
    assert terms["cluster"] > 0
    r.method.end_step(r.context)
    assert torch.equal(r.method.bank.prototypes, before)


def test_a_class_that_no_domain_has_shown_yet_gets_its_prototype_when_it_comes():
    for anchor in (True, False):
        bank = PrototypeBank(2, length=4, period=1, momentum=0.5)
        bank.begin_step(2, background=False)
        bank.push(torch.tensor([[1.0, 2.0]]), torch.tensor([0]), torch.tensor([5]), quota=4)
        bank.update(1)
        bank.finish_step()
        assert bank.ready.tolist() == [True, False]
        bank.begin_domain_step(anchor, momentum=0.9)
        assert bank.frozen.tolist() == [anchor, False]
        bank.push(torch.tensor([[3.0, 4.0], [7.0, 8.0]]), torch.tensor([0, 1]), torch.tensor([5, 6]), quota=4)
        bank.update(1)
        first = [1.0, 2.0] if anchor else [0.9 + 0.3, 1.8 + 0.4]
        torch.testing.assert_close(bank.prototypes, torch.tensor([first, [7.0, 8.0]]))


def test_a_class_step_after_domain_steps_has_its_usual_momentum_again():
    bank = PrototypeBank(1, length=4, period=1, momentum=0.5)
    bank.begin_step(1, background=False)
    bank.begin_domain_step(anchor=False, momentum=0.9)
    bank.begin_step(2, background=False)
    bank.push(torch.tensor([[8.0]]), torch.tensor([1]), torch.tensor([1]), quota=4)
    bank.update(1)
    bank.push(torch.tensor([[0.0]]), torch.tensor([1]), torch.tensor([1]), quota=4)
    bank.update(2)
    assert bank.frozen.tolist() == [True, False]
    assert bank.prototypes[1].item() == pytest.approx(0.5 * 8 + 0.5 * 4)


@each_name
def test_the_class_distribution_is_that_of_all_domains_so_far(name):
    world = Domains()
    r = trained(world=world, name=name)
    r.begin(1)
    counts = torch.zeros(4)
    for step in (0, 1):
        for value in world.labels(step).flatten().tolist():
            if value != IGNORE:
                counts[value] += 1
    torch.testing.assert_close(r.method.distribution.share, counts / counts.sum())
    assert r.method.distribution.share[0] > 0  # though the second domain has none of it
    assert r.method.distribution.pixels == int(counts.sum())


@pytest.mark.parametrize("treatment", ["unbiased", "soft"])
def test_background_is_a_class_like_the_others_on_domain_steps(treatment):
    world = Domains(background=True, lacks=2)
    r = trained(world=world, unlabelled=treatment)
    r.begin(1)
    batch, _, targets, _ = r.forward()
    assert torch.equal(targets, batch.labels)
    assert (targets == 0).any()
    assert not r.method.bank.frozen.any()
    for _ in range(PERIOD):
        update(r)


@pytest.mark.parametrize("anchor", [True, False], ids=["anchor", "momentum"])
def test_remembered_features_are_those_of_the_last_domain_that_shows_a_class(anchor):
    r = trained(name="faircl", replay=5, domain_prototypes="anchor" if anchor else "momentum")
    before = r.method.memory.features.clone()
    r.begin(1)
    for _ in range(PERIOD):
        update(r)
    queue, filled = r.method.bank.queue.clone(), r.method.bank.filled.tolist()
    r.method.end_step(r.context)
    assert filled[0] == 0  # the second domain lacks it
    for c, kept in enumerate(r.method.memory.features):
        if filled[c] == 0:
            assert torch.equal(kept, before[c])
        else:
            assert not anchor  # whose queues stay empty
            assert all((queue[c, : filled[c]].half() == row).all(1).any() for row in kept)
    assert anchor == (sum(filled) == 0)


@each_name
def test_the_state_says_that_the_step_is_a_domain_step(name):
    r = trained(step=1, name=name)
    fresh = Run(Domains(), name=name, period=PERIOD, queue=20).method
    load_method_state(fresh, method_state(r.method))
    assert (fresh.old_classes, fresh.domain) == (4, True)
    assert fresh.distribution.pixels == r.method.distribution.pixels > 0
