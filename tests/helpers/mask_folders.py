"""Folders of mask files."""

from pathlib import Path

import numpy as np
from PIL import Image


def write_masks(folder: Path, masks: dict[str, object], depth: type = np.uint8) -> Path:
    """Write masks by their names, as gray PNGs unless the name has another extension."""
    for name, mask in masks.items():
        path = folder / (name if "." in name else f"{name}.png")
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.asarray(mask, depth)).save(path)
    return folder


def random_masks(seed: int, count: int, classes: int, shape=(24, 32), ignored: float = 0.1):
    """Return labels, some of whose pixels are 255, and predictions of which two thirds are right, by name."""
    random = np.random.default_rng(seed)
    labels, predictions = {}, {}
    for k in range(count):
        truth = random.integers(0, classes, shape).astype(np.uint8)
        guess = np.where(random.random(shape) < 0.67, truth, random.integers(0, classes, shape)).astype(np.uint8)
        labels[f"image{k}"] = np.where(random.random(shape) < ignored, 255, truth).astype(np.uint8)
        predictions[f"image{k}"] = guess
    return labels, predictions
