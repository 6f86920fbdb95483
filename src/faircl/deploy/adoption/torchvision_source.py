"""torchvision's DeepLabV3 as a source: the state dict of one of its three networks."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from faircl.deploy.adoption.source import Forward, Source
from faircl.errors import UserError
from faircl.models.checkpoint_keys import to_torchvision_keys
from faircl.models.segmenter import IMAGENET_MEAN, IMAGENET_STD
from faircl.models.weights import State, load_modules

_RATES = [12, 24, 36]
_LAYER3 = {6: "resnet50", 23: "resnet101"}
"""Residual blocks of the third layer, by which ResNets differ."""


def torchvision_source(path: Path, state: State) -> Source:
    """Return the network of a state dict that has torchvision's DeepLabV3 head."""
    import torchvision

    backbone = _backbone(path, state)
    auxiliary = [key for key in state if key.startswith("aux_classifier.")]
    weight, bias = state["classifier.4.weight"].float(), state["classifier.4.bias"].float()
    stride = 16 if backbone == "mobilenet_v3_large" else 8
    notes = ("the auxiliary classifier, which torchvision uses in training alone, is left out",) if auxiliary else ()
    return Source(
        path=path,
        found=f"torchvision's deeplabv3_{backbone}",
        library=f"torchvision {torchvision.__version__}",
        model={"name": "deeplabv3", "backbone": backbone, "stride": stride, "rates": _RATES},
        state=_own_keys(state),
        weight=weight.flatten(1),
        bias=bias,
        forward=_forward(path, backbone, state, len(weight), bool(auxiliary)),
        notes=notes,
    )


def _backbone(path: Path, state: State) -> str:
    blocks = {int(match[1]) for key in state if (match := re.match(r"backbone\.layer3\.(\d+)\.conv3\.", key))}
    if len(blocks) in _LAYER3:
        return _LAYER3[len(blocks)]
    if "backbone.16.0.weight" in state:
        return "mobilenet_v3_large"
    raise UserError(
        f"The DeepLabV3 in {path} has a backbone that is not known here; expected torchvision's deeplabv3_resnet50, "
        "deeplabv3_resnet101 or deeplabv3_mobilenet_v3_large."
    )


def _own_keys(state: State) -> State:
    """Return the keys of faircl's DeepLabV3: the head without its last layer is the decoder."""
    kept = {
        k: v for k, v in to_torchvision_keys(state).items() if not k.startswith(("aux_classifier.", "classifier.4"))
    }
    return {re.sub(r"^classifier\.", "decoder.", key): value for key, value in kept.items()}


def _forward(path: Path, backbone: str, state: State, classes: int, auxiliary: bool) -> Forward:
    """Return torchvision's own network as a function; the network is built when it is first called."""

    @cache
    def network() -> Any:
        from torchvision.models import segmentation

        build = getattr(segmentation, f"deeplabv3_{backbone}")
        built = build(weights=None, weights_backbone=None, num_classes=classes, aux_loss=auxiliary)
        load_modules({"": built}, state, source=str(path), label=f"torchvision's deeplabv3_{backbone}")
        return built.eval()

    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (IMAGENET_MEAN, IMAGENET_STD))

    def forward(images: Tensor) -> Tensor:
        logits: Tensor = network()((images - mean) / std)["out"]
        return logits

    return forward
