"""State that tells whether a pass is being recorded as a CUDA graph.

Launching a Triton kernel takes more host time than launching a kernel of torch. A network has hundreds of short
normalisation and bias kernels, so fused ones are faster only in a recorded graph, which is launched as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock
from typing import ClassVar

import torch
from torch import Tensor, nn

from faircl import kernels
from faircl.acceleration.hooks import has_hooks, is_patched

ONE_AT_A_TIME = RLock()
"""Held by the thread that records, whether for training or for prediction.

What marks a recording is of the whole process, and so is the mode of torch in which a pass is tested: a thread that
waits for the GPU meanwhile gets an error. Whoever compares results on the GPU before or after a recording holds it too.
"""


class _Recording:
    """Shared by all threads, because autograd runs backward passes, which may recompute forward passes, in another."""

    on: ClassVar[bool] = False


@contextmanager
def recording() -> Iterator[None]:
    """Mark a context in which passes are recorded, or warmed up for recording."""
    previous, _Recording.on = _Recording.on, True
    try:
        yield
    finally:
        _Recording.on = previous


def can_fuse(x: Tensor, *modules: nn.Module) -> bool:
    """Whether kernels may replace ``modules`` on ``x``: in a recording, with usable kernels, without hooks on them."""
    if torch.compiler.is_compiling() or not (_Recording.on and kernels.usable(x)):
        return False
    return not any(has_hooks(module) or is_patched(module) for module in modules)
