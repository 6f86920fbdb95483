"""Adding upsampled maps against torch's interpolation in float64."""

import pytest
import torch
from grids import grid
from torch.nn import functional

resample = pytest.importorskip("faircl.kernels.add_upsampled", reason="Triton comes with torch for Linux alone")

SIZES = {
    "halves": ((8, 8), [(4, 4), (2, 2)]),
    "odd": ((7, 5), [(4, 3), (2, 2), (1, 1)]),
    "equal": ((3, 4), [(3, 4)]),
    "wide": ((2, 40), [(1, 20)]),
    "smaller": ((2, 2), [(5, 4)]),
}


def maps(large, small, width, dtype=torch.float32):
    gen = torch.Generator().manual_seed(0)
    return [torch.randn((2, width, *size), generator=gen).to(dtype) for size in (large, *small)]


def plain(fine, *coarse):
    size = fine.shape[2:]
    return fine + sum(functional.interpolate(one, size, mode="bilinear", align_corners=False) for one in coarse)


@grid("width", [3, 17, 140])
@pytest.mark.parametrize("name", SIZES)
def test_sum_and_gradients_equal_float64(name, width):
    found = [one.requires_grad_() for one in maps(*SIZES[name], width)]
    exact = [one.detach().double().requires_grad_() for one in found]
    sums = resample.add_upsampled(*found), plain(*exact)
    weight = torch.randn(sums[0].shape)
    for total in sums:
        (total * weight).sum().backward()
    assert torch.allclose(sums[0].double(), sums[1], atol=1e-5)
    for one, other in zip(found, exact, strict=True):
        assert torch.allclose(one.grad.double(), other.grad, atol=1e-5)


def test_any_layout_and_short_numbers():
    found = [one.bfloat16() for one in maps((6, 6), [(3, 3)], 20)]
    total = resample.add_upsampled(found[0].contiguous(memory_format=torch.channels_last), found[1])
    assert total.dtype == torch.bfloat16
    assert total.is_contiguous(memory_format=torch.channels_last)
    exact = plain(*(one.double() for one in found))
    assert torch.allclose(total.double(), exact, rtol=2**-6, atol=1e-2)


def test_gradients_are_repeated_bit_for_bit():
    runs = []
    for _ in range(2):
        found = [one.requires_grad_() for one in maps((7, 5), [(4, 3)], 17)]
        (resample.add_upsampled(*found) ** 2).sum().backward()
        runs.append([one.grad for one in found])
    assert all(torch.equal(a, b) for a, b in zip(*runs, strict=True))
