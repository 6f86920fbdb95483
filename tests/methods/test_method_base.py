"""The small functions under every method: labels at stride, class means, the start of new classes."""

import dataclasses

import pytest
import torch
from tiny_steps import IMAGES, Run, World

from faircl.labels import IGNORE, UNLABELLED
from faircl.methods.class_means import ClassMeans
from faircl.methods.feature_grid import flat_features, to_stride


def class_means(context):
    means = ClassMeans(context)
    for scanned in context.scan():
        means.add(scanned)
    return means.classes(), means.unlabelled()


@pytest.mark.parametrize(("size", "coarse"), [((8, 12), (2, 3)), ((9, 7), (3, 2)), ((5, 5), (5, 5)), ((6, 6), (4, 5))])
def test_to_stride_takes_the_label_at_the_centre(size, coarse):
    labels = torch.arange(2 * size[0] * size[1]).view(2, *size) + IGNORE - 200
    small = to_stride(labels, coarse)
    assert small.dtype == torch.int64
    for i in range(coarse[0]):
        for j in range(coarse[1]):
            y = int((i + 0.5) * size[0] / coarse[0])
            x = int((j + 0.5) * size[1] / coarse[1])
            assert small[:, i, j].tolist() == labels[:, y, x].tolist()


def test_to_stride_keeps_special_labels():
    labels = torch.tensor([[[IGNORE, IGNORE, UNLABELLED, UNLABELLED]] * 2])
    assert to_stride(labels, (1, 2)).tolist() == [[[IGNORE, UNLABELLED]]]


def test_flat_features_follow_flat_labels():
    features = torch.randn(2, 3, 4, 5)
    labels = torch.arange(40).view(2, 4, 5)
    flat = flat_features(features)
    for n in (0, 7, 19, 20, 39):
        b, i, j = (labels == n).nonzero()[0].tolist()
        assert torch.equal(flat[n], features[b, :, i, j])


@pytest.mark.parametrize("background", [True, False])
def test_class_means_equal_the_loop(background):
    r = Run(World(background), name="finetune").begin(0)
    context = r.world.context(1, r.model.eval())
    means, unlabelled = class_means(context)
    embedding = r.model(r.world.image).embedding.detach()
    labels = r.world.labels(1)[:, 2::4, 2::4]
    for c in range(r.world.channels[1]):
        rows = [embedding[b, :, i, j].double() for b, i, j in (labels == c).nonzero().tolist()]
        old = int(background) <= c < r.world.channels[0]
        assert old == (not rows)
        if rows:
            torch.testing.assert_close(means[c].double(), sum(rows) / len(rows), rtol=1e-4, atol=1e-5)
        else:
            assert means[c].isnan().all()
    rows = [embedding[b, :, i, j].double() for b, i, j in (labels == r.world.unlabelled).nonzero().tolist()]
    torch.testing.assert_close(unlabelled.double(), sum(rows) / len(rows), rtol=1e-4, atol=1e-5)
    if background:
        assert torch.equal(unlabelled, means[0])


def test_prototype_init_refers_to_the_background_though_old_classes_are_labelled():
    """The sequential setting: the plane lies half-way to the background's mean, not to that of all old classes."""
    r = Run(name="finetune", init="prototype").begin(0)
    r.iterate(5)
    r.model.eval()
    context = r.world.context(1, r.model)
    every = r.world.truth.masked_fill(r.world.void, IGNORE)
    seen = [scanned._replace(labels=every[k : k + 2]) for k, scanned in zip((0, 2), context.scan(), strict=True)]
    context = dataclasses.replace(context, scan=lambda *_: iter(seen))
    means, unlabelled = class_means(context)
    assert torch.equal(unlabelled, means[0])
    assert not means.isnan().any()
    r.method.begin_step(context)
    for c in (3, 4):
        logits = r.model.classifier(((means[0] + means[c]) / 2).view(1, -1, 1, 1)).flatten()
        assert logits[c].item() == pytest.approx(logits[0].item(), abs=1e-4)


def test_prototype_init_without_a_background_refers_to_unlabelled_pixels():
    r = Run(World(background=False), name="finetune", init="prototype").begin(0)
    r.iterate(5)
    r.model.eval()
    context = r.world.context(1, r.model)
    means, unlabelled = class_means(context)
    r.method.begin_step(context)
    for c in (2, 3):
        middle = r.model.classifier(((unlabelled + means[c]) / 2).view(1, -1, 1, 1)).flatten()
        assert middle[c].item() == pytest.approx(middle[:2].mean().item(), abs=1e-4)


def test_prototype_init_without_unlabelled_pixels_starts_at_random():
    """Images that hold new classes alone leave no reference to split from."""
    heads = []
    for init in ("prototype", "random"):
        r = Run(World(background=False), name="finetune", init=init).begin(0)
        context = r.world.context(1, r.model.eval())
        seen = [x._replace(labels=x.labels.where(x.labels != UNLABELLED, IGNORE)) for x in context.scan()]
        context = dataclasses.replace(context, scan=lambda *_, seen=seen: iter(seen))
        assert class_means(context)[1].isnan().all()
        r.method.begin_step(context)
        heads.append(r.model.classifier.heads[1])
    assert torch.equal(heads[0].weight, heads[1].weight)
    assert torch.equal(heads[0].bias, heads[1].bias)


def test_unlabelled_pixels_without_a_background_are_ignored_by_default():
    r = Run(World(background=False), name="finetune").begin(0)
    batch, _, targets, _ = r.forward(r.batch(range(IMAGES)))
    assert (batch.labels == UNLABELLED).any()
    assert torch.equal(targets == IGNORE, (batch.labels == UNLABELLED) | (batch.labels == IGNORE))


@pytest.mark.parametrize("background", [True, False])
def test_a_step_that_labels_all_classes_hides_none(background):
    context = World(background).context(1, None)
    assert context.hides_classes
    assert not dataclasses.replace(context, all_labelled=True).hides_classes
    assert not dataclasses.replace(context, domain=True).hides_classes
    assert not World(background).context(0, None).hides_classes
    assert dataclasses.replace(context, unlabelled=UNLABELLED).hides_classes is not background
