"""A look at image files before they are decoded: empty ones, other files and too large ones are found at once."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from PIL import Image as Pillow

from faircl.deploy.input_files import InputImage
from faircl.errors import UserError

UNSEEN = frozenset({".npy", ".tif", ".tiff"})
"""Files that Pillow may not know and others can decode."""


def check_header(path: Path, large: bool) -> None:
    """Raise a UserError if a file cannot be an image, or has more pixels than Pillow trusts unless ``large`` is set.

    The pixels are not decoded; a file that breaks off in its middle is found only when it is read.
    """
    try:
        if not path.is_file():
            raise UserError(f"Image {path} is not a regular file; replace it by one.")
        if path.stat().st_size == 0:
            raise UserError(f"Image {path} cannot be decoded: it is an empty file; copy or export it again.")
        with any_size(), Pillow.open(path) as picture:
            width, height = picture.size
    except (PermissionError, FileNotFoundError) as error:
        raise UserError(f"Cannot read image {path}: {error.strerror}; check its permissions.") from None
    except UserError:
        raise
    except Exception as error:  # damaged headers make Pillow raise many kinds of errors
        if path.suffix.lower() in UNSEEN:
            return
        raise UserError(
            f"Image {path} cannot be decoded: it is not a complete picture ({type(error).__name__}); copy or export it "
            "again."
        ) from None
    limit = 2 * (Pillow.MAX_IMAGE_PIXELS or 0)
    if not large and 0 < limit < width * height:
        raise UserError(
            f"Image {path} has {width:,} × {height:,} pixels, more than the {limit:,} that are read without being "
            "asked for (a small file can claim any size); if you trust it, segment it in tiles: --tile 1024."
        )


@contextmanager
def any_size() -> Iterator[None]:
    """Let Pillow decode images of any number of pixels."""
    before = Pillow.MAX_IMAGE_PIXELS
    Pillow.MAX_IMAGE_PIXELS = None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Pillow.DecompressionBombWarning)
            yield
    finally:
        Pillow.MAX_IMAGE_PIXELS = before


class Skipped(NamedTuple):
    """An image that cannot be read, and the sentence that says why."""

    image: InputImage
    reason: str


def check_headers(images: Sequence[InputImage], large: bool, skip: bool) -> tuple[list[InputImage], list[Skipped]]:
    """Return the images that look readable, and the others; without ``skip`` the first of these is an error."""
    readable, skipped = [], []
    for image in images:
        try:
            check_header(image.path, large)
            readable.append(image)
        except UserError as error:
            if not skip:
                raise UserError(f"{error} Nothing was written; --skip-broken leaves such images out.") from None
            skipped.append(Skipped(image, str(error)))
    return readable, skipped
