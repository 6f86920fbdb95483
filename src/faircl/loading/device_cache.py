"""Device cache: all images of a step on the training device, where windows are cut out of them without workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from faircl.errors import UserError
from faircl.loading.compact_labels import as_tensor
from faircl.loading.decoded_cache import GB, check_memory, decode_all
from faircl.loading.step_dataset import StepDataset
from faircl.loading.windows import CropParameters, DeviceWindows, Window

_WHOLE = (slice(None), slice(None))


class DeviceImage(NamedTuple):
    """A whole image on the device: image (H, W, 3) uint8; labels, assigned (H, W) compact; auxiliary (H, W) bool."""

    image: Tensor
    labels: Tensor
    assigned: Tensor | None
    auxiliary: Tensor | None


class DeviceCache:
    """The images of a step with their labels on a device."""

    def __init__(self, dataset: StepDataset, device: torch.device, advance: Callable[[], None]) -> None:
        self.dataset = dataset
        self.images: list[DeviceImage] = []

        def check(size: float) -> None:
            _check_device_memory(size, device)

        try:
            samples = decode_all(dataset.data, dataset.split, dataset.images, check)
            for id, sample in zip(dataset.images, samples, strict=True):
                image, labels, assigned, auxiliary = dataset.apply_labels(id, sample, _WHOLE)
                parts = (
                    torch.from_numpy(image if image.flags.writeable else image.copy()),
                    as_tensor(labels),
                    None if assigned is None else as_tensor(assigned),
                    None if auxiliary is None else torch.from_numpy(auxiliary).bool(),
                )
                # Readers may return arrays with other strides; the resampling kernel needs contiguous rows.
                moved = (None if part is None else part.contiguous().to(device) for part in parts)
                self.images.append(DeviceImage(*moved))  # type: ignore[arg-type]  # only fields that may be None are
                advance()
        except torch.OutOfMemoryError:
            size = sum(part.nbytes for one in self.images for part in one if part is not None)
            raise UserError(
                f"train.cache is gpu, but after {len(self.images)} of {len(dataset.images)} images ({size / GB:.1f} GB)"
                " the GPU's memory is full; set it to memory or disk."
            ) from None

    def holds(self, dataset: StepDataset) -> bool:
        """Whether the images and labels of another dataset of the same step are those of this cache."""
        return dataset.images == self.dataset.images and dataset.assigned is self.dataset.assigned

    def batches(self, dataset: StepDataset, order: Iterable[list[tuple[int, int]]]) -> Iterator[DeviceWindows]:
        """Yield a batch for each list of (draw, image) pairs, with the augmentation of a dataset."""
        assert self.holds(dataset), "the cache was filled with other images or labels"
        for pairs in order:
            windows = [self._window(dataset, draw, index) for draw, index in pairs]
            yield DeviceWindows(windows, CropParameters.of(windows))

    def _window(self, dataset: StepDataset, draw: int, index: int) -> Window:
        """Cut a window out of an image; its tensors are views."""
        image, labels, assigned, auxiliary = self.images[index]
        crop, gains, window = dataset.draw_augmentation(draw, index, labels.shape)
        region, crop = crop.clip_to(labels.shape)
        return Window(
            image[region],
            labels[region],
            None if assigned is None else assigned[region],
            None if auxiliary is None else auxiliary[region],
            crop,
            draw,
            gains,
            window,
        )


def _check_device_memory(needed: float, device: torch.device) -> None:
    """Raise an error if ``needed`` bytes do not fit on the device."""
    if device.type != "cuda":
        check_memory(needed, "gpu")
        return
    free, total = torch.cuda.mem_get_info(device)
    free += torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    if needed > free:
        raise UserError(
            f"train.cache is gpu, but the step's decoded images need about {needed / GB:.1f} GB and {free / GB:.1f} GB "
            f"of {total / GB:.1f} GB are free on the GPU, where the network must find room too; set it to memory or "
            "disk."
        )
