"""What an exported network takes and returns, and what its file tells of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from faircl.config.run import RunConfig
from faircl.data.images import ImageReading
from faircl.data.masks import Colour
from faircl.data.sample import Image
from faircl.errors import UserError
from faircl.labels import BACKGROUND, Mask
from faircl.models.segmenter import Segmenter
from faircl.runs.environment import environment
from faircl.runs.folder import RunFolder
from faircl.scenario import Scenario

INPUT, MASK, LOGITS = "image", "mask", "logits"
"""Names of the input and the outputs."""
EXAMPLE = (2, 3, 96, 160)
"""Shape of the batch that a network is traced with."""
_WINDOWED = ("WindowAttention", "PartitionAttention")
"""Words in the names of timm's modules that divide an image into windows.

A trace of Swin for any size had not ended after five minutes of computing.
"""
Masks = Callable[[NDArray[Any]], NDArray[Any]]
"""Runs an exported network: images (B, 3, H, W) uint8 to class ids (B, H, W)."""


@dataclass(frozen=True, eq=False)
class Source:
    """The network of a run's step, on the CPU in evaluation mode, and what is known of it.

    ``predict`` segments an image (H, W, 3) as `faircl.load` does; every export is checked against it. ``names`` and
    ``colours`` are those of the classes that the network knows, by class id, in ascending order.
    """

    folder: RunFolder
    config: RunConfig
    network: Segmenter
    scenario: Scenario
    step: int
    names: dict[int, str]
    colours: dict[int, Colour]
    reading: ImageReading
    predict: Callable[[Image], Mask]

    @property
    def channels(self) -> list[int]:
        """Class id of every channel of the logits."""
        return list(self.scenario.channel_ids[: self.scenario.channels(self.step)])


class ExportedNetwork(nn.Module):
    """A network with the scaling and normalisation of its images before it, and class ids after it.

    Only operations that other runtimes have are used: no kernels, and no branch that depends on the image's size.

    Shapes: image (B, 3, H, W), RGB, uint8, to mask (B, H, W), the data set's class ids as uint8 (int32 where there are
    more than 254 classes), and logits (B, C, h, w) float32 at network stride, one channel per class in the order of
    learning.
    """

    ids: Tensor

    def __init__(self, source: Source) -> None:
        super().__init__()
        self.network = source.network
        small = len(source.scenario.classes.names) <= 254
        ids = torch.tensor(source.channels, dtype=torch.uint8 if small else torch.int32)
        self.register_buffer("ids", ids)

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """Return mask and logits."""
        logits = self.network(image.float() / 255).logits
        scores = F.interpolate(logits, image.shape[-2:], mode="bilinear", align_corners=False)
        return self.ids[scores.argmax(1)], logits


@contextmanager
def traceable(source: Source) -> Iterator[tuple[ExportedNetwork, Tensor]]:
    """Yield the module to export and an example batch."""
    if any(word in type(part).__name__ for part in source.network.modules() for word in _WINDOWED):
        raise UserError(
            f"Network '{source.network.name}' has a backbone that divides images into windows, which torch cannot "
            "export for all sizes; its format is huggingface."
        )
    with torch.no_grad():
        yield ExportedNetwork(source).eval(), torch.zeros(EXAMPLE, dtype=torch.uint8)


def metadata(source: Source) -> dict[str, Any]:
    """Return what a file tells of the network in it, as plain values."""
    made_by = environment()
    reading = {"bands": source.reading.bands, "value_range": source.reading.value_range}
    return {
        "input": f"{INPUT}: uint8 (batch, 3, height, width), RGB from 0 to 255, not normalised",
        "output": f"{MASK}: class ids (batch, height, width); {LOGITS}: float32 (batch, channels, h, w), not upsampled",
        "classes": [
            {"id": id, "name": name, "colour": "#{:02x}{:02x}{:02x}".format(*source.colours[id])}
            for id, name in source.names.items()
        ],
        "channels": source.channels,
        "background": BACKGROUND if source.scenario.background else None,
        "network": source.network.name,
        "data": source.config.data.name,
        "step": source.step,
        "faircl": made_by["faircl"],
        "commit": made_by["commit"],
        "torch": made_by["torch"],
    } | {key: list(value) for key, value in reading.items() if value is not None}


def one_line(error: BaseException) -> str:
    """Return the innermost cause of an error as one short line."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__} {' '.join(str(error).split())}"[:300].rstrip(". ")
