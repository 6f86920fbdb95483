"""Gradient checkpointing of a network's blocks: less memory for one more forward pass of these blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint


def checkpoint_blocks(blocks: Iterable[nn.Module]) -> int:
    """Make blocks recompute their activations in the backward pass instead of storing them; return their number.

    The class of each block is replaced by a subclass that overrides ``forward``. Parameters and state dict keys do not
    change. Blocks that are checkpointed already are counted and left as they are.
    """
    count = 0
    for block in blocks:
        block_type = type(block)
        if not issubclass(block_type, _CheckpointedBlock):
            block.__class__ = type(block_type.__name__, (_CheckpointedBlock, block_type), {})
        count += 1
    return count


@contextmanager
def without_checkpointing(blocks: Iterable[nn.Module]) -> Iterator[None]:
    """Switch checkpointing off in a context: hooks inside a block would otherwise fire again in the backward pass."""
    checkpointed = [block for block in blocks if isinstance(block, _CheckpointedBlock)]
    for block in checkpointed:
        block.recompute = False
    try:
        yield
    finally:
        for block in checkpointed:
            block.recompute = True


class _CheckpointedBlock(nn.Module):
    recompute = True

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if not (self.recompute and torch.is_grad_enabled()):
            return super().forward(*args, **kwargs)
        # torch.compile does not support context_fn, and does not repeat updates of running statistics anyway.
        options: dict[str, Any] = {} if torch.compiler.is_compiling() else {"context_fn": self._context_managers}
        # Some networks change argument lists in place, in the block or after it. Copies keep the arguments of the
        # second forward pass equal to those of the first.
        return checkpoint(self._forward_on_copies, *_copy_lists(args), use_reentrant=False, **options, **kwargs)

    def _forward_on_copies(self, *args: Any, **kwargs: Any) -> Any:
        return super().forward(*_copy_lists(args), **kwargs)

    def _context_managers(self) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        return nullcontext(), _running_statistics_restored(self)


def _copy_lists(args: Iterable[Any]) -> list[Any]:
    return [list(arg) if isinstance(arg, list) else arg for arg in args]


@contextmanager
def _running_statistics_restored(module: nn.Module) -> Iterator[None]:
    """Restore BatchNorm's running statistics afterwards: the first forward pass has updated them already."""
    norms = [norm for norm in module.modules() if isinstance(norm, _BatchNorm) and norm.training]
    saved = [(norm, dict(norm.named_buffers(recurse=False))) for norm in norms]
    for norm, statistics in saved:
        for name, value in statistics.items():
            setattr(norm, name, value.clone())
    try:
        yield
    finally:
        for norm, statistics in saved:
            for name, value in statistics.items():
                setattr(norm, name, value)
