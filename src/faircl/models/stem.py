"""The end of a ResNet's stem: BatchNorm, ReLU and max-pooling, in one pass where kernels can do it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from faircl import kernels


def norm_relu_pool(x: Tensor, norm: nn.Module, relu: nn.Module, pool: nn.Module) -> Tensor:
    """Return pool(relu(norm(x))), the pool being 3×3 by two; statistics move as BatchNorm's do."""
    if not (isinstance(norm, nn.BatchNorm2d) and _fits(x, norm)):
        pooled: Tensor = pool(relu(norm(x)))
        return pooled
    from faircl.kernels import stem

    moves = norm.training
    if moves:
        mean, scale = batch_statistics(x, norm.eps)
        _remember(norm, mean, scale, x.numel() // x.shape[1])
    else:
        assert norm.running_mean is not None
        assert norm.running_var is not None
        mean, scale = norm.running_mean.float(), (norm.running_var.float() + norm.eps).rsqrt()
    return stem.norm_relu_pool(x, stem.Norm(mean, scale, norm.weight, norm.bias, moves))


def _fits(x: Tensor, norm: nn.BatchNorm2d) -> bool:
    """Whether a norm is the plain one, and nobody listens to it."""
    plain = type(norm) is nn.BatchNorm2d and norm.affine and norm.track_running_stats and norm.momentum is not None
    heard = norm._forward_hooks or norm._forward_pre_hooks or norm._backward_hooks or norm._backward_pre_hooks
    packed = x.is_contiguous(memory_format=torch.channels_last)
    return plain and not heard and packed and not torch.compiler.is_compiling() and kernels.usable(x)


@torch.no_grad()
def batch_statistics(x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Return mean and 1/√(variance + ε) of every channel of x (B, C, H, W), in float32; backward knows of them."""
    if x.device.type == "cuda":
        mean, scale = torch.batch_norm_stats(x, eps)
        return mean, scale
    variance, mean = torch.var_mean(x.float(), (0, 2, 3), correction=0)
    return mean, (variance + eps).rsqrt()


@torch.no_grad()
def _remember(norm: nn.BatchNorm2d, mean: Tensor, scale: Tensor, count: int) -> None:
    """Move the running statistics towards the batch's, its variance taken as an estimate of all images'."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    assert norm.num_batches_tracked is not None
    assert norm.momentum is not None
    variance = (scale.pow(-2) - norm.eps) * (count / max(count - 1, 1))
    norm.num_batches_tracked.add_(1)
    norm.running_mean.lerp_(mean.to(norm.running_mean), norm.momentum)
    norm.running_var.lerp_(variance.to(norm.running_var), norm.momentum)
