"""Comparison of an exported network's masks with those of the network itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from faircl.data.sample import Image
from faircl.deploy.exporting.contract import Masks
from faircl.errors import UserError
from faircl.labels import Mask
from faircl.progress import Reporter
from faircl.readers.scenes import SceneData
from faircl.seeding import generator

SIZES = ((33, 40), (97, 131), (224, 224))
"""Heights and widths of the images: smaller than the example that is traced, odd, and larger."""
BATCHES = (1, 3)
ENOUGH = 0.9999
"""Share of pixels that must have the same class."""


class Agreement(NamedTuple):
    """How many pixels were compared, and how many of them have the same class."""

    pixels: int
    equal: int

    @property
    def share(self) -> float:
        """Share of pixels with the same class."""
        return self.equal / self.pixels


def agreement(predict: Callable[[Image], Mask], exported: Masks, reporter: Reporter) -> Agreement:
    """Compare masks on street scenes and on noise, at every size of SIZES in batches of every size of BATCHES."""
    pixels = equal = 0
    with reporter.task("check", 2 * len(SIZES) * len(BATCHES)) as task:
        for images in _batches():
            expected = np.stack([predict(image) for image in images])
            try:
                found = exported(np.ascontiguousarray(images.transpose(0, 3, 1, 2)))
            except Exception as error:  # each runtime has errors of its own
                raise UserError(
                    f"The exported network fails on images of shape {images.shape[:3]}: "
                    f"{' '.join(str(error).split())[:300]}; nothing was written."
                ) from None
            pixels += expected.size
            equal += int((found == expected).sum())
            task.advance()
    return Agreement(pixels, equal)


def check_agreement(found: Agreement, to: str) -> None:
    """Raise a UserError if masks differ in more pixels than ENOUGH allows."""
    if found.share < ENOUGH:
        raise UserError(
            f"The network exported to {to} gives another class than the model on {1 - found.share:.3%} of "
            f"{found.pixels:,} pixels; at most {1 - ENOUGH:.2%} are allowed, so nothing was written."
        )


def _batches() -> Iterator[NDArray[Any]]:
    """Yield batches (B, H, W, 3) uint8."""
    side = max(max(size) for size in SIZES)
    scenes = SceneData(max(BATCHES), 1, side)
    drawn = np.stack([scenes.read("train", id).image for id in scenes.ids("train")])
    noise = generator(0, "export").integers(0, 256, drawn.shape, np.uint8)
    for height, width in SIZES:
        for images in (drawn, noise):
            for batch in BATCHES:
                yield images[:batch, -height:, -width:]
