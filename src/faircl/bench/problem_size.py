"""Sizes at which single operations are timed, and random logits and labels of these sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

from faircl.errors import UserError
from faircl.labels import IGNORE, UNLABELLED

IGNORED_SHARE = 0.05
"""Share of pixels whose label is IGNORE."""


@dataclass(frozen=True)
class ProblemSize:
    """``batch`` images of ``size``×``size`` pixels, with logits of ``classes`` at every ``stride`` pixels."""

    classes: int = 151
    size: int = 512
    stride: int = 16
    batch: int = 24

    def __post_init__(self) -> None:
        if not 2 <= self.classes < UNLABELLED:
            raise UserError(f"--classes is {self.classes}, expected 2 to {UNLABELLED - 1}; background counts as one.")
        if self.size < 1:
            raise UserError(f"--size is {self.size}, expected at least 1; give the side of an image in pixels.")
        if self.batch < 1:
            raise UserError(f"--batch is {self.batch}, expected at least 1; give the images per batch.")
        if not 1 <= self.stride <= self.size:
            raise UserError(
                f"--stride is {self.stride}, expected 1 to the side of an image, {self.size}; give the distance of "
                "two logits in pixels."
            )

    @property
    def pixels(self) -> int:
        """Pixels of all images."""
        return self.batch * self.size**2

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Shape of the logits, (B, C, h, w)."""
        side = -(-self.size // self.stride)
        return self.batch, self.classes, side, side

    @property
    def label(self) -> str:
        """Short description for progress and messages."""
        return f"{self.classes} classes, {self.size}×{self.size}, stride {self.stride}"


def size_grid(classes: Sequence[int], sizes: Sequence[int], strides: Sequence[int], batch: int) -> list[ProblemSize]:
    """Return all combinations without repetitions."""
    grid = (ProblemSize(count, side, stride, batch) for stride, side, count in product(strides, sizes, classes))
    return list(dict.fromkeys(grid))


def random_logits(size: ProblemSize, dtype: torch.dtype, device: torch.device, channels_last: bool = False) -> Tensor:
    """Draw logits (B, C, h, w) with a standard deviation of 3, similar to those of a trained network."""
    generator = torch.Generator(device).manual_seed(0)
    logits = (3 * torch.randn(size.shape, generator=generator, device=device)).to(dtype)
    return logits.contiguous(memory_format=torch.channels_last) if channels_last else logits


def random_labels(size: ProblemSize, device: torch.device) -> Tensor:
    """Draw labels (B, H, W), some of them IGNORE."""
    generator = torch.Generator(device).manual_seed(1)
    shape = (size.batch, size.size, size.size)
    labels = torch.randint(size.classes, shape, generator=generator, device=device)
    labels.masked_fill_(torch.rand(shape, generator=generator, device=device) < IGNORED_SHARE, IGNORE)
    labels[0, 0, 0] = 0  # at least one pixel is labelled: a mean over none is NaN
    return labels
