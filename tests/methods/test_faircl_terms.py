"""FairCL's terms: which there are, when, and what they weigh."""

import math

import pytest
import torch
from tiny_steps import PERIOD, Run, World

from faircl.labels import IGNORE
from faircl.losses import upsampled_cross_entropy
from faircl.methods.faircl.class_term import weight_and_offset
from faircl.methods.faircl.config import FairCLConfig

OFF_BUT_CLASS = {"lambda_cluster": 0, "lambda_cons": 0}
OFF = OFF_BUT_CLASS | {"lambda_class": 0}
WEIGHTS = torch.tensor([0.5, 0.3, 0.15, 0.04, 0.01])


def later(iterations=2, **options):
    """A run some iterations into its second step."""
    r = Run(period=PERIOD, **options).to_step_one()
    r.iterate(iterations)
    return r


def probabilities(out, batch):
    up = torch.nn.functional.interpolate(out.logits, batch.labels.shape[-2:], mode="bilinear", align_corners=False)
    return up.double().softmax(1)


# Ablation rows


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (OFF, {"seg"}),
        (OFF | {"lambda_cluster": 0.1}, {"seg", "cluster"}),
        (OFF | {"lambda_cons": 1}, {"seg", "cons"}),
        (OFF | {"lambda_iou": 1}, {"seg", "iou"}),
        (OFF | {"lambda_class": 1}, {"seg"}),
        (OFF | {"lambda_class": 1, "fairness": "adjust"}, {"seg"}),
        (OFF | {"lambda_class": 1, "fairness": "kl"}, {"seg", "class"}),
        (OFF | {"lambda_class": 1, "fairness": "literal"}, {"seg", "class"}),
        (OFF | {"fairness": "kl"}, {"seg"}),
        ({"fairness": "kl"}, {"seg", "cluster", "class", "cons"}),
        ({}, {"seg", "cluster", "cons"}),
    ],
)
def test_a_weight_of_zero_removes_the_term(options, names):
    r = Run(period=PERIOD, **options).begin(0)
    assert set(r.iterate(PERIOD + 1)[-1]) == names


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({}, {"seg", "replay", "iou"}),
        ({"lambda_iou": 0}, {"seg", "replay"}),
        ({"lambda_replay": 0}, {"seg", "iou"}),
        ({"lambda_cluster": 0.02}, {"seg", "replay", "cluster", "iou"}),
        ({"lambda_replay": 0, "lambda_cluster": 0.02}, {"seg", "cluster", "iou"}),
        ({"lambda_cons": 1}, {"seg", "replay", "cons", "iou"}),
    ],
)
def test_replay_is_a_term_of_later_steps(options, names):
    r = Run(name="faircl", period=PERIOD, **options).begin(0)
    assert set(r.iterate(PERIOD + 1)[-1]) == names - {"replay"}
    r.end().begin(1)
    assert set(r.iterate(PERIOD + 1)[-1]) == names


@pytest.mark.parametrize(
    ("term", "weight", "options"),
    [
        ("cluster", "lambda_cluster", {}),
        ("cons", "lambda_cons", {}),
        ("iou", "lambda_iou", {}),
        ("class", "lambda_class", {"fairness": "kl"}),
        ("class", "lambda_class", {"fairness": "literal"}),
        ("replay", "lambda_replay", {}),
    ],
)
def test_terms_are_proportional_to_their_weight(term, weight, options):
    values = []
    for factor in (1.0, 3.0):
        r = Run(period=1, **options, **{weight: factor})
        r = r.to_step_one() if term == "replay" else r.begin(0)
        r.optimizer = torch.optim.SGD(r.model.parameters(), lr=0.0)
        values.append(r.iterate(3)[-1][term])
    assert values[0] != 0
    assert values[1] == pytest.approx(3 * values[0], rel=1e-5)


def test_pull_and_push_are_weighed_apart():
    parts = []
    for pull, push in ((1, 0), (0, 1), (2, 5)):
        r = Run(period=1, pull=pull, push=push).begin(0)
        r.optimizer = torch.optim.SGD(r.model.parameters(), lr=0.0)
        parts.append(r.iterate(3)[-1]["cluster"])
    assert min(parts) > 0
    assert parts[2] == pytest.approx(2 * parts[0] + 5 * parts[1], rel=1e-5)


# Algorithm 1 inside the loop


@pytest.mark.parametrize("unlabelled", ["soft", "assigned", "online", "unbiased", "paper", "background"])
@pytest.mark.parametrize("period", [1, 4])
def test_cluster_is_zero_for_m_iterations_of_each_step_and_positive_afterwards(period, unlabelled):
    r = Run(period=period, unlabelled=unlabelled, assign="prototype").begin(0)
    for step in (0, 1):
        cluster = [terms["cluster"] for terms in r.iterate(period + 3)]
        assert cluster[:period] == [0] * period
        assert min(cluster[period:]) > 0
        r.end()
        if step == 0:
            r.begin(1)


@pytest.mark.parametrize("background", [True, False])
def test_prototypes_move_only_where_and_when_they_may(background):
    r = Run(World(background), period=PERIOD).to_step_one()
    bank, old = r.method.bank, r.world.channels[0]
    start = bank.prototypes.clone()
    for iteration in range(1, 2 * PERIOD + 1):
        before = bank.prototypes.clone()
        r.iterate()
        moved = (bank.prototypes != before).any(1)
        may = torch.arange(bank.classes) >= old
        may[0] |= background
        assert torch.equal(moved, may & (iteration % PERIOD == 0)), iteration
    assert torch.equal(bank.prototypes[int(background) : old], start[int(background) : old])
    assert bank.ready.all()


def test_first_prototype_is_the_mean_of_the_labelled_features():
    r = Run(period=1, queue=10_000, quota=10_000).begin(0)
    _, out, targets, _ = r.forward()
    r.iterate()
    labels = targets[:, 2::4, 2::4]  # nearest to the centres of 4×4 cells
    for c in range(3):
        rows = [out.embedding[b, :, i, j] for b, i, j in (labels == c).nonzero().tolist()]
        torch.testing.assert_close(r.method.bank.prototypes[c], sum(rows).detach() / len(rows), rtol=1e-4, atol=1e-5)


def test_every_batch_of_an_accumulated_iteration_adds_its_own_quota():
    r = Run(quota=3).begin(0)
    for count, index in enumerate(((0, 1), (2, 3)), 1):
        batch, out, targets, _ = r.forward(r.batch(index))
        r.method.observe(batch, out, targets, iteration=1)
        assert r.method.bank.filled.tolist() == [3 * count] * 3  # each batch has more cells of every class


# L_class inside the segmentation loss


def pixelwise(r, weight_of):
    """Mean over valid pixels of weight·(−log p_y), the weight a function of (target, whether assigned)."""
    batch, out, targets, terms = r.forward()
    p = probabilities(out, batch)
    total = count = 0.0
    for b, i, j in (targets != IGNORE).nonzero().tolist():
        y = int(targets[b, i, j])
        assigned = bool(batch.labels[b, i, j] == 0)
        total -= weight_of(y, assigned) * math.log(p[b, y, i, j].item())
        count += 1
    return terms["seg"].item(), total / count


def importance(share, strength):
    raw = [min(max((1 / (len(share) * p)) ** 0.5, 0.2), 5.0) for p in share]
    mean = sum(p * w for p, w in zip(share, raw, strict=True))
    return [1 + strength * (w / mean - 1) for w in raw]


@pytest.mark.parametrize(("strength", "capped"), [(1.0, False), (0.4, False), (1.0, True)])
def test_importance_weighs_the_pixels(strength, capped):
    r = later(lambda_class=strength, cap_assigned=capped)
    r.method.distribution.share = WEIGHTS * 1.7  # shares of different steps need not sum to one
    weight = importance(WEIGHTS.tolist(), strength)
    assert max(weight) > 1.3
    assert min(weight) < 0.95
    found, expected = pixelwise(r, lambda y, assigned: min(weight[y], 1) if capped and assigned else weight[y])
    assert found == pytest.approx(expected, rel=1e-4)


def test_the_background_offset_lies_beside_the_weights():
    r = Run(period=PERIOD, lambda_class=0.4, background_offset=0.7, **OFF_BUT_CLASS).begin(0)
    share = torch.tensor([0.7, 0.2, 0.1])
    r.method.distribution.share = share
    weight = importance(share.tolist(), 0.4)
    offset = torch.tensor([0.7 * (math.log(weight[0]) - (math.log(weight[1]) + math.log(weight[2])) / 2), 0, 0])
    assert offset[0] < 0
    batch, out, targets, terms = r.forward()
    p = probabilities(out._replace(logits=out.logits + offset[:, None, None]), batch)
    valid = (targets != IGNORE).nonzero().tolist()
    losses = [weight[y := int(targets[b, i, j])] * -math.log(p[b, y, i, j].item()) for b, i, j in valid]
    assert terms["seg"].item() == pytest.approx(sum(losses) / len(losses), rel=1e-4)


@pytest.mark.parametrize(
    ("name", "unlabelled", "acts"), [("faircl", "soft", False), ("faircl-paper", "assigned", True)]
)
def test_the_background_offset_acts_where_labels_show_the_background(name, unlabelled, acts):
    """At a later step soft labels hold the background as the network before has it, and no label shows it."""
    losses = []
    for strength in (0.0, 1.0):
        options = {"lambda_replay": 0, "protect": 0, "background_offset": strength} | OFF_BUT_CLASS
        r = Run(name=name, unlabelled=unlabelled, period=PERIOD, **options).begin(0).end().begin(1)
        r.method.distribution.share = WEIGHTS
        losses.append(r.forward()[-1]["seg"].item())
    assert (losses[0] != losses[1]) is acts


@pytest.mark.parametrize("strength", [0.0, 0.3, 1.0])
def test_the_background_offset_takes_back_its_share_of_the_shift_from_the_background(strength):
    """A pixel that is class c with probability π_c: where the weighted loss is smallest, up to a constant."""
    config = FairCLConfig(background_offset=strength)
    weight, offset = weight_and_offset(config, WEIGHTS.double(), background=True)
    pi = torch.tensor([0.4, 0.3, 0.2, 0.07, 0.03], dtype=torch.float64)
    z = torch.zeros(5, dtype=torch.float64, requires_grad=True)
    descent = torch.optim.LBFGS([z], max_iter=200, tolerance_grad=1e-12, line_search_fn="strong_wolfe")

    def loss():
        descent.zero_grad()
        value = -(pi * weight * (z if offset is None else z + offset).log_softmax(0)).sum()
        value.backward()
        return value

    descent.step(loss)
    shift = weight.log()
    shift[0] = (1 - strength) * shift[0] + strength * shift[1:].mean()
    expected = pi.log() + shift
    torch.testing.assert_close((z - z.mean()).detach(), expected - expected.mean(), rtol=0, atol=1e-3)


@pytest.mark.parametrize(("share", "background"), [(WEIGHTS, False), (WEIGHTS.flip(0), True), (torch.ones(1), True)])
def test_the_background_offset_needs_a_frequent_background(share, background):
    _, offset = weight_and_offset(FairCLConfig(background_offset=1), share, background)
    assert offset is None or not offset.any()


def test_a_rare_background_is_weighed_as_any_class():
    r = later()
    r.method.distribution.share = WEIGHTS.flip(0)
    weight = importance(WEIGHTS.tolist()[::-1], 1.0)
    assert weight[0] > weight[1] > 1.3
    found, expected = pixelwise(r, lambda y, _: weight[y])
    assert found == pytest.approx(expected, rel=1e-4)


def test_adjust_puts_the_prior_inside_the_softmax():
    r = later(fairness="adjust", lambda_class=0.5)
    r.method.distribution.share = WEIGHTS * 2
    _, out, targets, terms = r.forward()
    shifted = out.logits + 0.5 * torch.tensor([math.log(5 * p) for p in WEIGHTS.tolist()])[:, None, None]
    expected = upsampled_cross_entropy(shifted, targets)
    assert terms["seg"].item() == pytest.approx(expected.item(), rel=1e-5)
    assert terms["seg"].item() != pytest.approx(upsampled_cross_entropy(out.logits, targets).item(), rel=1e-2)


def test_unbiased_background_is_background_or_an_old_class():
    r = later(**OFF, unlabelled="unbiased")
    batch, out, targets, terms = r.forward()
    p = probabilities(out, batch)
    p[:, 0] = p[:, :3].sum(1)  # background and the two classes of step 0
    losses = [-math.log(p[b, int(targets[b, i, j]), i, j].item()) for b, i, j in (targets != IGNORE).nonzero().tolist()]
    assert terms["seg"].item() == pytest.approx(sum(losses) / len(losses), rel=1e-5)


def test_kl_is_that_of_the_valid_predictions():
    r = Run(fairness="kl").begin(0)
    batch, out, _, terms = r.forward()
    valid = batch.labels[:, 2::4, 2::4] != IGNORE
    mean = out.logits.softmax(1).permute(0, 2, 3, 1)[valid].double().mean(0).tolist()
    assert terms["class"].item() == pytest.approx(sum(math.log(1 / (3 * p)) for p in mean) / 3, abs=1e-5)


def test_running_histogram_mixes_batches():
    r = Run(fairness="kl", histogram_momentum=0.8).begin(0)
    assert r.method.distribution.predicted.tolist() == pytest.approx([1 / 3] * 3)
    batch, out, targets, _ = r.forward()
    assert r.method.distribution.predicted.tolist() == pytest.approx([1 / 3] * 3)  # a loss changes no state
    r.method.observe(batch, out, targets, 1)
    valid = batch.labels[:, 2::4, 2::4] != IGNORE
    mean = out.logits.softmax(1).permute(0, 2, 3, 1)[valid].mean(0)
    torch.testing.assert_close(r.method.distribution.predicted, 0.8 / 3 + 0.2 * mean.detach())


@pytest.mark.parametrize("fairness", ["kl", "literal"])
def test_a_batch_without_labels_leaves_the_running_histogram_alone(fairness):
    r = Run(fairness=fairness, histogram_momentum=0.8).begin(0)
    r.iterate(2)
    before = r.method.distribution.predicted.clone()
    batch = r.batch()
    terms = r.forward(batch._replace(labels=torch.full_like(batch.labels, IGNORE)))[-1]
    assert terms["class"].item() == 0
    assert terms["class"].requires_grad  # a zero that every process can run backward through
    assert torch.equal(r.method.distribution.predicted, before)
    assert before.sum().item() == pytest.approx(1)


@pytest.mark.parametrize("strength", [0.5, 1.0])
def test_importance_never_rewards_errors(strength):
    r = later(**(OFF | {"lambda_class": strength, "gamma": 3.0, "clip": (1e-6, 1e6)}))
    r.method.distribution.share = torch.tensor([0.9, 0.025, 0.025, 0.025, 0.025])
    batch, out, _, _ = r.forward()
    targets = torch.zeros_like(batch.labels)  # all of the most frequent class, which weighs least
    assert r.method.losses(batch, out, None, targets)["seg"].item() >= 0
