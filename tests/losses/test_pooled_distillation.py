"""Pooled-cube distillation against plain loops over windows and channels."""

import math

import pytest
import torch
from loop_losses import grad_ok, nested

from faircl.losses.pooled_distillation import WINDOWS, channel_pooled, spatial_pooled


def loop_spatial(new, old, windows=WINDOWS):
    total = 0.0
    for a, b in zip(nested(new), nested(old), strict=True):
        height, width = len(a[0]), len(a[0][0])
        for k in windows:
            squares = 0.0
            for p, q in zip(a, b, strict=True):
                for i in range(height + 1):
                    for j in range(width + 1):
                        rows = [m for m in range(i - k // 2, i + k // 2) if 0 <= m < height]
                        columns = [n for n in range(j - k // 2, j + k // 2) if 0 <= n < width]
                        squares += (sum(p[m][n] ** 2 - q[m][n] ** 2 for m in rows for n in columns) / k**2) ** 2
            total += math.sqrt(squares) / len(windows)
    return total / len(new)


def loop_channel(new, old):
    total = 0.0
    for a, b in zip(nested(new), nested(old), strict=True):
        squares = 0.0
        for d in range(len(a)):
            near = [c for c in (d - 1, d, d + 1) if 0 <= c < len(a)]
            for i in range(len(a[0])):
                for j in range(len(a[0][0])):
                    squares += (sum(a[c][i][j] ** 2 - b[c][i][j] ** 2 for c in near) / 3) ** 2
        total += math.sqrt(squares)
    return total / len(new)


def maps(shape, seed=0, dtype=torch.float64):
    gen = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=gen, dtype=torch.float64).to(dtype) for _ in range(2)]


both = pytest.mark.parametrize("loss", [spatial_pooled, channel_pooled])


@pytest.mark.parametrize("size", [(8, 8), (3, 11), (5, 2), (1, 1), (1, 7)])
def test_spatial_equals_plain_loops(size):
    new, old = maps((2, 2, *size))
    wanted = loop_spatial(new, old)
    assert spatial_pooled(new, old).item() == pytest.approx(wanted, rel=1e-9)
    assert spatial_pooled(new.float(), old.float()).item() == pytest.approx(wanted, rel=1e-6)


def test_spatial_on_a_map_larger_than_its_windows():
    new, old = maps((1, 1, 27, 25))
    assert spatial_pooled(new, old, (4, 24)).item() == pytest.approx(loop_spatial(new, old, (4, 24)), rel=1e-9)


@pytest.mark.parametrize("side", WINDOWS)
def test_spatial_is_average_pooling(side):
    """Equals torch's average pooling with zero padding of half a window, which counts."""
    new, old = maps((2, 3, 13, 30))
    planes = [torch.nn.functional.avg_pool2d(x.square(), side, stride=1, padding=side // 2) for x in (new, old)]
    assert planes[0].shape[-2:] == (14, 31)
    wanted = (planes[0] - planes[1]).flatten(1).norm(dim=1).mean()
    torch.testing.assert_close(spatial_pooled(new, old, (side,)), wanted)


@pytest.mark.parametrize("channels", [1, 2, 3, 7])
def test_channel_equals_plain_loops(channels):
    new, old = maps((3, channels, 4, 5))
    assert channel_pooled(new, old).item() == pytest.approx(loop_channel(new, old), rel=1e-9)
    assert channel_pooled(new.float(), old.float()).item() == pytest.approx(loop_channel(new, old), rel=1e-6)


def test_by_hand():
    new, old = torch.tensor([1.0, 2.0, 3.0])[None, :, None, None], torch.zeros(1, 3, 1, 1)
    # Squares 1, 4, 9; sums of neighbours 5, 14, 13.
    assert channel_pooled(new, old).item() == pytest.approx(math.sqrt(5**2 + 14**2 + 13**2) / 3)
    # All four windows contain the only pixel.
    assert spatial_pooled(new, old, (4,)).item() == pytest.approx(math.sqrt(4 * (1 + 16 + 81)) / 16)


@both
def test_same_features_cost_nothing_and_have_a_gradient(loss):
    old, _ = maps((2, 3, 5, 6))
    new = old.clone().requires_grad_()
    value = loss(new, old)
    value.backward()
    assert value.item() == 0
    assert torch.equal(new.grad, torch.zeros_like(new))


@both
def test_sign_does_not_matter_and_size_does(loss):
    new, old = maps((2, 3, 5, 6))
    assert loss(-old, old).item() == 0
    assert loss(2 * new, 2 * old).item() == pytest.approx(4 * loss(new, old).item())


@both
@pytest.mark.parametrize("size", [(4, 4), (3, 5)])
def test_gradient(loss, size):
    new, old = maps((2, 2, *size))
    assert grad_ok(lambda x: loss(x, old), new)


@both
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_features_are_squared_in_single(loss, dtype):
    old = torch.full((1, 2, 4, 4), 300.0, dtype=dtype)
    value = loss(2 * old, old)
    assert value.dtype == torch.float32
    assert value.item() == pytest.approx(loss(2 * old.float(), old.float()).item())


@both
def test_shapes_must_agree(loss):
    with pytest.raises(ValueError, match=r"found \(1, 2, 4, 4\) and \(1, 2, 4, 5\)"):
        loss(torch.zeros(1, 2, 4, 4), torch.zeros(1, 2, 4, 5))


@both
def test_the_mean_is_over_the_images_of_all_processes(loss, monkeypatch):
    new, old = maps((3, 2, 4, 5))
    monkeypatch.setattr("faircl.distributed.global_sum", lambda value: 2 * value)
    monkeypatch.setattr("faircl.distributed.world_size", lambda: 2)
    together = loss(new, old)
    monkeypatch.undo()
    assert together.item() == pytest.approx(loss(new, old).item())  # of two processes with equal shares
