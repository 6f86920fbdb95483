"""Adding to the gradient of a large map in place.

An embedding is the largest map of a network. A loss on it, beside the classifier, would make a second gradient of its
size, only for both to be added up: a tenth of a decoder's memory, and three passes over it. Where the classifier's
gradient comes in, an inlet lets such a loss add its own to it instead. So it does with a second loss on the logits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor

Addition = Callable[[Tensor], None]
"""Adds to a gradient, in place."""


class Inlet:
    """What is still to be added to a gradient that has not come yet; one of a single backward pass.

    Losses' nodes are made after the network's and run before them, so a loss finds its inlet open. If it ever does not,
    it returns its gradient as any other.
    """

    def __init__(self) -> None:
        self.open = True
        self.additions: list[Addition] = []

    def add_all(self, gradient: Tensor) -> Tensor:
        """Close the inlet and return the gradient with all additions."""
        self.open = False
        if self.additions and 0 in gradient.stride():  # one number that stands for many
            gradient = gradient.clone()
        for addition in self.additions:
            addition(gradient)
        self.additions.clear()
        return gradient


class _Through(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, inlet: Inlet) -> Tensor:
        ctx.inlet = inlet
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return ctx.inlet.add_all(gradients[0]), None


class Write(Protocol):
    """Writes a gradient (B, D, s), or adds it to what is there."""

    def __call__(self, gradient: Tensor, *, add: bool) -> None:
        """Write or add."""
        ...


def add_flat(write: Write, gradient: Tensor) -> None:
    """Let something that writes gradients (B, D, s) add to one of (B, D, …), in place."""
    flat = gradient.flatten(2)
    if flat.data_ptr() == gradient.data_ptr():
        write(flat, add=True)
        return
    write(own := torch.empty_like(flat), add=False)  # rows with gaps between them: flattening has made a copy
    gradient += own.view(gradient.shape)


def with_inlet(x: Tensor) -> tuple[Tensor, Inlet]:
    """Return a map for one consumer, such as the classifier, and the inlet of its gradient.

    Nothing else may have the map: only then is its gradient nobody else's.
    """
    inlet = Inlet()
    through: Tensor = _Through.apply(x, inlet)
    return through, inlet
