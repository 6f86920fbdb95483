"""The forward pass of prediction: a prepared copy of the network, on a GPU replayed from CUDA graphs."""

from __future__ import annotations

from functools import partial
from threading import Lock

import torch
from torch import Tensor

from faircl.acceleration.evaluation import evaluation_mode
from faircl.acceleration.hooks import has_hooks, is_patched
from faircl.acceleration.prepared import half_precision, prepared
from faircl.acceleration.recording import ONE_AT_A_TIME
from faircl.acceleration.replays import CudaRecorder, Outputs, Replays
from faircl.models.segmenter import Segmenter


class InferenceNetwork:
    """Logits and embeddings of a network in evaluation mode, as fast as they can be had; equal up to rounding.

    The network itself does not change. On a GPU, or with ``prepare``, a copy is made by the first batch, and made anew
    when a module, parameter or buffer of the network has changed; not noticed are writes through ``.data`` and plain
    attributes such as ``eps``. On a CPU, where a copy gains nothing, the network runs as it is; so does one that cannot
    be copied, and one with hooks or with a ``forward`` set on a module, since its copy would not call them for the
    network's own modules.
    """

    def __init__(self, network: Segmenter, prepare: bool | None = None) -> None:
        self.network = network
        self.prepares = network.mean.is_cuda if prepare is None else prepare
        self._records = True
        self._passes: dict[bool, Replays] = {}
        self._seen = _State(network)
        self._lock = Lock()

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle or copy the network alone: recordings belong to a process, and the copy is made anew."""
        return InferenceNetwork, (self.network, self.prepares)

    @torch.inference_mode(False)  # a recording is written to in any mode, which a tensor of inference mode forbids
    @torch.no_grad()
    def __call__(self, images: Tensor, half: bool = False, embedding: bool = False) -> Outputs:
        """Return logits (B, C, h, w) of images (B, 3, H, W) in [0, 1], and embeddings (B, D, h, w) if asked for.

        ``half``: under float16 autocast. The outputs are the caller's: no later batch overwrites them.
        """
        wanted = 2 if embedding else 1
        if self.prepares and not (state := _State(self.network)).hooked and (run := self._prepared(half, state)):
            return run(images, wanted)
        with evaluation_mode(self.network):
            return _forward(self.network, half, images)[:wanted]

    def drop(self) -> bool:
        """Free the memory of all recordings and record nothing any more; whether there were any."""
        with self._lock:
            self._records = False
            dropped = [one.drop() for one in self._passes.values()]
        return any(dropped)

    def _prepared(self, half: bool, state: _State) -> Replays | None:
        """Return the passes of a prepared copy; None if the network cannot be copied."""
        with self._lock:
            if not state.same(self._seen):
                for one in self._passes.values():
                    one.drop()
                self._passes, self._seen = {}, state
            if half not in self._passes:
                with ONE_AT_A_TIME:  # the copy is compared with the network, which waits for the GPU
                    copied = prepared(self.network, half)
                if copied is None:
                    self.prepares = False
                    return None
                recorder = _recorder(copied) if self._records else None
                self._passes[half] = Replays(partial(_forward, copied, half), recorder)
            return self._passes[half]


class _State:
    """The modules and tensors of a network, and how often its tensors were written to.

    ``hooked``: whether a module has hooks or a ``forward`` of its own.
    """

    def __init__(self, network: Segmenter) -> None:
        self.hooked = False
        self._kept: list[object] = []  # so that no new object gets the id of one of them
        self._marks: list[tuple[int, ...]] = []
        for module in network.modules():
            self.hooked = self.hooked or has_hooks(module) or is_patched(module)
            self._kept.append(module)
            self._marks.append((id(module),))
            for tensor in (*module._parameters.values(), *module._buffers.values()):
                if tensor is not None:
                    written = 0 if tensor.is_inference() else tensor._version
                    self._kept.append(tensor)
                    self._marks.append((id(tensor), tensor.data_ptr(), written))

    def same(self, other: _State) -> bool:
        """Whether nothing lies between two states."""
        return self._marks == other._marks


def _recorder(network: Segmenter) -> CudaRecorder | None:
    return CudaRecorder(network) if network.mean.is_cuda else None


def _forward(network: Segmenter, half: bool, images: Tensor) -> Outputs:
    with half_precision(images.device, half):
        output = network(images)
    return output.logits, output.embedding
