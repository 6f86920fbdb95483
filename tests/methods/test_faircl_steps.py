"""FairCL between steps: labels for unlabelled pixels, the class distribution, what the first step depends on."""

import math
from dataclasses import replace

import pytest
import torch
from tiny_steps import PERIOD, SIZE, Run, World

from faircl.labels import IGNORE
from faircl.losses import upsampled_cross_entropy


def full(logits):
    return torch.nn.functional.interpolate(logits, (SIZE, SIZE), mode="bilinear", align_corners=False)


def nearest(features, prototypes):
    """Distances upsampled, then the closest: one plane per prototype."""
    planes = [(features - p[:, None, None]).square().sum(1, keepdim=True).sqrt() for p in prototypes]
    return full(torch.cat(planes, 1)).argmin(1)


def agreement(a, b, where):
    return (a == b)[where].float().mean().item()


def at_step_one(background=True, **options):
    """A run whose network has moved a little since the step began, so that old and new predictions differ."""
    r = Run(World(background), period=PERIOD, **options).begin(0)
    r.iterate(12)
    r.end()
    with torch.no_grad():
        r.model.eval()
        r.before = r.model(r.world.image[[0, 1]])
        r.prototypes = r.method.bank.prototypes.clone()
    r.begin(1, lr=0.05)
    r.iterate(PERIOD + 1)
    return r


# Treatments of unlabelled pixels


@pytest.mark.parametrize("background", [True, False])
@pytest.mark.parametrize("treatment", ["assigned", "teacher", "online"])
@pytest.mark.parametrize("assign", ["softmax", "prototype"])
def test_unlabelled_pixels_take_the_right_models_label(treatment, assign, background):
    r = at_step_one(background, unlabelled=treatment, assign=assign)
    old = r.world.channels[0]
    batch, out, targets, _ = r.forward()
    unlabelled = batch.labels == r.world.unlabelled
    assert unlabelled.any()
    source = out if treatment == "online" else r.before
    if assign == "softmax":
        expected = full(source.logits[:, :old]).argmax(1)
    else:
        # Before the step p_0 was elsewhere; the teacher's features are compared with the clusters as they are now.
        prototypes = r.prototypes if treatment == "assigned" else r.method.bank.prototypes
        expected = nearest(source.embedding.detach(), prototypes[:old])
    # Rounding may decide a tie either way, nothing else.
    assert agreement(targets, expected, unlabelled) > 0.99
    assert targets[unlabelled].max() < old


def test_old_and_current_models_disagree_in_these_tests():
    r = at_step_one()
    batch, out, _, _ = r.forward()
    where = batch.labels == 0
    now, before = (full(x.logits[:, :3]).argmax(1) for x in (out, r.before))
    assert agreement(now, before, where) < 0.99


@pytest.mark.parametrize("background", [True, False])
@pytest.mark.parametrize("treatment", ["soft", "paper", "ignore", "background", "unbiased"])
def test_treatments_without_labels(treatment, background):
    r = Run(World(background), unlabelled=treatment).to_step_one()
    batch, _, targets, _ = r.forward()
    unlabelled = batch.labels == r.world.unlabelled
    left = IGNORE if treatment in ("soft", "paper", "ignore") or not background else 0
    assert (targets[unlabelled] == left).all()
    assert r.context.assigned is None


def test_the_first_step_trains_on_its_labels_whatever_the_treatment():
    for treatment in ("soft", "assigned", "teacher", "online", "unbiased", "paper", "ignore", "background"):
        r = Run(unlabelled=treatment).begin(0)
        batch, _, targets, _ = r.forward()
        assert torch.equal(targets, batch.labels)
        assert r.context.assigned is None
        assert not r.method.needs_teacher(r.context)
        assert r.method.needs_teacher(replace(r.context, step=1)) == (treatment == "teacher")
        assert not r.method.needs_teacher(replace(r.context, step=1, domain=True))


def test_unbiased_clusters_unlabelled_pixels_by_the_closest_old_cluster():
    r = at_step_one(unlabelled="unbiased", assign="prototype")
    batch, out, targets, _ = r.forward()
    filled = r.method.bank.filled.clone()
    r.method.bank.filled.zero_()
    r.method.bank.head.zero_()
    r.method.observe(batch, out, targets, 99)
    cells = batch.labels[:, 2::4, 2::4]
    distances = torch.stack(
        [(out.embedding - p[:, None, None]).norm(dim=1) for p in r.method.bank.prototypes[:3]]
    ).detach()
    p0 = (distances.argmin(0) == 0) & (cells == 0)
    assert 0 < p0.sum() < (cells == 0).sum()  # some unlabelled pixels belong to old classes, which are frozen
    assert r.method.bank.filled.tolist() == [p0.sum(), 0, 0, (cells == 3).sum(), (cells == 4).sum()]
    assert filled[1:3].eq(0).all()


@pytest.mark.parametrize("assign", ["softmax", "prototype"])
def test_reject_drops_doubtful_pixels_from_training(assign):
    shares = []
    for reject in (0.0, 0.4):
        r = Run(period=PERIOD, reject=reject, assign=assign).to_step_one(12)
        batch, _, targets, _ = r.forward(r.batch((0, 1, 2, 3)))
        unlabelled = batch.labels == 0
        shares.append((targets[unlabelled] == IGNORE).float().mean().item())
        assert (targets[~unlabelled] == batch.labels[~unlabelled]).all()
    assert shares[0] == 0
    assert 0.3 < shares[1] <= 0.4


# The class distribution p


def counted(labels, classes):
    return torch.tensor([(labels == c).sum().item() for c in range(classes)])


@pytest.mark.parametrize("background", [True, False])
def test_share_of_the_first_step(background):
    r = Run(World(background)).begin(0)
    counts = counted(r.world.labels(0), r.world.channels[0])
    torch.testing.assert_close(r.method.distribution.share, counts / (r.world.labels(0) != IGNORE).sum())


@pytest.mark.parametrize("treatment", ["paper", "ignore", "unbiased", "teacher", "online", "background"])
def test_old_classes_keep_their_share_and_new_ones_get_the_steps(treatment):
    r = Run(unlabelled=treatment).begin(0)
    first = r.method.distribution.share.clone()
    r.end().begin(1)
    counts = counted(r.world.labels(1), 5)
    assert torch.equal(r.method.distribution.share[:3], first)
    torch.testing.assert_close(r.method.distribution.share[3:], counts[3:] / counts.sum())


def test_assigned_labels_renew_the_background_alone():
    r = at_step_one()
    first = counted(r.world.labels(0), 3)
    torch.testing.assert_close(r.method.distribution.share[1:3], first[1:] / first.sum())
    masks = torch.stack([torch.from_numpy(r.context.assigned[str(k)].astype("int64")) for k in range(4)])
    now = counted(r.world.labels(1), 5)
    assert 0 < (masks == 0).sum() < now[0]
    share = r.method.distribution.share
    torch.testing.assert_close(share[0] / share[3], (masks == 0).sum() / now[3])


@pytest.mark.parametrize("background", [True, False])
def test_new_classes_get_their_share_of_all_pixels_of_the_step(background):
    r = at_step_one(background)
    labels, old = r.world.labels(1), r.world.channels[0]
    counts = counted(labels, r.world.channels[1])
    torch.testing.assert_close(r.method.distribution.share[old:], counts[old:] / (labels != IGNORE).sum())


def test_a_step_shorter_than_the_period_still_leaves_prototypes():
    r = Run(period=100).begin(0)
    r.iterate(2)
    assert not r.method.bank.ready.any()
    assert r.end().method.bank.ready.all()


# The start of new classes


def test_background_init_shares_the_background_at_the_start_of_a_step():
    r = Run(init="background", lambda_cons=0, lambda_class=0).to_step_one(12)
    r.model.eval()
    head = r.model.classifier.heads
    torch.testing.assert_close(head[1].weight, head[0].weight[:1].expand(2, -1, -1, -1))
    torch.testing.assert_close(head[1].bias, head[0].bias[:1].expand(2))


def test_prototype_init_recognises_new_classes_before_training():
    """With features of the old network alone, more new pixels are found than a random head finds."""
    found = []
    for init in ("random", "prototype"):
        r = Run(init=init, unlabelled="ignore").begin(0)
        r.iterate(20)
        r.end().begin(1)
        batch, out, _, _ = r.forward()
        new = (batch.labels >= 3) & (batch.labels != IGNORE)
        found.append(agreement(full(out.logits).argmax(1), batch.labels, new))
    assert found[1] > found[0] + 0.2


# Sharing first steps


def after_first_step(**options):
    r = Run(period=PERIOD, **options).begin(0)
    r.iterate(PERIOD + 1)
    return r.end().method


@pytest.mark.parametrize(
    "options",
    [
        {"unlabelled": "assigned", "assign": "prototype", "reject": 0.5, "cap_assigned": True, "init": "random"},
        {"unlabelled": "background"},
        {"unlabelled": "ignore", "assign": "prototype", "lambda_cluster": 0},
        {"unlabelled": "soft", "lambda_soft": 1, "windows": 2, "soft_classes": 3},
        {"name": "faircl", "lambda_replay": 2, "replay_batch": 3, "replay_power": 1.0, "unlabelled": "paper"},
    ],
)
def test_equal_keys_mean_equal_first_steps(options):
    same = {name: value for name, value in options.items() if name in ("name", "lambda_cluster")}
    a, b = after_first_step(**options), after_first_step(**same)
    assert a.step0_key() == b.step0_key()
    states = a.state_dict(), b.state_dict()
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


@pytest.mark.parametrize(
    "change", [{"margin": 5}, {"lambda_cons": 0}, {"fairness": "kl"}, {"momentum": 0.5}, {"lambda_replay": 1}]
)
def test_what_changes_the_first_step_changes_its_key(change):
    assert Run().method.step0_key() != Run(**change).method.step0_key()


def test_the_key_says_whether_the_bank_fills():
    without, needed = (after_first_step(lambda_cluster=0, assign=assign) for assign in ("softmax", "prototype"))
    assert not without.bank.ready.any()
    assert needed.bank.ready.all()
    assert without.step0_key() != needed.step0_key()
    assert after_first_step(assign="prototype").step0_key() == after_first_step().step0_key()
    assert not needed.memory.filled.any()
    assert after_first_step(lambda_replay=1).memory.filled.all()


@pytest.mark.parametrize("name", ["faircl-paper", "faircl"])
def test_loss_on_the_old_classes_is_lower_than_with_background_labels(name):
    """What the treatment is for: after a later step, old classes are still predicted."""
    losses = {}
    for treatment in ("default", "background"):
        options = {} if treatment == "default" else {"unlabelled": treatment, "lambda_replay": 0}
        r = Run(name=name, period=PERIOD, **options).begin(0)
        r.iterate(40)
        r.end().begin(1)
        r.iterate(25)
        truth = r.world.truth[[0, 1]]
        old = truth.where((truth > 0) & (truth < 3), IGNORE)
        losses[treatment] = upsampled_cross_entropy(r.forward()[1].logits, old).item()
    assert losses["default"] < 0.5 * losses["background"]
    assert losses["default"] < math.log(5)
