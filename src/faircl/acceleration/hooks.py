"""Detection of hooks on modules: modules with hooks must be called as usual, not fused or replayed.

So must modules whose own attribute ``forward`` was set, which a copy would share with them or not call at all.
"""

from __future__ import annotations

from torch import nn

_HOOK_ATTRIBUTES = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")


def has_hooks(module: nn.Module) -> bool:
    """Whether a hook is registered on this module itself."""
    return any(getattr(module, attribute) for attribute in _HOOK_ATTRIBUTES)


def is_patched(module: nn.Module) -> bool:
    """Whether this module itself, not its class, has a ``forward``."""
    return "forward" in vars(module)


def has_hooks_inside(module: nn.Module) -> bool:
    """Whether this module or any module inside it has a hook or a ``forward`` of its own."""
    return any(has_hooks(submodule) or is_patched(submodule) for submodule in module.modules())
