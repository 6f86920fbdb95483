"""A network to adopt: its weights with faircl's own keys, its classes, and the forward pass of its own library."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from faircl.models.weights import State

Forward = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Source:
    """A network as it was found.

    ``found`` names it in a sentence, ``library`` the package it belongs to, with its version. ``model`` are the
    settings of faircl's network that computes the same; ``state`` has that network's keys ``backbone.…`` and
    ``decoder.…``. ``weight`` (C, D) and ``bias`` (C,) are the classifier, in the source's order of classes; ``names``
    are those classes where the source names them. ``forward`` runs the library's own network: images (B, 3, H, W) in
    [0, 1] to logits (B, C, h, w); None where faircl's network is the only one. ``notes`` are for the user.
    """

    path: Path
    found: str
    library: str
    model: dict[str, Any]
    state: State = field(repr=False)
    weight: Tensor = field(repr=False)
    bias: Tensor = field(repr=False)
    names: tuple[str, ...] | None = None
    forward: Forward | None = field(default=None, repr=False)
    notes: tuple[str, ...] = ()

    @property
    def classes(self) -> int:
        """Number of classes, C."""
        return len(self.weight)
