"""From images to class ids, probabilities and unknown scores at the images' own size."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from faircl.acceleration.inference import InferenceNetwork
from faircl.data.sample import Image
from faircl.deploy.prediction.options import DEFAULT_SCORE, PredictOptions
from faircl.deploy.unknown import UnknownScorer, default_score
from faircl.errors import UserError
from faircl.labels import Mask
from faircl.models.segmenter import Segmenter, SegOutput
from faircl.precision import at_least_float32
from faircl.scenario import Scenario
from faircl.upsampling import upsampled, upsampled_argmax

GPU_BATCH = 8
"""Images that pass a GPU together unless another number is given; a CPU gains nothing from more than one."""


class Maps(NamedTuple):
    """What is known of the pixels of images.

    Shapes: mask (…, H, W), class ids; unknown (…, H, W) in [0, 1]; probabilities (…, H, W, C), classes in the order of
    their ids.
    """

    mask: Mask
    unknown: NDArray[np.float32] | None = None
    probabilities: NDArray[np.float16] | None = None

    def part(self, *where: int | slice) -> Maps:
        """Return all maps at an index of their leading axes."""
        others = (None if array is None else array[where] for array in self[1:])
        return Maps(self.mask[where], *others)  # type: ignore[arg-type]

    @staticmethod
    def joined(parts: Sequence[Maps], axis: int) -> Maps:
        """Return the maps of several parts side by side."""
        if len(parts) == 1:
            return parts[0]
        columns = zip(*parts, strict=True)
        return Maps(*(None if arrays[0] is None else np.concatenate(arrays, axis) for arrays in columns))  # type: ignore


class Inference:
    """The network of a step on its device, and what its channels mean."""

    def __init__(self, network: Segmenter, scenario: Scenario, step: int, device: torch.device, folder: Path) -> None:
        self.network, self.device, self.step_folder = network, device, folder
        self._outputs = InferenceNetwork(network)
        known = scenario.channel_ids[: scenario.channels(step)]
        self.small = len(scenario.classes.names) <= 254
        """Whether class ids are uint8; uint16 otherwise."""
        self._ids = torch.tensor(known, dtype=torch.uint8 if self.small else torch.int32, device=device)
        self._by_id = torch.tensor(sorted(range(len(known)), key=known.__getitem__), device=device)
        self._scorers: dict[str, UnknownScorer] = {}

    def check(self, options: PredictOptions) -> None:
        """Raise a UserError for options that this device or network cannot follow."""
        if options.half and self.device.type != "cuda":
            raise UserError(
                f"Half precision needs a GPU, and the network is on {self.device}; leave it out, or choose the "
                "device cuda."
            )
        if options.unknown is not None:
            self._scorer(options.unknown)

    def batch(self, options: PredictOptions) -> int:
        """Return how many images or windows pass the network together."""
        return options.batch or (GPU_BATCH if self.device.type == "cuda" else 1)

    @torch.no_grad()
    def start(self, images: list[Image], options: PredictOptions) -> Callable[[], Maps]:
        """Begin to segment images (H, W, 3) uint8 of one size, and return the function that waits for the result.

        A GPU works on while the caller does something else. The upsampled logits (B, C, H, W) exist only if
        probabilities are asked for. If memory is short, recorded passes give theirs back first.
        """
        with _explained_memory():
            try:
                return self._start(images, options)
            except torch.OutOfMemoryError:
                if not self._outputs.drop():
                    raise
            return self._start(images, options)

    def _start(self, images: list[Image], options: PredictOptions) -> Callable[[], Maps]:
        pixels = torch.from_numpy(np.stack(images))
        size = (int(pixels.shape[1]), int(pixels.shape[2]))
        cuda = self.device.type == "cuda"
        with torch.cuda.device(self.device) if cuda else nullcontext():  # kernels run on it
            stored = (pixels.pin_memory() if cuda else pixels).to(self.device, non_blocking=True).permute(0, 3, 1, 2)
            logits, unknown = self._scores(stored.to(self.network.mean.dtype) / 255, options)
            found = [self._ids[upsampled_argmax(logits, size)]]
            if unknown is not None:
                found.append(upsampled(unknown[:, None], size)[:, 0].float().clamp_(0, 1))
            if options.probabilities:
                shares = upsampled(logits[:, self._by_id], size).softmax(1)
                found.append(shares.half().permute(0, 2, 3, 1).contiguous())
            if options.half:
                found.append(logits.isfinite().all())
            fetched = _fetch(found)

        def wait() -> Maps:
            mask, *others = fetched()
            if options.half and not others.pop():
                raise UserError("The network's activations exceed the range of float16; leave half precision out.")
            probabilities = others.pop() if options.probabilities else None
            return Maps(mask if self.small else mask.astype(np.uint16), others[0] if others else None, probabilities)

        return wait

    def _scores(self, images: Tensor, options: PredictOptions) -> tuple[Tensor, Tensor | None]:
        """Return logits (B, C, h, w) and unknown scores (B, h, w); of mirrored images too, averaged, for ``flip``."""
        logits, unknown = self._forward(images, options)
        if options.flip:
            mirrored = self._forward(images.flip(-1), options)
            logits = (logits + mirrored[0].flip(-1)) / 2
            unknown = None if unknown is None or mirrored[1] is None else (unknown + mirrored[1].flip(-1)) / 2
        return logits, unknown

    def _forward(self, images: Tensor, options: PredictOptions) -> tuple[Tensor, Tensor | None]:
        logits, *embedding = map(at_least_float32, self._outputs(images, options.half, options.unknown is not None))
        if options.unknown is None:
            return logits, None
        return logits, self._scorer(options.unknown)(SegOutput(logits, embedding[0], ()))

    def _scorer(self, name: str) -> UnknownScorer:
        if name not in self._scorers:
            score = default_score(self.step_folder) if name == DEFAULT_SCORE else name
            self._scorers[name] = UnknownScorer.from_step(self.step_folder, self.network, score)
        return self._scorers[name]


def _fetch(tensors: list[Tensor]) -> Callable[[], list[NDArray[Any]]]:
    """Copy tensors to arrays; from a GPU the copies are queued, and waited for by the function that is returned."""
    if tensors[0].device.type != "cuda":
        return lambda: [tensor.cpu().numpy() for tensor in tensors]
    copies = [tensor.to("cpu", non_blocking=True) for tensor in tensors]  # into pinned memory
    done = torch.cuda.Event()  # type: ignore[no-untyped-call]
    done.record()

    def wait() -> list[NDArray[Any]]:
        done.synchronize()
        return [copy.numpy() for copy in copies]

    return wait


@contextmanager
def _explained_memory() -> Iterator[None]:
    """Raise a UserError where the memory does not suffice."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        gpu = isinstance(error, torch.OutOfMemoryError)
        if not gpu and not isinstance(error, MemoryError) and "can't allocate memory" not in str(error):
            raise
        where = "The GPU" if gpu else "This machine"
        raise UserError(
            f"{where} has too little memory for these images; segment them in tiles (--tile 1024), or lower the batch."
        ) from None
