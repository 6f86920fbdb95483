"""L_iou inside FairCL: labels and soft labels, the offset of protection, sampled maps, and who has the term."""

import math

import pytest
import torch
from tiny_steps import PERIOD, Run, World

from faircl.labels import IGNORE
from faircl.loading.batch import SoftTargets
from faircl.methods.faircl import iou_term as module
from faircl.methods.faircl.iou_term import iou_term

QUICK = {"name": "faircl", "period": PERIOD, "queue": 50, "quota": 20}
both_worlds = pytest.mark.parametrize("background", [True, False], ids=["background", "none"])


def loop(logits, targets, unlabelled=None, soft=None, offset=None, every=1):
    """−mean log IoU, cell by cell and class by class."""
    count, (rows, columns) = logits.shape[1], logits.shape[-2:]
    side = targets.shape[1] // rows
    both, either, shown = ([0.5] * count for _ in range(3))
    for b, i, j in torch.ones(len(logits), rows, columns).nonzero().tolist():
        if i % every or j % every:
            continue
        area = slice(i * side, (i + 1) * side), slice(j * side, (j + 1) * side)
        labels = targets[b][area].flatten().tolist()
        t = [labels.count(c) / side**2 for c in range(count)]
        labelled = sum(t)
        marked = 0.0
        if soft is not None:
            marked = unlabelled[b][area].double().mean().item()
            for c, q in zip(soft.classes[b, i, j].tolist(), soft.shares[b, i, j].tolist(), strict=True):
                t[c] += marked * q
        z = logits[b, :, i, j].double()
        z = z if offset is None else z + labelled * offset
        p = ((labelled + marked) * z.softmax(0)).tolist()
        for c in range(count):
            both[c] += min(t[c], p[c])
            either[c] += max(t[c], p[c])
            shown[c] += t[c]
    logs = [math.log(o / u) for o, u, size in zip(both, either, shown, strict=True) if size >= 1.5 - 1e-9]
    return -sum(logs) / len(logs)


def drawn(seed, rows=4, side=4, classes=5, old=3):
    gen = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn((2, classes, rows, rows), generator=gen)
    labels = torch.randint(old, classes, (2, rows, rows), generator=gen).repeat_interleave(side, 1)
    labels = labels.repeat_interleave(side, 2)
    unlabelled = torch.rand(labels.shape, generator=gen) < 0.5
    ignored = torch.rand(labels.shape, generator=gen) < 0.1
    targets = labels.masked_fill(unlabelled | ignored, IGNORE)
    shares = torch.rand((2, rows, rows, 2), generator=gen)
    kept = torch.rand((2, rows, rows, old), generator=gen).argsort(3)[..., :2]
    return logits, targets, unlabelled & ~ignored, SoftTargets(kept, shares / shares.sum(3, keepdim=True))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("with_offset", [True, False])
@pytest.mark.parametrize("with_soft", [True, False])
def test_it_equals_the_loop(with_soft, with_offset, seed):
    logits, targets, unlabelled, soft = drawn(seed)
    offset = torch.tensor([-1.0, -0.5, 0, 0, 0]) if with_offset else None
    soft = soft if with_soft else None
    found = iou_term(logits, targets, unlabelled, soft, offset)
    assert found.item() == pytest.approx(loop(logits, targets, unlabelled, soft, offset), rel=1e-4)


def test_gradients():
    logits, targets, unlabelled, soft = drawn(3)
    offset = torch.tensor([-1.0, -0.5, 0, 0, 0])
    assert torch.autograd.gradcheck(
        lambda z: iou_term(z, targets, unlabelled, soft, offset), logits.double().requires_grad_()
    )


def test_of_a_large_map_every_other_cell_is_compared(monkeypatch):
    monkeypatch.setattr(module, "CELLS", 4)
    logits, targets, unlabelled, soft = drawn(4, rows=8)
    found = iou_term(logits, targets, unlabelled, soft, None)
    assert found.item() == pytest.approx(loop(logits, targets, unlabelled, soft, every=2), rel=1e-4)


@pytest.mark.parametrize(("side", "counted"), [(1, 1), (2, 2), (3, 2), (8, 4), (16, 4)])
def test_of_a_cell_at_most_four_by_four_labels_are_counted(side, counted):
    logits, _, _, _ = drawn(5)
    gen = torch.Generator().manual_seed(1)
    fine = torch.randint(5, (2, 4 * counted, 4 * counted), generator=gen)
    if side % counted == 0:
        targets = fine.repeat_interleave(side // counted, 1).repeat_interleave(side // counted, 2)
    else:  # labels of 12 pixels taken at 8 places
        targets = torch.nn.functional.interpolate(fine[:, None].float(), 4 * side, mode="nearest-exact")[:, 0].long()
    found = iou_term(logits, targets, targets < 0, None, None)
    assert found.item() == pytest.approx(loop(logits, fine), rel=1e-4)


def test_a_batch_without_labels_gives_zero():
    logits, targets, unlabelled, _ = drawn(7)
    logits.requires_grad_()
    loss = iou_term(logits, torch.full_like(targets, IGNORE), unlabelled, None, None)
    loss.backward()
    assert loss == 0
    assert (logits.grad == 0).all()


def test_maps_of_any_size():
    """Labels of 13×22 at 5×7 cells: 2×2 labels of each, taken at their centres."""
    gen = torch.Generator().manual_seed(8)
    logits, targets = torch.randn((2, 4, 5, 7), generator=gen), torch.randint(4, (2, 13, 22), generator=gen)
    rows, columns = ((torch.arange(2 * n) + 0.5) * size / (2 * n) for n, size in ((5, 13), (7, 22)))
    taken = targets[:, rows.long()][:, :, columns.long()]
    found = iou_term(logits, targets, targets < 0, None, None)
    assert found.item() == pytest.approx(loop(logits, taken), rel=1e-4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_summed_in_float32(dtype):
    logits, targets, unlabelled, soft = drawn(9)
    logits = logits.to(dtype).requires_grad_()
    loss = iou_term(logits, targets, unlabelled, soft, None)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(loop(logits, targets, unlabelled, soft), rel=1e-4)
    loss.backward()
    assert logits.grad.dtype == dtype
    assert logits.grad.isfinite().all()


def test_domain_steps_have_it():
    r = Run(**QUICK).begin(0).end()
    context = r.world.context(0, r.model)
    context.step, context.old_classes, context.domain = 1, context.classes, True
    r.method.begin_step(context)
    _, out, targets, terms = r.forward(r.world.batch(0))
    assert terms["iou"].item() == pytest.approx(loop(out.logits, targets), rel=1e-4)


@both_worlds
@pytest.mark.parametrize("protect", [0.0, 2.0])
def test_the_term_of_a_later_step(background, protect):
    r = Run(World(background), **QUICK, lambda_iou=3.0, protect=protect).to_step_one()
    r.iterate(PERIOD)
    batch, out, targets, terms = r.forward()
    offset = r.method.protection if protect else None
    unlabelled = batch.labels == r.world.unlabelled
    expected = loop(out.logits, targets, unlabelled, batch.soft, offset)
    assert terms["iou"].item() == pytest.approx(3 * expected, rel=1e-4)


@pytest.mark.parametrize("unlabelled", ["soft", "assigned", "teacher", "online", "unbiased", "paper", "ignore"])
def test_old_classes_are_no_background(unlabelled):
    """Labels of a later step show old classes as background; L_iou must not take them for it."""
    r = Run(World(True), **QUICK, unlabelled=unlabelled, assign="softmax", protect=0).to_step_one(6)
    batch, out, targets, terms = r.forward()
    shown = batch.labels == r.world.unlabelled
    if unlabelled == "unbiased":
        assert (targets[shown] == 0).all()
        targets = targets.masked_fill(shown, IGNORE)
    expected = loop(out.logits, targets, shown, batch.soft if unlabelled == "soft" else None)
    assert terms["iou"].item() == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(("name", "has"), [("faircl", True), ("faircl-paper", False)])
def test_it_is_a_term_of_the_default_and_not_of_the_paper(name, has):
    r = Run(name=name, period=PERIOD).begin(0)
    assert ("iou" in r.iterate()[-1]) is has
