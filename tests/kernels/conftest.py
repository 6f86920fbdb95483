"""Fixtures that run kernels on the CPU as in a recording on a GPU."""

from contextlib import contextmanager

import pytest
import torch

from faircl import kernels
from faircl.acceleration.recording import recording


@contextmanager
def kernels_in_place():
    """Use kernels for all dtypes but float64; yield the monkeypatch context."""
    with pytest.MonkeyPatch.context() as patch, recording():
        patch.setattr(kernels, "usable", lambda tensor: tensor.dtype != torch.float64)
        yield patch


@pytest.fixture(scope="session")
def in_place():
    """Return the context manager, for use within single examples of hypothesis."""
    return kernels_in_place


@pytest.fixture
def recorded():
    with recording():
        yield


@pytest.fixture
def by_kernels():
    with kernels_in_place():
        yield
