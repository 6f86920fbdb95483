"""Images as callers have them (arrays, tensors, Pillow images, files) to (H, W, 3) uint8."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, Union

import numpy as np
import torch
from PIL import Image as Pillow

from faircl.errors import UserError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from faircl.data.images import ImageReading
    from faircl.data.sample import Image

ImageSource: TypeAlias = Union[str, Path, Pillow.Image, torch.Tensor, "NDArray[Any]"]

_EXPECTED = "a path, a Pillow image, an array (H, W, 3) of uint8, or a tensor (3, H, W) of uint8 or of floats in [0, 1]"


def to_pixels(image: ImageSource, reading: ImageReading) -> Image:
    """Return an image as (H, W, 3) uint8; files and Pillow images are converted by ``reading``."""
    if isinstance(image, Pillow.Image):
        pixels = _from_picture(image, reading)
    elif isinstance(image, torch.Tensor):
        pixels = _from_tensor(image)
    elif isinstance(image, np.ndarray):
        pixels = _from_array(image)
    elif isinstance(image, str | os.PathLike):
        pixels = reading.read(Path(image).expanduser())
    else:
        raise UserError(f"Cannot segment a {type(image).__name__}; expected {_EXPECTED}.")
    if pixels.size == 0:
        raise UserError(f"Cannot segment an image without pixels; found the shape {pixels.shape}.")
    return pixels


def _from_picture(picture: Pillow.Image, reading: ImageReading) -> Image:
    name = getattr(picture, "filename", "") or f"of mode {picture.mode}"
    try:
        picture.load()  # Pillow reads a file's pixels when they are first used
    except (OSError, SyntaxError, ValueError) as error:
        raise UserError(f"Image {name} cannot be decoded: {error}; copy or export it again.") from None
    return reading.convert(picture, Path(name))


def _from_tensor(image: torch.Tensor) -> Image:
    if image.ndim != 3 or image.shape[0] != 3:
        raise UserError(f"A tensor to segment has the shape (3, H, W); found {tuple(image.shape)}.")
    values = image.detach().cpu()
    if values.is_floating_point():
        values = values.float()
        low, high = (float(bound) for bound in values.aminmax()) if values.numel() else (0.0, 0.0)
        if not (low >= 0 and high <= 1):  # False for NaN as well
            raise UserError(f"A float tensor to segment holds values in [0, 1]; found {low:g} to {high:g}.")
        values = (values * 255).round().to(torch.uint8)
    if values.dtype != torch.uint8:
        raise UserError(f"A tensor to segment holds uint8, or floats in [0, 1]; found {values.dtype}.")
    pixels: Image = values.permute(1, 2, 0).clone(memory_format=torch.contiguous_format).numpy()
    return pixels


def _from_array(image: NDArray[Any]) -> Image:
    if image.ndim != 3 or image.shape[2] != 3:
        raise UserError(f"An array to segment has the shape (H, W, 3), red, green and blue; found {image.shape}.")
    if image.dtype != np.uint8:
        raise UserError(f"An array to segment holds uint8, values 0 to 255; found {image.dtype}.")
    return np.array(image, order="C")  # Pillow's arrays are read-only, and the caller may change the others
