"""What the page is told of a segmented image: pictures of a size that a browser shows, areas of the whole image."""

from __future__ import annotations

from base64 import b64encode
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image as Pillow

from faircl.data.sample import Image
from faircl.serving.networks import Network, Segmented

SHOWN = 2048
"""Longest side of the pictures that the page shows."""
_THRESHOLDS = {"entropy": 0.5}
_SHARE = 0.95
"""Score from which a pixel is shown as unknown at first: less known than 95 % of the remembered features."""


def answer(network: Network, image: Image, found: Segmented) -> dict[str, Any]:
    """Return everything that the page shows of an image (H, W, 3), as values for JSON.

    ``picture`` is the image as a PNG in a data address. ``mask`` and ``unknown`` are the rows of arrays (h, w) in
    base64: class ids of ``bytes`` bytes each, the low one first, and scores from 0 to 255. No side of these three is
    longer than `SHOWN`; areas are those of the whole image. The arrays are not sent as PNGs, because some browsers
    change the pixels that a page reads back from a picture, to keep it from recognising the browser.
    """
    height, width = image.shape[:2]
    scale = max(1.0, max(height, width) / SHOWN)
    rows, columns = _places(height, scale), _places(width, scale)
    mask = found.mask[np.ix_(rows, columns)]
    size = mask.dtype.itemsize
    unknown = np.rint(found.unknown[np.ix_(rows, columns)] * 255).astype(np.uint8)
    return {
        "width": width,
        "height": height,
        "shown": [len(columns), len(rows)],
        "picture": _png_address(image, (len(columns), len(rows))),
        "mask": _base64(mask.astype(f"<u{size}")),
        "bytes": size,
        "unknown": _base64(unknown),
        "score": network.score,
        "threshold": _THRESHOLDS.get(network.score, _SHARE),
        "background": network.background,
        "classes": _classes(network, found),
    }


def _places(length: int, scale: float) -> NDArray[np.intp]:
    """Return which of ``length`` pixels are shown: those in the middle of ``scale`` neighbours each."""
    count = max(1, round(length / scale))
    places: NDArray[np.intp] = ((np.arange(count) + 0.5) * length / count).astype(np.intp)
    return places


def _classes(network: Network, found: Segmented) -> list[dict[str, Any]]:
    """Return id, name, colour and area of the classes in an image, the largest first."""
    counts = np.bincount(found.mask.reshape(-1))
    present = np.flatnonzero(counts)
    ranked = present[np.argsort(-counts[present], kind="stable")].tolist()
    return [
        {
            "id": id,
            "name": network.names[id],
            "colour": list(network.colours[id]),
            "pixels": int(counts[id]),
            "share": int(counts[id]) / found.mask.size,
        }
        for id in ranked
    ]


def _png_address(image: Image, size: tuple[int, int]) -> str:
    """Return an image, made smaller if need be, as the data address of a PNG."""
    picture = Pillow.fromarray(image)
    if picture.size != size:
        picture = picture.resize(size, Pillow.Resampling.BOX)
    file = BytesIO()
    picture.save(file, "PNG", compress_level=1)
    return f"data:image/png;base64,{b64encode(file.getvalue()).decode('ascii')}"


def _base64(array: NDArray[Any]) -> str:
    return b64encode(array.tobytes()).decode("ascii")
