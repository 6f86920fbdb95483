"""The losses of SDR against plain loops over pixels, classes and channels."""

import math

import pytest
import torch
from loop_losses import distance, grad_ok, nested
from processes import start

from faircl.labels import IGNORE, UNLABELLED
from faircl.losses.latent_space import attraction, class_sums, matching, repulsion, sparsity

CLASSES, WIDTH = 5, 6
READY = torch.tensor([False, True, True, True, True])
CASES = {
    "several": (1, 2, 3, 0, IGNORE, UNLABELLED),
    "absent": (0, 3, IGNORE),
    "single": (2,),
    "no-prototype": (0,),
    "void": (IGNORE, UNLABELLED),
}
each_case = pytest.mark.parametrize("case", CASES)


def made(case="several", seed=0, images=3, size=(3, 4)):
    """Features (B, D, h, w) with zeros as after a ReLU, labels from a case's values, prototypes."""
    gen = torch.Generator().manual_seed(seed)
    features = torch.randn((images, WIDTH, *size), generator=gen, dtype=torch.float64).clamp_min(-0.5) + 0.5
    chosen = torch.randint(len(CASES[case]), (images, *size), generator=gen)
    prototypes = torch.randn((CLASSES, WIDTH), generator=gen, dtype=torch.float64)
    return features, torch.tensor(CASES[case])[chosen], prototypes


def by_class(features, labels):
    """Lists of feature vectors, read one pixel at a time."""
    features, labels = nested(features), nested(labels)
    found = {}
    for image, mask in zip(features, labels, strict=True):
        for i, row in enumerate(mask):
            for j, y in enumerate(row):
                if y < CLASSES:
                    found.setdefault(y, []).append([plane[i][j] for plane in image])
    return found


def mean(values):
    values = list(values)
    return sum(values) / len(values) if values else 0.0


def means(features, labels):
    return {y: [mean(channel) for channel in zip(*f, strict=True)] for y, f in by_class(features, labels).items()}


def apart(a, b):
    return mean((x - y) ** 2 for x, y in zip(a, b, strict=True))


def loop_matching(features, labels, prototypes):
    p = nested(prototypes)
    return mean(apart(m, p[y]) for y, m in means(features, labels).items() if READY[y])


def loop_attraction(features, labels, prototypes):
    p = nested(prototypes)
    return mean(mean(apart(f, p[y]) for f in fs) for y, fs in by_class(features, labels).items() if READY[y])


def loop_repulsion(features, labels):
    m = means(features, labels)
    return mean(1 / math.sqrt(distance(m[a], m[b]) ** 2 + 1e-4) for a in m for b in m if a != b)


def loop_sparsity(features, labels):
    ratios = []
    for fs in by_class(features, labels).values():
        largest = max(max(max(abs(v) for v in f) for f in fs), 1e-6)
        for f in fs:
            g = [abs(v) / largest for v in f]
            ratios.append(sum(map(math.exp, g)) / max(sum(g), 1e-3 * len(g)))
    return mean(ratios)


@each_case
def test_terms_equal_the_loops(case):
    features, labels, prototypes = made(case)
    got = [
        matching(features, labels, prototypes, READY),
        attraction(features, labels, prototypes, READY),
        repulsion(features, labels, CLASSES),
        sparsity(features, labels, CLASSES),
    ]
    wanted = [
        loop_matching(features, labels, prototypes),
        loop_attraction(features, labels, prototypes),
        loop_repulsion(features, labels),
        loop_sparsity(features, labels),
    ]
    assert all(value.shape == () for value in got)
    assert [float(value) for value in got] == pytest.approx(wanted, abs=1e-6)


def test_the_cases_differ():
    several, single, void = (made(case) for case in ("several", "single", "void"))
    assert len(by_class(*several[:2])) == 4
    assert loop_repulsion(*several[:2]) > 0 == loop_repulsion(*single[:2])
    assert by_class(*void[:2]) == {}


def test_signed_features_keep_the_ratio_positive():
    features, labels, _ = made()
    features = features - 1
    assert sparsity(features, labels, CLASSES).item() == pytest.approx(loop_sparsity(features, labels), abs=1e-6)
    assert sparsity(features, labels, CLASSES) > math.e


def test_sparsity_does_not_change_with_the_scale_of_features():
    features, labels, _ = made()
    wanted = sparsity(features, labels, CLASSES).item()
    assert sparsity(100 * features, labels, CLASSES).item() == pytest.approx(wanted)


@each_case
def test_class_sums(case):
    features, labels, _ = made(case)
    found = class_sums(features, labels, CLASSES)
    groups = by_class(features, labels)
    assert found.pixels.tolist() == [len(groups.get(y, [])) for y in range(CLASSES)]
    wanted = [means(features, labels).get(y, [0.0] * WIDTH) for y in range(CLASSES)]
    assert torch.allclose(found.means(), torch.tensor(wanted).double(), atol=1e-6)


@pytest.mark.parametrize("case", ["several", "single", "void"])
def test_gradients(case):
    _, labels, prototypes = made(case, images=2, size=(2, 3))
    features = torch.randn((2, WIDTH, 2, 3), generator=torch.Generator().manual_seed(1))
    assert grad_ok(lambda f: matching(f, labels, prototypes, READY), features)
    assert grad_ok(lambda f: attraction(f, labels, prototypes, READY), features)
    assert grad_ok(lambda f: repulsion(f, labels, CLASSES), features)
    assert grad_ok(lambda f: sparsity(f, labels, CLASSES), features)


def all_terms(features, labels, prototypes):
    return torch.stack(
        [
            matching(features, labels, prototypes, READY),
            attraction(features, labels, prototypes, READY),
            repulsion(features, labels, CLASSES),
            sparsity(features, labels, CLASSES),
        ]
    )


@pytest.mark.parametrize("value", [0.0, 1e-30, 1.0, 1e4])
@each_case
def test_equal_features_are_finite(case, value):
    features, labels, prototypes = made(case)
    features = torch.full_like(features, value, dtype=torch.float32).requires_grad_()
    terms = all_terms(features, labels, prototypes.float())
    terms.sum().backward()
    assert terms.isfinite().all()
    assert features.grad.isfinite().all()


def test_void_has_no_loss_and_no_gradient():
    features, labels, prototypes = made("void")
    terms = all_terms(features.requires_grad_(), labels, prototypes)
    terms.sum().backward()
    assert terms.tolist() == [0, 0, 0, 0]
    assert not features.grad.any()


def test_prototypes_get_no_gradient():
    features, labels, prototypes = made()
    all_terms(features.requires_grad_(), labels, prototypes.requires_grad_()).sum().backward()
    assert prototypes.grad is None


def test_half_precision_is_summed_in_full():
    features, labels, prototypes = made()
    features = features.bfloat16()
    got = all_terms(features, labels, prototypes.float())
    assert got.dtype == torch.float32
    assert torch.allclose(got, all_terms(features.double(), labels, prototypes).float(), rtol=1e-5)


def _share_of_the_work(parts):
    """Terms and the gradient of their sum on this process's images."""
    from faircl.distributed import rank

    features, labels, prototypes = made()
    own = parts[rank()]
    features = features[own].requires_grad_()
    terms = all_terms(features, labels[own], prototypes)
    terms.sum().backward()
    return terms.detach(), features.grad


@pytest.mark.slow
def test_two_processes_give_the_loss_and_gradient_of_one():
    features, labels, prototypes = made()
    terms = all_terms(features.requires_grad_(), labels, prototypes)
    terms.sum().backward()
    (first, left), (second, right) = start(2, _share_of_the_work, [slice(0, 2), slice(2, 3)])
    assert torch.allclose((first + second) / 2, terms)
    assert torch.allclose(torch.cat([left, right]) / 2, features.grad)
