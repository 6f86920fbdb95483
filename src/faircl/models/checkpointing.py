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


@contextmanager
def remembered(blocks: Iterable[nn.Module]) -> Iterator[None]:
    """Let blocks keep their activations for once: what a hook takes out of a block is not computed again."""
    chosen = [block for block in blocks if isinstance(block, _Forgetful)]
    for block in chosen:
        block.forgetful = False
    try:
        yield
    finally:
        for block in chosen:
            block.forgetful = True


class _Forgetful(nn.Module):
    forgetful = True

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if not (self.forgetful and torch.is_grad_enabled()):
            return super().forward(*args, **kwargs)
        # A compiler repeats operations, not their effects on statistics, and takes no context.
        contexts: dict[str, Any] = {} if torch.compiler.is_compiling() else {"context_fn": self._contexts}
        # Some networks change lists, inside a block or after it: the second pass must find them as the first did.
        return checkpoint(self._on_own, *_own(args), use_reentrant=False, **contexts, **kwargs)

    def _on_own(self, *args: Any, **kwargs: Any) -> Any:
        return super().forward(*_own(args), **kwargs)

    def _contexts(self) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        return nullcontext(), _statistics_kept(self)


def _own(args: Iterable[Any]) -> list[Any]:
    return [list(arg) if isinstance(arg, list) else arg for arg in args]


@contextmanager
def _statistics_kept(module: nn.Module) -> Iterator[None]:
    """Let BatchNorm move copies of its running statistics: the first pass has moved them already."""
    norms = [norm for norm in module.modules() if isinstance(norm, _BatchNorm) and norm.training]
    kept = [(norm, dict(norm.named_buffers(recurse=False))) for norm in norms]
    for norm, statistics in kept:
        for name, value in statistics.items():
            setattr(norm, name, value.clone())
    try:
        yield
    finally:
        for norm, statistics in kept:
            for name, value in statistics.items():
                setattr(norm, name, value)
