"""A temporary folder data set of synthetic images: JPEGs of smooth colours with noise, PNG masks of blobs.

The noise sets the size of the files: 9 levels give JPEGs of 2.4 bits per pixel; 5 give 1.6, as in CamVid.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image as Pillow

from faircl.data.cache_files import CACHE_VARIABLE
from faircl.errors import UserError
from faircl.progress import Reporter

CLASSES = 151


@dataclass(frozen=True)
class ImageSize:
    """Number and size of the images; ``noise`` is the standard deviation of their noise, in levels of 255."""

    images: int
    width: int
    height: int
    noise: float


@contextmanager
def written_images(size: ImageSize, reporter: Reporter) -> Iterator[Path]:
    """Write the images to a temporary folder, which also holds faircl's cache while it exists."""
    before = os.environ.get(CACHE_VARIABLE)
    with tempfile.TemporaryDirectory(prefix="faircl-bench-") as name:
        root = Path(name)
        try:
            _write(root, size, reporter)
        except OSError as error:
            raise UserError(
                f"Cannot write the images to be read to {root}: {error.strerror or error}; set TMPDIR to a folder with "
                "more room, or lower --images."
            ) from None
        os.environ[CACHE_VARIABLE] = str(root / "cache")
        try:
            yield root
        finally:
            with suppress(KeyError):
                del os.environ[CACHE_VARIABLE]
            if before is not None:
                os.environ[CACHE_VARIABLE] = before


def _write(root: Path, size: ImageSize, reporter: Reporter) -> None:
    for kind in ("images", "masks"):
        (root / kind / "train").mkdir(parents=True)
    (root / "classes.txt").write_text("\n".join(f"class {k}" for k in range(CLASSES)), encoding="utf-8")
    with reporter.task("writing images", size.images) as task:
        for number in range(size.images):
            image, mask = draw_image(np.random.default_rng(number), size)
            image.save(root / f"images/train/{number:05}.jpg", quality=88)
            mask.save(root / f"masks/train/{number:05}.png")
            task.advance()


def draw_image(rng: np.random.Generator, size: ImageSize) -> tuple[Pillow.Image, Pillow.Image]:
    """Draw an image and its mask."""
    height, width = size.height, size.width
    cells = height // 40 + 2, width // 40 + 2
    coarse = Pillow.fromarray(rng.integers(0, 256, (*cells, 3), dtype=np.uint8))
    smooth = np.asarray(coarse.resize((width, height), Pillow.Resampling.BICUBIC), np.float32)
    noisy = smooth + rng.normal(0, size.noise, smooth.shape).astype(np.float32)
    blocks = Pillow.fromarray(rng.integers(0, CLASSES, cells, dtype=np.uint8))
    straight = np.asarray(blocks.resize((width, height), Pillow.Resampling.NEAREST))
    rows, columns = np.arange(height)[:, None], np.arange(width)
    wavy = straight[
        (rows + 8 * np.sin(columns / 11)).astype(int).clip(0, height - 1),
        (columns + 8 * np.cos(rows / 13)).astype(int).clip(0, width - 1),
    ]
    return Pillow.fromarray(noisy.clip(0, 255).astype(np.uint8)), Pillow.fromarray(wavy)
