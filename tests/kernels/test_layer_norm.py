"""Layer normalisation against torch's in float64."""

import pytest
import torch
from torch.nn import functional

kernel = pytest.importorskip("faircl.kernels.layer_norm", reason="Triton comes with torch for Linux alone")


def rows(shape, seed=0):
    gen = torch.Generator().manual_seed(seed)
    width = shape[-1]
    x = 3 * torch.randn(shape, generator=gen) + 5
    return [x, torch.randn(width, generator=gen), torch.randn(width, generator=gen)]


@pytest.mark.parametrize("shape", [(2, 3, 64), (70, 20), (1, 1), (5, 320)])
def test_values_and_gradients_equal_float64(shape, monkeypatch):
    monkeypatch.setattr(kernel, "MAX_PROGRAMS", 2)  # so that a program has several tiles
    monkeypatch.setattr(kernel, "TILE_SIZE", 512)
    found = [one.requires_grad_() for one in rows(shape)]
    exact = [one.detach().double().requires_grad_() for one in found]
    given = torch.randn(shape)
    y = kernel.layer_norm(*found, 1e-5, torch.float32)
    wanted = functional.layer_norm(exact[0], shape[-1:], *exact[1:], 1e-5)
    (y * given).sum().backward()
    (wanted * given).sum().backward()
    assert torch.allclose(y.double(), wanted, atol=1e-5)
    for one, other in zip(found, exact, strict=True):
        assert torch.allclose(one.grad.double(), other.grad, atol=2e-5, rtol=1e-5)


def test_rounds_once_to_the_type_asked_for():
    x, weight, bias = rows((6, 32))
    x.requires_grad_()
    y = kernel.layer_norm(x, weight, bias, 1e-5, torch.bfloat16)
    exact = functional.layer_norm(x.double(), (32,), weight.double(), bias.double(), 1e-5)
    assert y.dtype == torch.bfloat16
    assert torch.allclose(y.double(), exact, rtol=2**-7, atol=1e-6)
    y.float().sum().backward()
    assert x.grad.dtype == torch.float32


def test_gradients_are_repeated_bit_for_bit():
    runs = []
    for _ in range(2):
        found = [one.requires_grad_() for one in rows((9, 24))]
        (kernel.layer_norm(*found, 1e-5, torch.float32) ** 2).sum().backward()
        runs.append([one.grad for one in found])
    assert all(torch.equal(a, b) for a, b in zip(*runs, strict=True))
