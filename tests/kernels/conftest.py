"""Kernels in the place of modules, as in a recording on a GPU."""

from contextlib import contextmanager

import pytest
import torch

from faircl import kernels
from faircl.acceleration.recording import recording


@contextmanager
def kernels_in_place():
    """Let kernels compute all but float64; yield what else may be patched meanwhile."""
    with pytest.MonkeyPatch.context() as patch, recording():
        patch.setattr(kernels, "usable", lambda tensor: tensor.dtype != torch.float64)
        yield patch


@pytest.fixture(scope="session")
def in_place():
    """The same for one example of many."""
    return kernels_in_place


@pytest.fixture
def recorded():
    with recording():
        yield


@pytest.fixture
def by_kernels():
    with kernels_in_place():
        yield
