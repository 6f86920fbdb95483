"""The record of any network on any loader: its output at the size of the labels, counted image by image."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from faircl.auditing.class_list import ClassList
from faircl.auditing.mask_record import Counted, MaskSettings
from faircl.engine.image_counts import ImageCounter
from faircl.errors import UserError
from faircl.fairness.record import RecordedClass
from faircl.labels import IGNORE
from faircl.progress import Reporter
from faircl.upsampling import upsampled_argmax

OUTPUTS = ("logits", "out")
"""Names of the logits in the output of a network of transformers and of torchvision."""


@torch.no_grad()
def count_model(
    model: nn.Module | Callable[[Tensor], Any],
    loader: Iterable[Any],
    classes: ClassList,
    settings: MaskSettings,
    device: torch.device,
    reporter: Reporter,
    ids: Iterable[str] = (),
) -> Counted:
    """Run a network over batches (image, mask) and count its predictions.

    Channel k of the logits (B, C, h, w) is the k-th class of the list; they are brought to the size of the masks
    (B, H, W) by bilinear interpolation. A class that is ignored by name stays a channel and is not scored.
    """
    ignored = settings.ignored(classes)
    counter = ImageCounter(_channels(classes, ignored, settings))
    table = _label_table(counter.classes, ignored).to(device)
    given = iter(ids)
    total = len(loader) if isinstance(loader, Sized) else 0
    with _evaluating(model, device), reporter.task("running the network", total) as task:
        for batch in loader:
            images, masks = _parts(batch)
            logits = _logits(model(images.to(device)), len(counter.classes))
            labels = _labels(masks.to(device), table, len(logits), classes.source)
            names = [str(next(given, f"{len(counter.images) + k:06}")) for k in range(len(labels))]
            counter.update(names, logits, upsampled_argmax(logits, labels.shape[-2:]), labels)
            task.advance()
    if not counter.images:
        raise UserError("The loader gave no batch; expected batches of images and masks.")
    if len(set(counter.images)) < len(counter.images):
        raise UserError("Two images have the same name; names of images must differ.")
    record = counter.record(counter.images, 0, "test", "full")
    if not record.confusions.pixels.size:
        raise UserError(f"No mask holds a pixel of a class of {classes.source}: all are ignored; check the masks.")
    return Counted(record, (), {"images": len(record.images)})


def _channels(classes: ClassList, ignored: frozenset[int], settings: MaskSettings) -> list[RecordedClass]:
    counted = {one.id: one for one in classes.recorded(ignored, settings.background)}
    return [counted.get(id, RecordedClass(id, name, scored=False)) for id, name in classes.names.items()]


def _label_table(classes: Sequence[RecordedClass], ignored: frozenset[int]) -> Tensor:
    """Return the channel of every mask value (65536,), IGNORE for ignored ones, −1 for unknown ones."""
    table = torch.full((IGNORE + 1,), -1)
    table[[one.id for one in classes]] = torch.arange(len(classes))
    table[[*ignored, IGNORE]] = IGNORE
    return table


def _labels(masks: Tensor, table: Tensor, images: int, source: str) -> Tensor:
    if masks.ndim == 4 and masks.shape[1] == 1:
        masks = masks[:, 0]
    if masks.ndim != 3 or len(masks) != images or masks.is_floating_point() or masks.dtype == torch.bool:
        raise UserError(
            f"The loader gave masks of shape {tuple(masks.shape)} and type {masks.dtype} for {images} images; expected "
            "class ids (B, H, W), whole numbers."
        )
    values = masks.long()
    values = torch.where(values < 0, IGNORE, values).clamp_max(IGNORE)
    labels = table[values]
    if bool((labels < 0).any()):
        found = int(values[labels < 0][0])
        raise UserError(
            f"A mask holds the value {found}, which {source} does not have; add the class, or leave such pixels out "
            f"with ignore={found}."
        )
    return labels


def _parts(batch: Any) -> tuple[Tensor, Tensor]:
    """Return images and masks of a batch: a pair, or a mapping with the names that loaders commonly use."""
    if isinstance(batch, Mapping):
        image = next((batch[k] for k in ("image", "images", "pixel_values") if k in batch), None)
        mask = next((batch[k] for k in ("mask", "masks", "labels", "label") if k in batch), None)
    else:
        image, mask = batch[:2] if isinstance(batch, Sequence) and len(batch) >= 2 else (None, None)
    if not isinstance(image, Tensor) or not isinstance(mask, Tensor):
        raise UserError(f"The loader gave a {type(batch).__name__}; expected pairs (images, masks) of tensors.")
    return image, mask


def _logits(output: Any, classes: int) -> Tensor:
    """Return the logits (B, C, h, w) of a network's output: a tensor, an attribute or an entry of it."""
    found = output
    for name in OUTPUTS:
        if isinstance(output, Mapping) and name in output:
            found = output[name]
            break
        if not isinstance(output, Tensor) and hasattr(output, name):
            found = getattr(output, name)
            break
    if isinstance(found, Sequence) and found and isinstance(found[0], Tensor):
        found = found[0]
    if not isinstance(found, Tensor) or found.ndim != 4 or found.shape[1] != classes:
        shape = f"a tensor of shape {tuple(found.shape)}" if isinstance(found, Tensor) else f"a {type(found).__name__}"
        raise UserError(
            f"The network gave {shape}; expected logits (B, {classes}, h, w), one channel per class of the list."
        )
    return found


@contextmanager
def _evaluating(model: Any, device: torch.device) -> Iterator[None]:
    """Put a network on the device and into evaluation mode; restore both, for every module, afterwards.

    A network that lies on several devices stays where it is.
    """
    if not isinstance(model, nn.Module):
        yield
        return
    modes = [(module, module.training) for module in model.modules()]
    places = {tensor.device for tensor in (*model.parameters(), *model.buffers())}
    moved = len(places) == 1 and places != {device}
    try:
        if moved:
            model.to(device)  # where memory is short, a part of it may have moved when this fails
        model.eval()
        yield
    finally:
        for module, training in modes:  # first: they are restored even if the network cannot go back
            module.training = training
        if moved:
            model.to(places.pop())
