"""A segmented image."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from faircl.errors import UserError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL import Image as Pillow

    from faircl.data.masks import Colour
    from faircl.data.sample import Image
    from faircl.labels import Mask


@dataclass(frozen=True, eq=False)
class Prediction:
    """A segmented image.

    ``mask`` (H, W) holds the data set's class ids at the image's own size; ``names`` and ``colours`` say what they
    mean, by class id, for all classes that the network knows; ``image`` (H, W, 3) uint8 is what it has seen.
    """

    mask: Mask = field(repr=False)
    names: dict[int, str]
    colours: dict[int, Colour] = field(repr=False)
    image: Image = field(repr=False)
    background: int | None = field(default=None, repr=False)
    """Class id of the background, where the data has one."""
    probabilities: NDArray[np.float16] | None = field(default=None, repr=False)
    """Where asked for: (H, W, C), the classes in the order of ``names``."""
    unknown: NDArray[np.float32] | None = field(default=None, repr=False)
    """Where asked for: (H, W) in [0, 1], larger where the network knows less of what it sees."""

    def areas(self) -> dict[str, float]:
        """Return the share of the image that every class covers, largest first; classes that do not occur are left out.

        Shares sum to 1.
        """
        import numpy as np

        ids, counts = np.unique(self.mask, return_counts=True)
        ranked = sorted(zip(counts.tolist(), ids.tolist(), strict=True), key=lambda pair: -pair[0])
        return {self.names[id]: count / self.mask.size for count, id in ranked}

    def colour_image(self) -> Pillow.Image:
        """Return the mask painted in the colours of its classes."""
        from PIL import Image as Pillow

        from faircl.data.masks import colour_mask, palette_by_id

        return Pillow.fromarray(colour_mask(self.mask, palette_by_id(self.colours)))

    def overlay(self, opacity: float = 0.5) -> Pillow.Image:
        """Return the image with its classes painted over it; the background stays as it is."""
        from PIL import Image as Pillow

        from faircl.data.masks import paint_over, palette_by_id

        if not 0 <= opacity <= 1:
            raise UserError(f"The opacity of an overlay lies between 0 and 1; found {opacity}.")
        return Pillow.fromarray(
            paint_over(self.image, self.mask, palette_by_id(self.colours), opacity, self.background)
        )
