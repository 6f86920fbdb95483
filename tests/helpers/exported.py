"""Exported files, run as a user of other libraries would run them, beside ``faircl.load``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

import faircl

SIZES = ((64, 96), (97, 131), (45, 38))
BATCHES = (1, 4)
NETWORKS = {
    "small": "model={name: small, width: 8, embedding: 8}",
    "deeplabv3": "model={name: deeplabv3, backbone: mobilenet_v2, weights: none}",
    "segformer": "model={name: segformer, variant: b0, weights: none}",
}
"""The networks whose exports are run at every size."""


def photos(batch: int, height: int, width: int) -> np.ndarray:
    """Smooth coloured blobs under a little noise, (B, 3, H, W) uint8."""
    torch.manual_seed(1000 * batch + height)
    coarse = torch.rand(batch, 3, 5, 7)
    smooth = torch.nn.functional.interpolate(coarse, (height, width), mode="bicubic") + 0.02 * torch.randn(
        height, width
    )
    return (255 * smooth.clamp(0, 1)).round().to(torch.uint8).numpy()


def agreement(run: Path, masks: Callable[[np.ndarray], np.ndarray], step: int = -1) -> float:
    """Return the share of pixels with the same class id as ``faircl.load(run).predict``, over all sizes and batches."""
    predictor = faircl.load(run, step, device="cpu")
    same = []
    for height, width in SIZES:
        for batch in BATCHES:
            images = photos(batch, height, width)
            expected = np.stack([predictor.predict(image.transpose(1, 2, 0)).mask for image in images])
            found = masks(images)
            assert found.shape == expected.shape
            same.append((found == expected).ravel())
    return float(np.concatenate(same).mean())
