"""kernels.usable for tensors, devices and the environment variable."""

from types import SimpleNamespace

import pytest
import torch

from faircl import kernels


def tensor(device="cuda", dtype=torch.bfloat16):
    return SimpleNamespace(device=torch.device(device, 0) if device == "cuda" else torch.device(device), dtype=dtype)


@pytest.fixture(autouse=True)
def gpu(monkeypatch):
    """A GPU that Triton supports."""
    monkeypatch.setattr(kernels, "_device_supported", lambda device: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.delenv(kernels.SWITCH, raising=False)


def test_on_a_gpu_up_to_32_bits():
    assert kernels.usable(tensor())
    assert kernels.usable(tensor(dtype=torch.float32))
    assert not kernels.usable(tensor(dtype=torch.float64))
    assert not kernels.usable(tensor("cpu"))


def test_on_the_present_gpu_alone(monkeypatch):
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    assert not kernels.usable(tensor())


def test_the_switch(monkeypatch):
    monkeypatch.setenv(kernels.SWITCH, "0")
    assert not kernels.usable(tensor())
    monkeypatch.setenv(kernels.SWITCH, "1")
    assert kernels.usable(tensor())


def test_a_triton_that_cannot_compile_is_done_without(monkeypatch):
    def fails(*_):
        raise RuntimeError("Failed to find C compiler.\nPlease specify via CC")

    monkeypatch.setattr("faircl.kernels.upsampled_logits.upsampled_argmax", fails)
    monkeypatch.setattr(torch, "zeros", lambda *_, **__: None)
    with pytest.warns(UserWarning, match="Failed to find C compiler. Please specify"):
        assert not kernels._compiles()
