"""BatchNorm with what comes after it: in few passes, by kernels, while a network is recorded, else as torch does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from faircl.acceleration.recording import by_kernels

if TYPE_CHECKING:
    from faircl.kernels.batch_norm import Norm


def norm_relu_pool(x: Tensor, norm: nn.Module, relu: nn.Module, pool: nn.Module) -> Tensor:
    """Return pool(relu(norm(x))), the pool being 3×3 by two; statistics move as BatchNorm's do."""
    if not (isinstance(norm, nn.BatchNorm2d) and _halves(pool) and _fits(x, norm, relu, pool)):
        pooled: Tensor = pool(relu(norm(x)))
        return pooled
    from faircl.kernels import stem

    return stem.norm_relu_pool(x, _taken(x, norm))


def norm_relu(x: Tensor, norm: nn.Module, relu: nn.Module | None) -> Tensor:
    """Return relu(norm(x)), or norm(x) alone."""
    if not (isinstance(norm, nn.BatchNorm2d) and _fits(x, norm, relu)):
        out: Tensor = norm(x)
        return out if relu is None else relu(out)
    from faircl.kernels import batch_norm

    return batch_norm.norm_relu(x, _taken(x, norm), cut=relu is not None)


class NormedRow(nn.Sequential):
    """Modules in a row: a convolution, a norm and whatever comes then, ReLU at first. Shapes: (B, …) to (B, …)."""

    def forward(self, x: Tensor) -> Tensor:
        """Return what ``nn.Sequential`` returns."""
        layers = list(self)
        rectified = len(layers) > 2 and type(layers[2]) is nn.ReLU
        x = norm_relu(layers[0](x), layers[1], layers[2] if rectified else None)
        for layer in layers[3 if rectified else 2 :]:
            x = layer(x)
        return x


def norm_relu_conv(x: Tensor, norm: nn.Module, relu: nn.Module, conv: nn.Module) -> Tensor:
    """Return conv(relu(norm(x))); what lies between is not kept for the backward pass."""
    if not (isinstance(norm, nn.BatchNorm2d) and _fits(x, norm, relu, conv) and _is_plain(conv)):
        out: Tensor = conv(relu(norm(x)))
        return out
    from faircl.kernels import batch_norm

    assert isinstance(conv, nn.Conv2d)
    assert not isinstance(conv.padding, str)
    window = batch_norm.Window(conv.stride, conv.padding, conv.dilation, conv.groups)
    return batch_norm.norm_relu_conv(x, _taken(x, norm), conv.weight.to(x.dtype), window)


def norm_add_relu(x: Tensor, norm: nn.Module, other: Tensor, relu: nn.Module) -> Tensor:
    """Return relu(norm(x) + other)."""
    alike = other.dtype == x.dtype and other.shape == x.shape and _is_packed(other)
    if not (alike and isinstance(norm, nn.BatchNorm2d) and _fits(x, norm, relu)):
        total: Tensor = norm(x)
        total += other
        out: Tensor = relu(total)
        return out
    from faircl.kernels import batch_norm

    return batch_norm.norm_add_relu(x, _taken(x, norm), other)


def _fits(x: Tensor, norm: nn.BatchNorm2d, relu: nn.Module | None, *others: nn.Module) -> bool:
    """Whether norm and ReLU are the plain ones, and kernels may take their place and that of others."""
    plain = type(norm) is nn.BatchNorm2d and norm.affine and norm.momentum is not None
    plain = plain and (relu is None or type(relu) is nn.ReLU)
    tracked = norm.running_mean is not None and norm.running_mean.dtype == torch.float32
    lonely = norm.training and x.numel() == x.shape[1]  # one value has no variance, as torch will say
    heard = (norm, *others) if relu is None else (norm, relu, *others)
    return by_kernels(x, *heard) and plain and tracked and not lonely and _is_packed(x)


def _is_packed(x: Tensor) -> bool:
    return x.is_contiguous(memory_format=torch.channels_last)


def _halves(pool: nn.Module) -> bool:
    if type(pool) is not nn.MaxPool2d or pool.return_indices:
        return False
    return (pool.kernel_size, pool.stride, pool.padding, pool.dilation, pool.ceil_mode) == (3, 2, 1, 1, False)


def _is_plain(conv: nn.Module) -> bool:
    if type(conv) is not nn.Conv2d or conv.bias is not None:
        return False
    return conv.padding_mode == "zeros" and not isinstance(conv.padding, str)


def _taken(x: Tensor, norm: nn.BatchNorm2d) -> Norm:
    """Return what a norm does to a batch; its statistics move, if they do."""
    from faircl.kernels.batch_norm import Norm, moments

    assert norm.running_mean is not None
    assert norm.running_var is not None
    if norm.training:
        assert norm.num_batches_tracked is not None
        assert norm.momentum is not None
        norm.num_batches_tracked.add_(1)
        mean, scale = moments(x.detach(), norm.eps, norm.running_mean, norm.running_var, norm.momentum)
    else:
        mean, scale = norm.running_mean, (norm.running_var + norm.eps).rsqrt()
    return Norm(mean, scale, norm.weight, norm.bias, norm.training)
