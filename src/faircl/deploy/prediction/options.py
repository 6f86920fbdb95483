"""How images are segmented: windows, batches, mirroring, precision, and what is computed beside the mask."""

from __future__ import annotations

from dataclasses import dataclass

from faircl.errors import UserError

STEP = 32
"""Pixels that windows start at multiples of: no network that halves its resolution is coarser."""
DEFAULT_SCORE = "default"
"""Stands for the best unknown score that a step allows."""


@dataclass(frozen=True)
class PredictOptions:
    """Options of a prediction, checked.

    - tile: side of the windows that a large image is segmented in, None: whole; a multiple of 32.
    - overlap: pixels that neighbouring windows share, a multiple of 32; None: a quarter of the window.
    - batch: images or windows of one size that pass the network together; None: 8 on a GPU, 1 elsewhere.
    - flip: average the logits with those of the mirrored image.
    - half: compute in float16 where that is safe (autocast); GPUs only.
    - probabilities: also the probability of every class.
    - unknown: also how little is known of every pixel, by the score of this name; None: not.
    """

    tile: int | None = None
    overlap: int | None = None
    batch: int | None = None
    flip: bool = False
    half: bool = False
    probabilities: bool = False
    unknown: str | None = None

    def __post_init__(self) -> None:
        if self.tile is not None and (not _whole(self.tile) or self.tile < 2 * STEP or self.tile % STEP):
            raise UserError(f"The tile is {self.tile} pixels wide; expected a multiple of {STEP} from {2 * STEP} on.")
        if self.overlap is not None:
            self._check_overlap(self.overlap)
        if self.batch is not None and (not _whole(self.batch) or self.batch < 1):
            raise UserError(f"The batch is {self.batch!r}; expected a whole number of images from 1 on.")

    def _check_overlap(self, overlap: int) -> None:
        if self.tile is None:
            raise UserError(f"An overlap of {overlap!r} was given without a tile; add one, such as --tile 1024.")
        if not _whole(overlap) or overlap % STEP or not 0 <= overlap <= self.tile // 2:
            raise UserError(
                f"The overlap is {overlap!r} pixels; expected a multiple of {STEP} from 0 to half of the tile, "
                f"{self.tile // 2}."
            )

    @property
    def shared(self) -> int:
        """Pixels that neighbouring windows share."""
        if self.tile is None:
            return 0
        return self.tile // 4 // STEP * STEP if self.overlap is None else self.overlap


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
