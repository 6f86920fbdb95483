"""The state of FairCL for a network that it has not trained, beside plain loops."""

import math

import pytest
import torch
from tiny_steps import PERIOD, SIZE, Run, World

from faircl.deploy.class_sample import ClassSample
from faircl.deploy.statistics import FLOOR, describe_classes
from faircl.labels import IGNORE, UNLABELLED
from faircl.methods.faircl import FairCL, FairCLConfig
from faircl.methods.state import load_method_state, method_state
from faircl.models.small import Small, SmallConfig

both_worlds = pytest.mark.parametrize("background", [True, False], ids=["background", "none"])


def make_network(classes, scale=60.0):
    torch.manual_seed(5)
    network = Small(SmallConfig(width=8, embedding=8, norm="group"))
    network.classifier.grow(classes)
    with torch.no_grad():
        network.classifier.heads[0].weight.mul_(scale)  # a classifier with opinions
    return network


def fresh(network, **settings):
    return FairCL(FairCLConfig(**settings), network)


def pictures(count=4, side=SIZE, seed=0):
    gen = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count, 3, side, side), dtype=torch.uint8, generator=gen)


def channels(classes, count=4, side=SIZE, seed=1):
    gen = torch.Generator().manual_seed(seed)
    blocks = torch.randint(classes, (count, 3, 3), generator=gen)
    return blocks.repeat_interleave(side // 3, 1).repeat_interleave(side // 3, 2)


@torch.no_grad()
def loop(network, images, labels, confidence, classes):
    """Features and pixels of every class, one cell at a time."""
    features = {c: [] for c in range(classes)}
    pixels = [0.0] * classes
    doubtful = {c: [] for c in range(classes)}
    for b, image in enumerate(images):
        out = network.eval()(image[None] / 255)
        q = out.logits[0].softmax(0)
        for y in range(SIZE):
            for x in range(SIZE):
                label = int(labels[b, y, x])
                if label == UNLABELLED:
                    for c in range(classes):
                        pixels[c] += q[c, y // 4, x // 4].item()
                elif label != IGNORE:
                    pixels[label] += 1
        for i in range(SIZE // 4):
            for j in range(SIZE // 4):
                label, where = int(labels[b, 4 * i + 2, 4 * j + 2]), features
                if label == UNLABELLED:
                    label = int(q[:, i, j].argmax())
                    where = features if q[:, i, j].max() > confidence else doubtful
                if label != IGNORE:
                    where[label].append(out.embedding[0, :, i, j])
    return (
        {c: features[c] or doubtful[c] for c in features},
        pixels,
        [not features[c] and doubtful[c] for c in features],
    )


@pytest.mark.parametrize("scale", [60.0, 15.0], ids=["certain", "in doubt"])
@pytest.mark.parametrize("kind", ["labelled", "unlabelled", "mixed"])
def test_features_prototypes_and_shares_equal_the_loop(kind, scale):
    classes, network = 4, make_network(5, scale)
    images, labels = pictures(), channels(classes)
    labels[:, :4, :8] = IGNORE
    if kind == "unlabelled":
        labels[:] = UNLABELLED
    elif kind == "mixed":
        labels[:2] = UNLABELLED
        labels[2, 12:] = UNLABELLED
    method = fresh(network, queue=1000, replay=1000)
    given = None if kind == "unlabelled" else labels
    batches = [(images[:3], None if given is None else given[:3]), (images[3:], None if given is None else given[3:])]
    found = describe_classes(method, network, batches, background=True)
    features, pixels, doubtful = loop(network, images, labels, 0.5, 5)
    assert found.doubtful.tolist() == list(map(bool, doubtful))
    assert found.images == 4
    assert found.features.tolist() == [len(features[c]) for c in range(5)]
    torch.testing.assert_close(found.pixels, torch.tensor(pixels, dtype=torch.float64), rtol=1e-5, atol=1e-3)
    for c in range(5):
        seen = len(features[c])
        assert bool(method.bank.ready[c]) == (seen > 0)
        assert int(method.memory.filled[c]) == seen
        if seen:
            expected = torch.stack(features[c])
            torch.testing.assert_close(method.bank.prototypes[c], expected.mean(0), rtol=1e-4, atol=1e-5)
            kept = method.memory.features[c, :seen].float()
            assert torch.cdist(expected, kept).min(1).values.max() < 0.01 * expected.norm(dim=1).max()
        share = (1 - FLOOR) * pixels[c] / sum(pixels) + FLOOR / 5
        assert method.distribution.share[c].item() == pytest.approx(share, rel=1e-4)
    assert method.distribution.share.min() > 0
    assert method.distribution.share.sum().item() == pytest.approx(1, abs=1e-5)


def test_the_state_is_that_of_a_trained_first_step():
    trained = Run(World(True), name="faircl", period=PERIOD, queue=50).begin(0)
    trained.iterate(4)
    trained.end()
    method = fresh(trained.model, period=PERIOD, queue=50)
    images = (trained.world.image * 255).to(torch.uint8)
    describe_classes(method, trained.model, [(images, trained.world.labels(0))], background=True)
    expected, found = method_state(trained.method), method_state(method)
    shapes = {name: (value.shape, value.dtype) for name, value in expected.tensors.items()}
    assert {name: (value.shape, value.dtype) for name, value in found.tensors.items()} == shapes
    assert found.numbers | {"updates": 4, "distribution.pixels": 0} == expected.numbers | {"distribution.pixels": 0}
    for name in ("bank.ready", "bank.moving", "bank.filled", "bank.head", "distribution.predicted"):
        assert torch.equal(found.tensors[name], expected.tensors[name]), name
    share = expected.tensors["distribution.share"]
    torch.testing.assert_close(found.tensors["distribution.share"], share, rtol=0.02, atol=1e-3)
    load_method_state(fresh(trained.model), found)


def test_the_sample_takes_as_many_images_as_it_can():
    gen = torch.Generator().manual_seed(0)
    labels = torch.zeros((12, 6, 6), dtype=torch.int64)
    labels[:4, :, 3:] = 1  # class 1 in four images, half of each
    labels[11, 0, 0] = 2
    number = torch.arange(12.0)[:, None, None, None].expand(12, 1, 6, 6)
    noise = torch.rand((12, 1, 6, 6), generator=gen)
    features = torch.cat([number, noise], 1)
    sample = ClassSample(4, 10, 2, features, seed=3)
    for k in range(0, 12, 5):
        sample.add(features[k : k + 5], labels[k : k + 5])
    assert sample.filled.tolist() == [10, 10, 1, 0]
    assert len(set(sample.rows[0, :, 0].tolist())) == 10, "one feature of each of ten images"
    per_image = [int((sample.rows[1, :, 0] == k).sum()) for k in range(4)]
    assert sorted(per_image) == [2, 2, 3, 3]
    assert len({tuple(row.tolist()) for row in sample.rows[1]}) == 10, "no feature twice"
    assert sample.rows[2, 0].tolist() == features[11, :, 0, 0].tolist()
    whole = ClassSample(4, 10, 2, features, seed=3)
    whole.add(features, labels)
    assert torch.equal(whole.rows, sample.rows)
    other = ClassSample(4, 10, 2, features, seed=4)
    other.add(features, labels)
    assert not torch.equal(other.rows, sample.rows)


@both_worlds
@pytest.mark.parametrize("kind", ["labelled", "unlabelled", "one class", "nothing"])
def test_a_further_step_trains_with_replay(background, kind):
    world = World(background)
    r = Run(world, name="faircl", period=PERIOD)
    known = world.channels[0]
    r.model.classifier.grow(known)
    with torch.no_grad():
        r.model.classifier.heads[0].weight.mul_(60)
    labels = world.labels(0)
    if kind == "one class":  # the others never occur
        labels = labels.where(labels == known - 1, IGNORE)
    images = (world.image * 255).to(torch.uint8)
    batches = {"unlabelled": [(images, None)], "nothing": []}.get(kind, [(images, labels)])
    found = describe_classes(r.method, r.model, batches, background=background)
    kept = {name: value.clone() for name, value in method_state(r.method).tensors.items()}
    assert (found.features > 0).any() == (kind != "nothing")
    assert (r.method.distribution.share > 0).all()
    r.begin(1)
    history = r.iterate(4)
    assert all(math.isfinite(value) for terms in history for value in terms.values())
    assert history[-1]["replay"] > 0
    if kind == "nothing":
        assert history[0]["replay"] == 0  # no feature yet; later those of the step's own classes
    else:
        assert history[0]["replay"] > 0
    r.end()
    old = slice(int(background), known)
    assert torch.equal(r.method.memory.features[old], kept["memory.features"][old])
    assert torch.equal(r.method.bank.prototypes[old], kept["bank.prototypes"][old])
    assert torch.isfinite(r.method.bank.prototypes).all()


def test_without_a_pixel_the_distribution_is_uniform_and_nothing_is_ready():
    network = make_network(3)
    method = fresh(network)
    found = describe_classes(method, network, [], background=False)
    assert (found.images, found.features.tolist()) == (0, [0, 0, 0])
    assert method.distribution.share.tolist() == pytest.approx([1 / 3] * 3)
    assert not method.bank.ready.any()


def test_the_network_keeps_its_mode_and_a_used_method_is_refused():
    network = make_network(3).train()
    method = fresh(network)
    describe_classes(method, network, [(pictures(1), None)], background=False)
    assert network.training
    with pytest.raises(ValueError, match="fresh"):
        describe_classes(method, network, [], background=False)


@pytest.mark.parametrize("side", [24, 30])
def test_features_of_the_backbone_and_odd_sizes(side):
    """Features at another stride than the logits, of images whose size is no multiple of it; a cluster of unknowns."""
    network = make_network(3)
    settings = {"embedding": "backbone", "lambda_replay": 0, "lambda_cluster": 0.1, "unknown_cluster": True}
    method = fresh(network, **settings)
    found = describe_classes(method, network, [(pictures(2, side), None)], background=True)
    assert method.bank.prototypes.shape == (3, network.stage_widths[-1])
    cells = network(pictures(2, side) / 255).stages[-1].shape
    assert 0 < int(found.features.sum()) <= 2 * cells[2] * cells[3]
    assert method.unknown.classes == 1
    assert found.pixels.sum().item() == pytest.approx(2 * side * side, rel=1e-4)
