"""Adding to the gradient of a large map in place.

An embedding is the largest map of a network. A loss on it, beside the classifier, would make a second gradient of its
size, only for both to be added up: a tenth of a decoder's memory, and three passes over it. Where the classifier's
gradient comes in, an inlet lets such a loss add its own to it instead. So it does with a second loss on the logits.

Dropout of whole channels, x_c ← x_c·m_c, is another pass over the map, forth and back; back, it is the same pass.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor

Addition = Callable[[Tensor, Tensor | None], None]
"""Multiplies the channels of a gradient by numbers, if there are any, and adds to it, in place."""


class Inlet:
    """What is still to be added to a gradient that has not come yet; one of a single backward pass.

    Losses' nodes are made after the network's and run before them, so a loss finds its inlet open. If it ever does not,
    it returns its gradient as any other.
    """

    def __init__(self, scale: Tensor | None = None) -> None:
        self.scale = scale
        self.open = True
        self.additions: list[Addition] = []

    def add_all(self, gradient: Tensor) -> Tensor:
        """Close the inlet and return the gradient, scaled, with all additions."""
        self.open = False
        if not self.additions:
            return gradient if self.scale is None else gradient * self.scale
        if 0 in gradient.stride():  # one number that stands for many
            gradient = gradient.clone()
        for place, addition in enumerate(self.additions):
            addition(gradient, self.scale if place == 0 else None)
        self.additions.clear()
        return gradient


class _Through(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, inlet: Inlet) -> Tensor:
        ctx.inlet = inlet
        return x.view_as(x) if inlet.scale is None else x * inlet.scale

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return ctx.inlet.add_all(gradients[0]), None


class Write(Protocol):
    """Writes a gradient (B, D, s), or adds it to what is there, whose channels it multiplies by a scale (B, D, 1)."""

    def __call__(self, gradient: Tensor, *, add: bool, scale: Tensor | None = None) -> None:
        """Write or add."""
        ...


def add_flat(write: Write, gradient: Tensor, scale: Tensor | None = None) -> None:
    """Let something that writes gradients (B, D, s) scale one of (B, D, …) and add to it, in place."""
    flat = gradient.flatten(2)
    if flat.data_ptr() == gradient.data_ptr():
        write(flat, add=True, scale=None if scale is None else scale.flatten(2))
        return
    if scale is not None:
        gradient *= scale
    write(own := torch.empty_like(flat), add=False)  # rows with gaps between them: flattening has made a copy
    gradient += own.view(gradient.shape)


def with_inlet(x: Tensor, scale: Tensor | None = None) -> tuple[Tensor, Inlet]:
    """Return a map for one consumer, such as the classifier, and the inlet of its gradient.

    Nothing else may have the map: only then is its gradient nobody else's. The map is x, its channels multiplied by a
    scale (B, D, 1, 1) if there is one.
    """
    inlet = Inlet(scale)
    through: Tensor = _Through.apply(x, inlet)
    return through, inlet
