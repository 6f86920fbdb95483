"""How little a network knows of what it sees at every cell of its output."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from faircl.errors import unknown_name
from faircl.models.segmenter import Segmenter, SegOutput

DEFAULT = "max-softmax"
SCORES: tuple[str, ...] = (DEFAULT,)
"""Names of the scores."""


class UnknownScorer:
    """Scores outputs of the network of a step; made by `from_step`."""

    @classmethod
    def from_step(cls, step_folder: Path, network: Segmenter, score: str = DEFAULT) -> UnknownScorer:
        """Return the scorer of a saved step."""
        if score not in SCORES:
            raise unknown_name("score of the unknown map", score, SCORES)
        return cls()

    def __call__(self, output: SegOutput) -> Tensor:
        """Return 1 − max p, (B, h, w) in [0, 1] at network stride; larger is less known."""
        return 1 - output.logits.softmax(1).amax(1)
