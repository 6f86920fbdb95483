"""Replay of a forward pass from CUDA graphs for batches whose shape comes again, as most of a prediction's do.

Recordings write every batch to the same memory, and several batches may be on their way at once. No result is lost:

- Copying a batch in, the replay and copying the results out are queued on one stream, which works through them in
  order: the next batch is copied in after the results of this one are out. Batches on other streams are not replayed.
  So results may be waited for long after later batches were started.
- A lock keeps threads from queueing theirs in between.
- All recordings have one memory pool. What one leaves there may be overwritten by another, but nobody reads it: results
  were copied out, and images, weights and tables of kernels are not in the pool.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from threading import Lock
from typing import Any

import torch
from torch import Tensor, nn

from faircl.acceleration.cuda_graphs import record_forward, recording_problem
from faircl.acceleration.recording import ONE_AT_A_TIME, recording
from faircl.acceleration.relative_error import relative_error

EAGER = 2
"""Batches of a shape that are computed as usual before the next one is recorded; recording costs about three."""
MAX_SHAPES = 4
"""Shapes that are recorded; those that come later are computed as usual."""
TOLERANCE = 2e-2
"""Largest relative error of a recording on its first batch: kernels of recorded passes round otherwise, in half
precision by up to a few thousandths. A wrong recording errs by the order of one."""
MAX_PIXELS = 2**23
"""Largest batch that is recorded, in pixels of all images: memory of recordings stays allocated."""

Outputs = tuple[Tensor, ...]
Forward = Callable[[Tensor], Outputs]
"""Images (B, 3, H, W) to tensors."""


class Replays:
    """A forward pass without gradients, replayed where batches of a shape come again and computed where not.

    ``record`` returns the replay of a pass on images of one shape, whose outputs the next replay overwrites, or None if
    it cannot be recorded; nothing is recorded then any more. Without ``record`` nothing is.
    """

    def __init__(self, forward: Forward, record: Callable[[Forward, Tensor], Forward | None] | None = None) -> None:
        self.forward, self.record = forward, record
        self._times: Counter[torch.Size] = Counter()
        self._recorded: dict[torch.Size, Forward] = {}
        self._stream: object = None
        self._device = torch.device("cpu")
        self._given_up = record is None
        self._lock = Lock()

    def __call__(self, images: Tensor, wanted: int) -> Outputs:
        """Return the first ``wanted`` outputs, in memory of their own."""
        with self._lock:
            replay = self._replay(images)
            if replay is not None:
                return tuple(output.clone() for output in replay(images)[:wanted])
        return self.forward(images)[:wanted]

    def drop(self) -> bool:
        """Free all recordings and record nothing any more; whether there were any."""
        with self._lock:
            found, self._given_up = bool(self._recorded), True
            if found:
                with ONE_AT_A_TIME:  # a recording in another thread must not meet a wait for the whole GPU
                    torch.cuda.synchronize(self._device)  # replays may be on their way
                    self._recorded.clear()
                    torch.cuda.empty_cache()
        return found

    def _replay(self, images: Tensor) -> Forward | None:
        """Return the recording of a shape; it is made when enough batches of the shape have come."""
        shape, stream = images.shape, _current_stream(images)
        if self._recorded and stream != self._stream:
            return None
        if shape not in self._recorded and self._can_record(images):
            self._times[shape] += 1
            if self.record is not None and self._times[shape] > EAGER:
                replay = self.record(self.forward, images)
                if replay is None:
                    self._given_up = True
                    return None
                self._recorded[shape], self._stream, self._device = replay, stream, images.device
        return self._recorded.get(shape)

    def _can_record(self, images: Tensor) -> bool:
        pixels = images.shape[0] * images.shape[2] * images.shape[3]
        return not self._given_up and len(self._recorded) < MAX_SHAPES and pixels <= MAX_PIXELS


class CudaRecorder:
    """Records forward passes as CUDA graphs that share one memory pool.

    They are recorded on a stream of their own: cuBLAS keeps a workspace for every stream, which comes from the pool of
    the first recording there. On a stream shared with recorded training it could be freed with that recording.

    Whether a pass waits for the GPU, which cannot be recorded, is tested by a mode of torch that is of the whole
    process: another thread that waits for the GPU at that moment gets a RuntimeError.
    """

    def __init__(self, network: nn.Module) -> None:
        self.network = network
        self._where: dict[str, Any] = {}

    def __call__(self, forward: Forward, images: Tensor) -> Forward | None:
        """Return the replay of a pass on images of this shape, or None if that fails or gives other results."""
        try:
            # With the comparison, which waits for the GPU: beside another thread's recording it would fail.
            with ONE_AT_A_TIME:
                return self._record(forward, images)
        except Exception:  # too little memory, for example; the pass is computed as usual
            return None

    def _record(self, forward: Forward, images: Tensor) -> Forward | None:
        fixed = images.clone()
        if not self._where:
            # Other threads may allocate memory meanwhile, for example with another network.
            self._where = {
                "pool": torch.cuda.graph_pool_handle(),
                "stream": torch.cuda.Stream(images.device),  # type: ignore[no-untyped-call]
                "capture_error_mode": "thread_local",
            }
        with recording(), _fastest_convolutions():
            if recording_problem(forward, fixed):
                return None
            run = record_forward(forward, fixed, **self._where)
        # Modules may replace what they remember of a shape, such as tables of positions; replays go on reading it.
        kept = [(dict(vars(module)), dict(module._buffers)) for module in self.network.modules()]
        replay = partial(_replay, run, fixed, kept)
        return replay if _alike(replay(images), forward(images)) else None


def _alike(found: Outputs, exact: Outputs) -> bool:
    """Whether the error of all outputs is one of rounding; it is not for NaN."""
    return relative_error(map(Tensor.float, found), map(Tensor.float, exact)) <= TOLERANCE


def _replay(run: Forward, fixed: Tensor, kept: object, images: Tensor) -> Outputs:
    fixed.copy_(images)
    return run(fixed)


@contextmanager
def _fastest_convolutions() -> Iterator[None]:
    """Let cuDNN time its algorithms for every convolution of a recorded pass, unless torch is to be deterministic."""
    cudnn = torch.backends.cudnn
    before = cudnn.benchmark
    cudnn.benchmark = before or not (cudnn.deterministic or torch.are_deterministic_algorithms_enabled())
    try:
        yield
    finally:
        cudnn.benchmark = before


def _current_stream(images: Tensor) -> object:
    return torch.cuda.current_stream(images.device) if images.is_cuda else None
