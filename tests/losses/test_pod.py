"""Local POD against plain loops over tiles, and the reduction of new logits to old channels."""

import math

import pytest
import torch
from loop_losses import grad_ok, nested

from faircl.losses.pod import SCALES, like_old_logits, local_pod


def bands(side, scale):
    """Pixels of every band: pixel k is in band ⌊k·s/n⌋; a side shorter than s has a band per pixel."""
    scale = min(scale, side)
    return [[k for k in range(side) if k * scale // side == band] for band in range(scale)]


def embedded(image, scales):
    """Φ of one image: row means, then column means, tile by tile."""
    values = []
    for plane in image:
        for scale in scales:
            for rows in bands(len(plane), scale):
                for columns in bands(len(plane[0]), scale):
                    tile = [[plane[i][j] ** 2 for j in columns] for i in rows]
                    values += [sum(row) / len(row) for row in tile]
                    values += [sum(column) / len(column) for column in zip(*tile, strict=True)]
    return values


def loop_pod(new, old, scales=SCALES):
    total = 0.0
    for a, b in zip(nested(new), nested(old), strict=True):
        pairs = zip(embedded(a, scales), embedded(b, scales), strict=True)
        total += math.sqrt(sum((x - y) ** 2 for x, y in pairs))
    return total / len(new)


def maps(shape, seed=0, dtype=torch.float64):
    gen = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=gen, dtype=torch.float64).to(dtype) for _ in range(2)]


@pytest.mark.parametrize("size", [(8, 8), (4, 12), (7, 5), (6, 9), (3, 2), (1, 1), (1, 10), (33, 17)])
def test_equals_plain_loops(size):
    new, old = maps((3, 2, *size))
    assert local_pod(new, old).item() == pytest.approx(loop_pod(new, old), rel=1e-9)
    assert local_pod(new.float(), old.float()).item() == pytest.approx(loop_pod(new, old), rel=1e-6)


@pytest.mark.parametrize("scales", [(1,), (2,), (3, 5)])
def test_any_scales(scales):
    new, old = maps((2, 3, 6, 7))
    assert local_pod(new, old, scales).item() == pytest.approx(loop_pod(new, old, scales), rel=1e-9)


def test_by_hand():
    new, old = torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]]), torch.zeros(1, 1, 2, 2)
    # Squares 1 4 / 9 16: row means 2.5, 12.5; column means 5, 10.
    assert local_pod(new, old, (1,)).item() == pytest.approx(math.sqrt(2.5**2 + 12.5**2 + 5**2 + 10**2))
    # Tiles of one pixel: every pixel as a row and as a column.
    assert local_pod(new, old, (2,)).item() == pytest.approx(math.sqrt(2 * (1 + 16 + 81 + 256)))


def test_bands_are_equal_where_they_can_be():
    assert bands(8, 4) == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert sorted(len(band) for band in bands(7, 4)) == [1, 2, 2, 2]
    assert bands(2, 4) == [[0], [1]]


def test_same_features_cost_nothing_and_have_a_gradient():
    old, _ = maps((2, 3, 5, 6))
    new = old.clone().requires_grad_()
    loss = local_pod(new, old)
    loss.backward()
    assert loss.item() == 0
    assert torch.equal(new.grad, torch.zeros_like(new))


@pytest.mark.parametrize("size", [(4, 4), (3, 5)])
def test_gradient(size):
    new, old = maps((2, 2, *size))
    assert grad_ok(lambda x: local_pod(x, old), new)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_features_are_squared_in_single(dtype):
    old = torch.full((1, 2, 4, 4), 300.0, dtype=dtype)
    loss = local_pod(2 * old, old)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(local_pod(2 * old.float(), old.float()).item())


def test_shapes_must_agree():
    with pytest.raises(ValueError, match=r"found \(1, 2, 4, 4\) and \(1, 2, 4, 5\)"):
        local_pod(torch.zeros(1, 2, 4, 4), torch.zeros(1, 2, 4, 5))


def test_new_classes_are_added_to_the_background():
    logits = torch.arange(5.0)[None, :, None, None].expand(2, 5, 3, 4)
    seen = like_old_logits(logits, 3, background=True)
    assert seen.shape == (2, 3, 3, 4)
    assert seen[1, :, 2, 3].tolist() == [0 + 3 + 4, 1, 2]
    assert like_old_logits(logits, 1, background=True)[0, :, 0, 0].tolist() == [10]
    assert like_old_logits(logits, 4, background=True)[0, :, 0, 0].tolist() == [4, 1, 2, 3]


def test_new_classes_are_left_out_without_a_background():
    logits = torch.arange(5.0)[None, :, None, None].expand(2, 5, 3, 4)
    assert torch.equal(like_old_logits(logits, 3, background=False), logits[:, :3])
    assert torch.equal(like_old_logits(logits, 5, background=True), logits)
