"""Gradient checkpointing for the blocks of any network: less memory, one more forward pass of the backbone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint


def checkpoint_blocks(blocks: Iterable[nn.Module]) -> int:
    """Make blocks forget their activations and compute them again in the backward pass; return how many.

    A block keeps its parameters, its name in the state dict and its type: it only gains a forward of its own.
    """
    count = 0
    for block in blocks:
        kind = type(block)
        if not issubclass(kind, _Forgetful):
            block.__class__ = type(kind.__name__, (_Forgetful, kind), {})
        count += 1
    return count


class _Forgetful(nn.Module):
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return super().forward(*args, **kwargs)
        return checkpoint(super().forward, *args, use_reentrant=False, context_fn=self._contexts, **kwargs)

    def _contexts(self) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        return nullcontext(), _statistics_kept(self)


@contextmanager
def _statistics_kept(module: nn.Module) -> Iterator[None]:
    """Let BatchNorm normalise by the batch without moving its running statistics: the first pass has moved them."""
    norms = [m for m in module.modules() if isinstance(m, _BatchNorm) and m.track_running_stats]
    for norm in norms:
        norm.track_running_stats = False
    try:
        yield
    finally:
        for norm in norms:
            norm.track_running_stats = True
