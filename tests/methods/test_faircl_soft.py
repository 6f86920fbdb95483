"""FairCL's default at later steps: soft labels in L_seg, replay; and the paper's reading of unlabelled pixels."""

import math

import pytest
import torch
from tiny_steps import IMAGES, PERIOD, SIZE, Run, World

from faircl.labels import IGNORE
from faircl.losses import importance_weights

QUICK = {"name": "faircl", "period": PERIOD, "queue": 50, "quota": 20}
both_worlds = pytest.mark.parametrize("background", [True, False], ids=["background", "none"])


def unlabelled_cells(r, batch):
    """Pixels without a label in every 4×4 cell, (B, h, w)."""
    marked = batch.labels == r.world.unlabelled
    return marked.view(len(marked), SIZE // 4, 4, SIZE // 4, 4).sum((2, 4))


@both_worlds
@pytest.mark.parametrize("protect", [0.0, 2.0])
def test_the_segmentation_loss_equals_the_loop(background, protect):
    r = Run(World(background), **QUICK, lambda_soft=3.0, protect=protect).to_step_one()
    r.iterate(PERIOD)
    batch, out, targets, terms = r.forward()
    assert (targets[batch.labels == r.world.unlabelled] == IGNORE).all()
    share = r.method.distribution.share
    weight = importance_weights(share / share.sum(), 0.5, (0.2, 5.0)).tolist()
    full = torch.nn.functional.interpolate(out.logits, (SIZE, SIZE), mode="bilinear").double()
    taken = r.method._labels.soft.taken().tolist()
    assert max(taken[background:]) > 0.1
    for c in range(int(background), len(taken)):  # of old classes; labels and the sums of soft labels are as without
        full[:, c] += protect * math.log(1 - taken[c])
    full, total = full.log_softmax(1), 0.0
    for b, y, x in (targets != IGNORE).nonzero().tolist():
        label = int(targets[b, y, x])
        total -= weight[label] * full[b, label, y, x].item()
    fine, soft = out.logits.double().log_softmax(1), batch.soft
    cells = unlabelled_cells(r, batch)
    for b, i, j in cells.nonzero().tolist():
        kept = list(zip(soft.classes[b, i, j].tolist(), soft.shares[b, i, j].tolist(), strict=True))
        entropy = -sum(q * fine[b, c, i, j].item() for c, q in kept)
        total += 3.0 * int(cells[b, i, j]) * sum(q * weight[c] for c, q in kept) * entropy
    assert terms["seg"].item() == pytest.approx(total / int((batch.labels != IGNORE).sum()), rel=1e-4)


@both_worlds
@pytest.mark.parametrize("fairness", ["importance", "adjust", "kl"])
def test_the_old_network_is_a_fixed_point_on_unlabelled_pixels(fairness, background):
    """Where new classes are far below, a network that equals the old one has nothing to change, to 8 bits."""
    r = Run(World(background), **QUICK, fairness=fairness, soft_classes=9).to_step_one(12)
    with torch.no_grad():
        r.model.classifier.heads[1].weight.zero_()
        r.model.classifier.heads[1].bias.fill_(-60.0)
    r.model.eval()
    batch = r.batch()
    visible = batch.labels.where(batch.labels == r.world.unlabelled, IGNORE)
    gradients = []
    for moved in (0.0, 1.0):
        out = r.model(batch.image)
        noise = torch.randn(out.logits.shape, generator=torch.Generator().manual_seed(0))
        logits = (out.logits + moved * noise).detach().requires_grad_()
        only = batch._replace(labels=visible)
        targets = r.method.targets(only, out, None)
        assert (targets == IGNORE).all()
        r.method._segmentation(only, out._replace(logits=logits), targets).backward()
        gradients.append(logits.grad.abs())
    valid = (visible != IGNORE).sum()
    largest = (unlabelled_cells(r, batch) * 5 * 2.0 / valid).max()  # area, weight of at most 5, lambda_soft
    assert gradients[0].max() <= largest * 3 / 255
    assert gradients[1].max() > 10 * gradients[0].max()


def test_background_renews_its_share_by_soft_labels():
    r = Run(**QUICK).begin(0)
    r.iterate(12)
    first = r.end().method.distribution.share.clone()
    with torch.no_grad():
        q = r.model.eval()(r.world.image).logits.softmax(1)
    r.begin(1)
    labels = r.world.labels(1)
    background = sum(q[b, 0, y // 4, x // 4].item() for b, y, x in (labels == 0).nonzero().tolist())
    share = r.method.distribution.share
    assert torch.equal(share[1:3], first[1:])
    assert share[0].item() == pytest.approx(background / int((labels != IGNORE).sum()), rel=1e-4)


def test_every_window_is_scanned_once_and_the_method_keeps_none():
    r = Run(**QUICK, windows=3, soft_classes=2).to_step_one()
    cells = (SIZE // 4) ** 2
    assert r.context.windows == 3
    assert len(r.context.soft) == 3 * IMAGES
    assert r.context.soft.nbytes == r.method.soft_label_bytes(IMAGES, 10**6, cells) == 3 * IMAGES * cells * 2 * 2
    assert r.method.soft_label_bytes(IMAGES, 5, cells) == 5 * cells * 2 * 2  # too few visits to see every window
    held = [*r.method.buffers(), *(part for part in vars(r.method._labels.soft).values() if torch.is_tensor(part))]
    assert not any(part.shape[1:3] == (SIZE // 4, SIZE // 4) for part in held)
    assert len(r.method._labels.soft.labels) == 0


def test_other_treatments_have_no_soft_labels():
    r = Run(period=PERIOD, unlabelled="paper").to_step_one()
    assert r.context.soft is None
    assert r.method.soft_label_bytes(IMAGES, 100, 36) == 0


def test_clusters_and_queues_take_the_likeliest_class():
    r = Run(**QUICK).to_step_one()
    r.iterate(PERIOD)
    batch, out, targets, _ = r.forward()
    _, labels = r.method._clustered(batch, out, targets)
    cells = batch.labels[:, 2::4, 2::4]
    assert torch.equal(labels, cells.where(cells != 0, batch.soft.likeliest()))


# Replay


def test_replay_reaches_the_classifier_alone():
    r = Run(**QUICK).to_step_one()
    r.iterate(PERIOD)
    r.forward()[-1]["replay"].backward()
    moved = {name for name, p in r.model.named_parameters() if p.grad is not None and p.grad.any()}
    assert moved == {f"classifier.heads.{k}.{part}" for k in (0, 1) for part in ("weight", "bias")}


def test_replay_equals_the_loop():
    r = Run(**QUICK, replay=10, replay_batch=4, replay_power=0.5, lambda_replay=2.0).to_step_one()
    r.iterate(PERIOD + 1)
    memory, bank = r.method.memory, r.method.bank
    weight, bias = (part.detach() for part in r.model.classifier.weight_and_bias())
    total = norm = 0.0
    for c in range(5):
        moving = c in bank.moving.tolist()
        source = bank.queue[c, : bank.filled[c]] if moving else memory.features[c, : memory.filled[c]].float()
        if not len(source):
            continue
        shown = [source[(r.method.updates * 4 + k) % len(source)] for k in range(4)]
        losses = [-torch.log_softmax(weight @ feature + bias, 0)[c].item() for feature in shown]
        prior = math.sqrt(r.method.distribution.share[c].item() / r.method.distribution.share.sum().item())
        total, norm = total + prior * sum(losses) / 4, norm + prior
    assert r.forward()[-1]["replay"].item() == pytest.approx(2.0 * total / norm, rel=1e-4)


# The paper's own reading


@both_worlds
def test_the_paper_ignores_unlabelled_pixels_and_pulls_them_to_the_closest_prototype(background):
    r = Run(World(background), period=PERIOD, unlabelled="paper", push=0, lambda_class=0)
    r.to_step_one(6)
    r.iterate(PERIOD + 1)
    batch, out, targets, terms = r.forward()
    unlabelled = batch.labels == r.world.unlabelled
    assert (targets[unlabelled] == IGNORE).all()
    assert torch.equal(targets[~unlabelled], batch.labels[~unlabelled])
    full = torch.nn.functional.interpolate(out.logits, (SIZE, SIZE), mode="bilinear").double().log_softmax(1)
    losses = [-full[b, int(targets[b, y, x]), y, x].item() for b, y, x in (targets != IGNORE).nonzero().tolist()]
    assert terms["seg"].item() == pytest.approx(sum(losses) / len(losses), rel=1e-5)
    pulls, given = [], set()
    cells, features, prototypes = batch.labels[:, 2::4, 2::4], out.embedding.detach(), r.method.bank.prototypes
    for b, i, j in (cells != IGNORE).nonzero().tolist():
        distances = [(features[b, :, i, j] - p).norm().item() for p in prototypes]
        label = int(cells[b, i, j])
        if label == r.world.unlabelled:
            label = min(range(r.world.channels[0]), key=lambda c: distances[c])
            given.add(label)
        pulls.append(distances[label])
    assert len(given) > 1
    expected = r.method.config.lambda_cluster * sum(pulls) / len(pulls)
    assert terms["cluster"].item() == pytest.approx(expected, rel=1e-4)
