"""Whether hooks are registered on modules: what a hook observes must run as the module itself runs it."""

from __future__ import annotations

from torch import nn

_KINDS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")


def has_hooks(module: nn.Module) -> bool:
    """Whether a hook is registered on this module itself."""
    return any(getattr(module, kind) for kind in _KINDS)


def has_hooks_inside(module: nn.Module) -> bool:
    """Whether a hook is registered on this module or on any module inside it."""
    return any(has_hooks(part) for part in module.modules())
