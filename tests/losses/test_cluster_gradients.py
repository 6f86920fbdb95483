"""The backward pass of cluster_loss against autograd of two plain loops."""

import loop_losses as loops
import pytest
import torch

from faircl.labels import IGNORE
from faircl.losses import cluster, cluster_loss

SIZES = [(3, 4, 5), (1, 1, 1), (2, 1, 6), (5, 2, 1)]
ACTIVE = torch.tensor([1, 1, 0, 1, 1], dtype=torch.bool)
EVERY = torch.ones_like(ACTIVE)
MARGIN = 4.0


def case(images=3, height=4, width=5, channels=6, seed=0, classes=5):
    """Maps with void pixels and with a class whose prototype is not active; hinges on both sides."""
    gen = torch.Generator().manual_seed(seed)
    features = 1.5 * torch.randn((images, channels, height, width), generator=gen)
    labels = torch.randint(classes, (images, height, width), generator=gen)
    labels[torch.rand(labels.shape, generator=gen) < 0.2] = IGNORE
    labels.view(-1)[0] = 1
    return features.double(), labels, 1.2 * torch.randn((classes, channels), generator=gen).double()


def rows(maps):
    """(B, D, h, w) to (N, D), pixel by pixel."""
    return torch.stack([image[:, i, j] for image in maps for i in range(maps.shape[2]) for j in range(maps.shape[3])])


def reference(features, labels, prototypes, active=ACTIVE, margin=MARGIN):
    """Eqn 8-9 in two loops over pixels and classes, in double precision, for autograd to differentiate."""
    pull, push = [], []
    for f, y in zip(rows(features.double()), labels.flatten().tolist(), strict=True):
        if y == IGNORE or not active[y]:
            continue
        for c, p in enumerate(prototypes.double()):
            apart = (f - p).square().sum().sqrt()
            if c == y:
                pull.append(apart)
            elif active[c]:
                push.append(torch.relu(margin - apart))
    zero = 0 * features.double().sum()
    return (sum(pull) / len(pull) if pull else zero), (sum(push) / len(push) if push else zero)


def gradients(function, features, *rest, **named):
    """Return the values of pull and push, and the gradient of each."""
    leaf = features.detach().requires_grad_()
    halves = function(leaf, *rest, **named)
    grads = [torch.autograd.grad(half, leaf, retain_graph=True)[0] for half in halves]
    return [half.item() for half in halves], grads


def ours(features, labels, prototypes, active=ACTIVE, margin=MARGIN):
    return cluster_loss(features, labels, prototypes, active, margin)


def apart(found, expected):
    """Distance of two gradients, relative to the second."""
    return ((found.double() - expected).norm() / expected.norm()).item()


@pytest.mark.parametrize("size", SIZES)
def test_maps_equal_the_loops(size):
    inputs = case(*size)
    values, found = gradients(ours, *inputs)
    expected_values, expected = gradients(reference, *inputs)
    assert values == pytest.approx(expected_values, abs=1e-6)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-9)


def test_the_reference_is_the_other_loop():
    features, labels, prototypes = case()
    expected = loops.cluster(rows(features), labels.flatten(), prototypes, ACTIVE, MARGIN)
    assert [half.item() for half in reference(features, labels, prototypes)] == pytest.approx(expected)


@pytest.mark.parametrize("size", SIZES)
def test_rows_equal_maps(size):
    features, labels, prototypes = case(*size)
    values, found = gradients(ours, features, labels, prototypes)
    row_values, of_rows = gradients(ours, rows(features), labels.flatten(), prototypes)
    assert row_values == pytest.approx(values, abs=1e-12)
    for one, other in zip(of_rows, found, strict=True):
        torch.testing.assert_close(one, rows(other), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("pixels", [1, 20, 59])
def test_some_images_at_a_time_equal_all_at_once(pixels, dtype, monkeypatch):
    features, labels, prototypes = case(images=5)
    inputs = features.to(dtype), labels, prototypes.to(torch.promote_types(dtype, torch.float32))
    values, whole = gradients(ours, *inputs)
    parts, split = [], cluster._image_chunks
    monkeypatch.setattr(cluster, "MAX_PIXELS", pixels)
    monkeypatch.setattr(cluster, "_image_chunks", lambda *maps: [parts.append(p) or p for p in split(*maps)])
    part_values, found = gradients(ours, *inputs)
    assert len(parts) == 3 * {1: 5, 20: 5, 59: 3}[pixels]  # one pass forward, two back
    assert part_values == pytest.approx(values, rel=1e-6)
    for one, other in zip(found, whole, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("form", [lambda f, y: (f, y), lambda f, y: (rows(f), y.flatten())], ids=["maps", "rows"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_low_precision_equals_double_on_the_same_numbers(dtype, form):
    features, labels, prototypes = case(images=2, channels=32)
    prototypes = 0.5 * prototypes.float()
    features, labels = form(0.5 * features.to(dtype), labels)
    values, found = gradients(ours, features, labels, prototypes, margin=7.0)
    as_maps = features if features.ndim == 4 else features.t()[None, :, :, None]
    expected_values, expected = gradients(reference, as_maps.double(), labels, prototypes, margin=7.0)
    assert min(expected_values) > 0.05
    assert values == pytest.approx(expected_values, rel=1e-3)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == dtype
        assert one.shape == features.shape
        assert apart(one, other if other.shape == one.shape else rows(other)) < 1e-2


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_features_close_to_their_prototype(dtype):
    """The own distance is small beside the features, where rounding would show most."""
    gen = torch.Generator().manual_seed(3)
    prototypes = 3 * torch.randn((5, 64), generator=gen)
    labels = torch.arange(5).repeat(8).view(1, 8, 5)
    noise = 0.1 * torch.randn((8, 5, 64), generator=gen)
    features = (prototypes + noise).permute(2, 0, 1)[None].to(dtype)
    values, found = gradients(ours, features, labels, prototypes, EVERY, 40.0)
    expected_values, expected = gradients(reference, features.double(), labels, prototypes, EVERY, 40.0)
    assert values == pytest.approx(expected_values, rel=1e-3)
    assert all(apart(one, other) < 1e-2 for one, other in zip(found, expected, strict=True))


def kernel_formula(features, labels, prototypes, active, margin, alpha, beta):
    """Gradient of α·Σ pull + β·Σ push of float16 features in two loops, with coefficients rounded to float16."""
    gradient = torch.zeros_like(features, dtype=torch.float64)
    largest = max(p.double().square().sum().item() for p in prototypes[active])
    for b, i, j in torch.cartesian_prod(*map(torch.arange, labels.shape)).tolist():
        y, f = labels[b, i, j].item(), features[b, :, i, j].double()
        if y == IGNORE or not active[y]:
            continue
        floor = max((f.square().sum().item() + largest) * 2.0**-23, 2.0**-126)
        for c, p in enumerate(prototypes.double()):
            distance = max((f - p).square().sum().item(), floor) ** 0.5
            rate = alpha if c == y else -beta * (active[c].item() and distance < margin)
            r = torch.tensor(max(min(rate / distance, 65504.0), -65504.0)).half().double()
            gradient[b, :, i, j] += r * (f - p)
    return gradient


@pytest.mark.parametrize("size", [0.0, 1e-7, 1e-4, 1.0], ids="size {}".format)
def test_half_precision_on_a_prototype_is_finite_and_equals_the_kernels_formula(size):
    """Features that lie on their own or on another prototype, where 1/d is more than float16 can hold."""
    features, labels, prototypes = case(channels=8)
    features, prototypes = (size * features).half(), (size * prototypes).half()
    prototypes[4] = prototypes[1]
    for b, i, j in ((0, 0, 0), (1, 2, 3), (2, 3, 4)):
        features[b, :, i, j], labels[b, i, j] = prototypes[1], 1
    values, found = gradients(ours, features, labels, prototypes.float())
    expected_values, _ = gradients(reference, features, labels, prototypes)
    assert values == pytest.approx(expected_values, rel=1e-3, abs=1e-3)
    count = ((labels != IGNORE) & ACTIVE[labels.where(labels != IGNORE, 0)]).sum().item()
    pushes = count * (ACTIVE.sum().item() - 1)
    for gradient, rates in zip(found, ((1, 0), (0, 1)), strict=True):
        assert gradient.isfinite().all()
        # The rates are 1 while coefficients are rounded; the means' divisors come afterwards.
        expected = kernel_formula(features, labels, prototypes, ACTIVE, MARGIN, *rates) / (
            count if rates[0] else pushes
        )
        torch.testing.assert_close(gradient.double(), expected, rtol=4e-3, atol=1e-6)


def test_inactive_prototypes_do_not_change_the_smallest_distance():
    features, labels, prototypes = case()
    features, far = features.half(), prototypes.clone()
    far[~ACTIVE] = 1e4
    for one, other in zip(*(gradients(ours, features, labels, p.float())[1] for p in (prototypes, far)), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e-5])
def test_a_gradient_that_half_precision_can_hold_is_not_lost_on_the_way(scale):
    """A mean over hundreds of thousands of pixels and hundreds of classes has small rates; their sum is not small.

    ``scale`` is what is left of the loss's weight after such a mean. Features lie between their own prototype and a
    crowd on one side, so that the pushes add up.
    """
    gen = torch.Generator().manual_seed(4)
    classes, channels = 150, 16
    prototypes = 0.1 * torch.randn((classes, channels), generator=gen)
    prototypes[:, 0] += 10
    features = torch.randn((1, channels, 4, 5), generator=gen).half()
    labels, active = torch.randint(classes, (1, 4, 5), generator=gen), torch.ones(classes, dtype=torch.bool)
    _, (_, found) = gradients(
        lambda *inputs: [scale * half for half in ours(*inputs)], features, labels, prototypes, active, 20.0
    )
    _, (_, expected) = gradients(
        lambda *inputs: [scale * half for half in reference(*inputs)],
        features.double(),
        labels,
        prototypes,
        active,
        20.0,
    )
    assert apart(found, expected) < 1e-2 + apart(expected.half(), expected)


# ---- layouts


def permuted(maps):
    return maps.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)


LAYOUTS = {
    "channels last": lambda maps: maps.contiguous(memory_format=torch.channels_last),
    "permuted": permuted,
    "every second": lambda maps: torch.stack([maps, 0 * maps], -1)[..., 0],
    "a part of a larger map": lambda maps: torch.nn.functional.pad(maps, (1, 2, 3, 1))[..., 3:-1, 1:-2],
    "expanded": lambda maps: maps[:1].expand_as(maps),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_any_layout_of_the_features(layout, dtype):
    features, labels, prototypes = case()
    prototypes = prototypes.to(torch.promote_types(dtype, torch.float32))
    laid = LAYOUTS[layout](features.to(dtype))
    assert not laid.is_contiguous()
    plain = laid.contiguous().clone()
    values, expected = gradients(ours, plain, labels, prototypes)
    found_values, found = gradients(ours, laid, labels, prototypes)
    assert found_values == pytest.approx(values, rel=1e-6)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_any_layout_of_labels_and_prototypes():
    features, labels, prototypes = case()
    values, expected = gradients(ours, features, labels, prototypes)
    turned = labels.transpose(1, 2).contiguous().transpose(1, 2)
    columns = prototypes.t().contiguous().t()
    assert not turned.is_contiguous()
    assert not columns.is_contiguous()
    found_values, found = gradients(ours, features, turned, columns)
    assert found_values == pytest.approx(values, rel=1e-12)
    torch.testing.assert_close(found, expected)


# ---- what has a gradient


def test_features_alone_have_a_gradient():
    features, labels, prototypes = case()
    features.requires_grad_()
    prototypes.requires_grad_()
    sum(cluster_loss(features, labels, prototypes, ACTIVE, MARGIN)).backward()
    assert prototypes.grad is None
    counted = (labels != IGNORE) & ACTIVE[labels.where(labels != IGNORE, 0)]
    assert counted.any()
    assert not counted.all()
    moved = features.grad.ne(0).any(1)
    assert torch.equal(moved, counted)


def test_inputs_are_left_as_they_were():
    inputs = case()
    copies = [value.clone() for value in inputs]
    gradients(ours, *inputs)
    assert all(torch.equal(value, copy) for value, copy in zip(inputs, copies, strict=True))


def test_without_gradient_the_values_are_the_same():
    inputs = case()
    with torch.no_grad():
        alone = [half.item() for half in ours(*inputs)]
    assert alone == gradients(ours, *inputs)[0]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("nothing", ["void", "inactive", "no image", "no pixel"])
def test_no_valid_pixel(nothing, dtype):
    features, labels, prototypes = case()
    prototypes = prototypes.to(torch.promote_types(dtype, torch.float32))
    active = ACTIVE & (nothing != "inactive")
    if nothing == "void":
        labels = torch.full_like(labels, IGNORE)
    elif nothing == "no image":
        features, labels = features[:0], labels[:0]
    elif nothing == "no pixel":
        features, labels = features[..., :0], labels[..., :0]
    values, found = gradients(ours, features.to(dtype), labels, prototypes, active)
    assert values == [0, 0]
    assert all(one.shape == features.shape and one.eq(0).all() for one in found)


def test_a_single_active_class_pulls_alone():
    features, labels, prototypes = case()
    alone = torch.arange(5) == 1
    values, found = gradients(ours, features, labels, prototypes, alone)
    _, (expected, _) = gradients(reference, features, labels, prototypes, alone)
    assert values[0] > 0
    assert values[1] == 0
    torch.testing.assert_close(found[0], expected)
    assert found[1].eq(0).all()


@pytest.mark.parametrize("size", [(2, 2, 3), (1, 1, 1), (1, 1, 4)])
@pytest.mark.parametrize("as_rows", [False, True])
def test_finite_differences(size, as_rows):
    features, labels, prototypes = case(*size, channels=3, seed=5)

    def halves(f):
        return tuple(ours(rows(f), labels.flatten(), prototypes) if as_rows else ours(f, labels, prototypes))

    assert loops.grad_ok(halves, features)
