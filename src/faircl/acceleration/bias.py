"""Linear layers and convolutions whose bias gradient is computed by a kernel while a CUDA graph is recorded."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from faircl.acceleration.recording import can_fuse


class FusedBiasLinear(nn.Linear):
    """``nn.Linear`` with the same values and gradients."""

    def forward(self, x: Tensor) -> Tensor:
        """Map (…, D) to (…, E)."""
        if self.bias is None or not (torch.is_grad_enabled() and can_fuse(x)):
            return super().forward(x)
        out: Tensor = _Linear.apply(*_autocast_operands(x, self.weight, self.bias))
        return out


class FusedBiasConv2d(nn.Conv2d):
    """``nn.Conv2d`` with the same values and gradients."""

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, C, H, W) to (B, D, H', W')."""
        supported = self.padding_mode == "zeros" and not isinstance(self.padding, str)
        if self.bias is None or not (supported and torch.is_grad_enabled() and can_fuse(x)):
            return super().forward(x)
        geometry = (list(self.stride), list(self.padding), list(self.dilation), False, [0, 0], self.groups)
        out: Tensor = _Convolution.apply(*_autocast_operands(x, self.weight, self.bias), geometry)
        return out


def _autocast_operands(*values: Tensor) -> tuple[Tensor, ...]:
    """Cast operands as autocast would; gradients flow through the casts."""
    device_type = values[0].device.type
    if not torch.is_autocast_enabled(device_type):
        return values
    return tuple(value.to(torch.get_autocast_dtype(device_type)) for value in values)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return F.linear(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        needs_grad = ctx.needs_input_grad
        grad = gradients[0].reshape(-1, weight.shape[0])
        grad_x = (grad @ weight).view(x.shape) if needs_grad[0] else None
        grad_weight = grad.mT @ x.reshape(-1, weight.shape[1]) if needs_grad[1] else None
        return grad_x, grad_weight, _bias_gradient(grad) if needs_grad[2] else None


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, geometry: tuple[Any, ...]) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.geometry = geometry
        return torch.ops.aten.convolution(x, weight, bias, *geometry)  # type: ignore[no-any-return]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        (grad,), needs_grad = gradients, ctx.needs_input_grad
        grad_x, grad_weight, _ = torch.ops.aten.convolution_backward(
            grad, x, weight, None, *ctx.geometry, [needs_grad[0], needs_grad[1], False]
        )
        rows = grad.permute(0, 2, 3, 1).reshape(-1, grad.shape[1])  # no copy in channels_last
        return grad_x, grad_weight, _bias_gradient(rows) if needs_grad[2] else None, None


def _bias_gradient(grad: Tensor) -> Tensor:
    from faircl.kernels.column_sums import column_sums

    return column_sums(grad.contiguous()).to(grad.dtype)
