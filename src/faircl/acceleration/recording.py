"""Whether a pass is being recorded as a CUDA graph.

Launching a Triton kernel costs the host more time than launching one of torch's own. A network has hundreds of short
normalisation and bias kernels, so fused ones pay only in a recorded graph, which is launched as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

import torch
from torch import Tensor, nn

from faircl import kernels
from faircl.acceleration.hooks import has_hooks


class _Recording:
    """Shared by all threads: a backward pass, which may run forward passes again, has a thread of its own."""

    on: ClassVar[bool] = False


@contextmanager
def recording() -> Iterator[None]:
    """Mark passes that are recorded, and the warm-up before them."""
    before, _Recording.on = _Recording.on, True
    try:
        yield
    finally:
        _Recording.on = before


def can_fuse(x: Tensor, *modules: nn.Module) -> bool:
    """Whether kernels may compute ``modules`` on ``x``: in a recording, where kernels run, if no hook is registered."""
    if torch.compiler.is_compiling() or not (_Recording.on and kernels.usable(x)):
        return False
    return not any(map(has_hooks, modules))
