"""Kernels in the place of modules, as in a recording on a GPU."""

import pytest
import torch

from faircl import kernels
from faircl.models.recorded import recording


@pytest.fixture
def recorded():
    with recording():
        yield


@pytest.fixture
def by_kernels(monkeypatch, recorded):
    monkeypatch.setattr(kernels, "usable", lambda tensor: tensor.dtype != torch.float64)
