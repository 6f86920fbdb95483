"""Whether a pass is being recorded.

A host takes longer to launch our kernels than torch's own, of which a network has hundreds: where these are many and
short, ours are for recordings, which need no launches.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

import torch
from torch import Tensor, nn

from faircl import kernels


class _Recording:
    """Known to all threads: backward passes, which may compute forward ones again, have their own."""

    on: ClassVar[bool] = False


@contextmanager
def recording() -> Iterator[None]:
    """Mark passes that are recorded, or warm up for it."""
    before, _Recording.on = _Recording.on, True
    try:
        yield
    finally:
        _Recording.on = before


def by_kernels(x: Tensor, *parts: nn.Module) -> bool:
    """Whether kernels may take the place of some modules: in a recording, where they run, if nobody listens."""
    if torch.compiler.is_compiling() or not (_Recording.on and kernels.usable(x)):
        return False
    return not any(map(is_heard, parts))


def is_heard(part: nn.Module) -> bool:
    """Whether somebody has hung a hook on a module."""
    hooks = (part._forward_hooks, part._forward_pre_hooks, part._backward_hooks, part._backward_pre_hooks)
    return any(hooks)
