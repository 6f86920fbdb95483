"""Checks of an installation, for ``faircl doctor``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NamedTuple

import torch

from faircl.runs.environment import environment


class Check(NamedTuple):
    """The result of one check; ``found`` describes it or holds the error."""

    name: str
    ok: bool
    found: str


def checks() -> list[Check]:
    """Run all checks."""
    facts = environment()
    python = Check("python", sys.version_info >= (3, 11), f"{facts['python']} (3.11 or later is needed)")
    versions = Check(
        "packages",
        True,
        ", ".join(f"{k} {facts[k]}" for k in ("faircl", "torch", "torchvision", "timm", "transformers", "numpy")),
    )
    devices = Check("devices", True, f"{facts['cpu']}, {facts['cores']} cores, GPU: {facts['gpu']}")
    return [
        python,
        versions,
        devices,
        _try("torchvision", _torchvision),
        _try("networks", _networks),
        _try("training", _training),
    ]


def _try(name: str, check: Callable[[], str]) -> Check:
    try:
        return Check(name, True, check())
    except Exception as error:  # any error is a result of the check
        return Check(name, False, f"{type(error).__name__}: {error}")


def _torchvision() -> str:
    """Run an operator of torchvision: versions of torch and torchvision that do not match fail only then."""
    from torchvision.ops import nms

    kept = nms(torch.tensor([[0.0, 0, 1, 1], [0, 0, 1, 1]]), torch.tensor([1.0, 0.5]), 0.5)
    if kept.tolist() != [0]:
        raise RuntimeError(f"torchvision's nms kept {kept.tolist()}, expected [0]")
    return "its operators work with this torch"


def _networks() -> str:
    """Build a network of each library, which must work with this torch."""
    from faircl.registry import MODELS

    for config in ({"name": "segformer", "variant": "b0"}, {"name": "timm", "backbone": "resnet18"}):
        MODELS.get(str(config["name"]))(MODELS.parse_config(config))
    return "SegFormer (transformers) and ResNet-18 (timm) can be built"


def _training() -> str:
    """Run a forward and backward pass."""
    from faircl.losses import upsampled_cross_entropy
    from faircl.models.small import Small, SmallConfig

    model = Small(SmallConfig())
    model.classifier.grow(3)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    out = model.to(device)(torch.rand(2, 3, 32, 32, device=device))
    loss = upsampled_cross_entropy(out.logits, torch.randint(0, 3, (2, 32, 32), device=device))
    torch.autograd.backward(loss)
    return f"a forward and backward pass on {device} gives a loss of {float(loss.detach()):.3f}"
