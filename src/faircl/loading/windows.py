"""Training windows that are resampled on the device (train.augment: device).

Workers cut windows out of their images and send them without resampling: no padding, and small where they will be
enlarged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from faircl import kernels
from faircl.loading.batch import Batch, FixedWindow, fixed_windows
from faircl.loading.compact_labels import COMPACT_IGNORE, to_common_dtype
from faircl.loading.packed_tensors import PackedTensors, SharedRing
from faircl.loading.transforms import PAD_COLOUR, Crop

_OUTSIDE = {torch.uint8: COMPACT_IGNORE, torch.int16: COMPACT_IGNORE, torch.bool: False}
"""Fill value outside an image: IGNORE for both types of compact labels, False for auxiliary maps."""


class Window(NamedTuple):
    """The region of an image that a crop covers, h × w pixels, and the crop in coordinates of that region.

    Shapes: image (h, w, 3) uint8; labels, assigned (h, w) compact; auxiliary (h, w) bool; gains (5,), of colour jitter.
    """

    image: Tensor
    labels: Tensor
    assigned: Tensor | None
    auxiliary: Tensor | None
    crop: Crop
    draw: int
    gains: Tensor | None = None
    window: FixedWindow | None = None


class CropParameters(NamedTuple):
    """Crop and jitter parameters of a batch.

    Shapes: geometry (B, 7) int64, top, left, height, width and flip of each crop, then height and width of its region;
    draws (B,) int64; gains (B, 5).
    """

    geometry: Tensor
    draws: Tensor
    gains: Tensor | None

    @classmethod
    def of(cls, windows: Sequence[Window]) -> CropParameters:
        """Collect the parameters of windows."""
        crops = [(one.crop, one.labels.shape) for one in windows]
        gains = [one.gains for one in windows if one.gains is not None]  # all have them, or none
        return cls(
            torch.tensor([[c.top, c.left, c.height, c.width, c.flip, *shown] for c, shown in crops]),
            torch.tensor([one.draw for one in windows]),
            torch.stack(gains) if gains else None,
        )


@dataclass(frozen=True)
class DeviceWindows:
    """The windows of a batch on the device, with parameters that may still be on the CPU."""

    windows: Sequence[Window]
    parameters: CropParameters

    def to(self, device: torch.device) -> DeviceWindows:
        """Move the parameters to the device."""
        pinned = (one if one is None or device.type == "cpu" else one.pin_memory() for one in self.parameters)
        moved = [None if one is None else one.to(device, non_blocking=True) for one in pinned]
        return replace(self, parameters=CropParameters(*moved))  # type: ignore[arg-type]  # only the last one may be None

    def to_batch(self) -> Batch:
        """Resample images as ``Crop.image`` does and labels as ``Crop.mask`` does."""
        windows, parameters = self.windows, self.parameters
        assigned = [one.assigned for one in windows if one.assigned is not None]  # all have it, or none
        auxiliary = [one.auxiliary for one in windows if one.auxiliary is not None]
        size = windows[0].crop.size
        take: Callable[[Sequence[Tensor]], Tensor]
        if kernels.usable(windows[0].image):
            from faircl.kernels.resample_windows import resample_bilinear

            images = resample_bilinear([one.image for one in windows], parameters.geometry, size, PAD_COLOUR)
            take = partial(_take_by_kernel, parameters.geometry, size)
        else:
            images = torch.stack([one.crop.sample(one.image) for one in windows])
            take = _nearest_pixels(parameters.geometry, size).take
        return Batch.prepare(
            images,
            take([one.labels for one in windows]),
            take(assigned) if assigned else None,
            parameters.draws.clone(),
            take(auxiliary) if auxiliary else None,
            parameters.gains,
            fixed_windows(one.window for one in windows),
        )


@dataclass(frozen=True)
class PackedWindows:
    """The windows of a batch in one buffer."""

    packed: PackedTensors
    crops: tuple[Crop, ...]
    fixed: tuple[FixedWindow | None, ...]

    @classmethod
    def collate(cls, windows: Sequence[Window], ring: SharedRing | None = None) -> PackedWindows:
        """Pack the parameters and then the pixels of windows."""
        pixels = [part for one in windows for part in one[:4]]
        packed = PackedTensors.pack([*CropParameters.of(windows), *pixels], ring)
        return cls(packed, tuple(one.crop for one in windows), tuple(one.window for one in windows))

    def copy_from_ring(self) -> PackedWindows:
        """Return the windows in memory of their own."""
        return replace(self, packed=self.packed.copy_from_ring())

    def pin_memory(self) -> PackedWindows:
        """Copy the windows to page-locked memory."""
        return replace(self, packed=self.packed.pin_memory())

    def to(self, device: torch.device) -> PackedWindows:
        """Move the windows to a device."""
        return replace(self, packed=self.packed.to(device))

    def to_batch(self) -> Batch:
        """Resample the windows."""
        geometry, draws, gains, *pixels = self.packed.tensors()
        windows = [
            Window(*pixels[4 * k : 4 * k + 4], crop, 0, None, fixed)  # type: ignore[arg-type, call-arg]  # as packed
            for k, (crop, fixed) in enumerate(zip(self.crops, self.fixed, strict=True))
        ]
        parameters = CropParameters(geometry, draws, gains)  # type: ignore[arg-type]
        return DeviceWindows(windows, parameters).to_batch()


def _take_by_kernel(geometry: Tensor, size: int, parts: Sequence[Tensor]) -> Tensor:
    """Sample regions (h, w) by nearest neighbour in one kernel: (B, size, size)."""
    from faircl.kernels.resample_windows import resample_nearest

    same = to_common_dtype(list(parts))
    return resample_nearest(same, geometry, size, _OUTSIDE[same[0].dtype])


class _NearestPixels(NamedTuple):
    """Source pixel of every output pixel, by nearest neighbour.

    Shapes: rows, cols (B, size), clamped to the region; inside (B, size, size) bool, whether it was inside.
    """

    rows: Tensor
    cols: Tensor
    inside: Tensor

    def take(self, parts: Sequence[Tensor]) -> Tensor:
        """Sample regions (h, w): (B, size, size)."""
        pairs = zip(parts, self.rows, self.cols, strict=True)
        taken = torch.stack(
            to_common_dtype([part.index_select(0, rows).index_select(1, cols) for part, rows, cols in pairs])
        )
        return taken.masked_fill(~self.inside, _OUTSIDE[taken.dtype])


def _nearest_pixels(geometry: Tensor, size: int) -> _NearestPixels:
    """Compute for a batch the indices that ``Crop.mask`` computes for one image."""
    top, left, height, width, flip, high, wide = geometry.T[..., None]
    centres = 2 * torch.arange(size, device=geometry.device) + 1
    rows, cols = (start + centres * length // (2 * size) for start, length in ((top, height), (left, width)))
    cols = torch.where(flip > 0, cols.flip(1), cols)
    inside = ((rows >= 0) & (rows < high))[:, :, None] & ((cols >= 0) & (cols < wide))[:, None]
    return _NearestPixels(rows.clamp(min=0).minimum(high - 1), cols.clamp(min=0).minimum(wide - 1), inside)
