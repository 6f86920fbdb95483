"""BatchNorm fused with what follows it: ReLU, a convolution, a sum, max-pooling.

Each function computes what the modules it is given compute. In a recorded pass it does so by kernels that read and
write large maps once and keep only what convolutions return; elsewhere it calls the modules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torchvision.models.resnet import Bottleneck

from faircl.acceleration.recording import can_fuse
from faircl.models.aspp import DeepLabHead
from faircl.models.backbones import ResNet

if TYPE_CHECKING:
    from faircl.kernels.batch_norm import Norm


class FusedResNet(ResNet):
    """A ResNet whose stem normalises, rectifies and pools in one kernel."""

    def stem(self, image: Tensor) -> Tensor:
        """Return the pooled map (B, 64, H/4, W/4)."""
        return norm_relu_pool(self.conv1(image), self.bn1, self.relu, self.maxpool)


class FusedBottleneck(Bottleneck):  # type: ignore[misc]  # torchvision has no types
    """torchvision's bottleneck; of its maps only what convolutions return is kept for the backward pass."""

    def forward(self, x: Tensor) -> Tensor:
        """Return relu(x' + the branch of three convolutions), x' being x or its projection; (B, C, h, w)."""
        y = norm_relu_conv(self.conv1(x), self.bn1, self.relu, self.conv2)
        y = norm_relu_conv(y, self.bn2, self.relu, self.conv3)
        return norm_add_relu(y, self.bn3, x if self.downsample is None else self.downsample(x), self.relu)


class FusedConvNorm(nn.Sequential):
    """A sequence that starts with a convolution, a norm and, often, ReLU."""

    def forward(self, x: Tensor) -> Tensor:
        """Return what ``nn.Sequential`` returns."""
        layers = list(self)
        rectified = len(layers) > 2 and type(layers[2]) is nn.ReLU
        x = norm_relu(layers[0](x), layers[1], layers[2] if rectified else None)
        for layer in layers[3 if rectified else 2 :]:
            x = layer(x)
        return x


class FusedDeepLabHead(DeepLabHead):
    """DeepLabV3's head with its last norm and ReLU fused."""

    def forward(self, stages: tuple[Tensor, ...]) -> Tensor:
        """Return the embedding."""
        aspp, conv, norm, relu = self
        return norm_relu(conv(aspp(stages[-1])), norm, relu)


def norm_relu_pool(x: Tensor, norm: nn.Module, relu: nn.Module, pool: nn.Module) -> Tensor:
    """Return pool(relu(norm(x))), the pool being 3×3 by two; statistics move as BatchNorm's do."""
    if not (isinstance(norm, nn.BatchNorm2d) and _halves(pool) and _can_fuse_norm(x, norm, relu, pool)):
        pooled: Tensor = pool(relu(norm(x)))
        return pooled
    from faircl.kernels import stem

    return stem.norm_relu_pool(x, _batch_norm(x, norm))


def norm_relu(x: Tensor, norm: nn.Module, relu: nn.Module | None) -> Tensor:
    """Return relu(norm(x)), or norm(x) alone."""
    if not (isinstance(norm, nn.BatchNorm2d) and _can_fuse_norm(x, norm, relu)):
        out: Tensor = norm(x)
        return out if relu is None else relu(out)
    from faircl.kernels import batch_norm

    return batch_norm.norm_relu(x, _batch_norm(x, norm), cut=relu is not None)


def norm_relu_conv(x: Tensor, norm: nn.Module, relu: nn.Module, conv: nn.Module) -> Tensor:
    """Return conv(relu(norm(x))); the maps in between are not kept for the backward pass."""
    if not (isinstance(norm, nn.BatchNorm2d) and _can_fuse_norm(x, norm, relu, conv) and _is_plain_conv(conv)):
        out: Tensor = conv(relu(norm(x)))
        return out
    from faircl.kernels import batch_norm

    assert isinstance(conv, nn.Conv2d)
    assert not isinstance(conv.padding, str)
    window = batch_norm.Window(conv.stride, conv.padding, conv.dilation, conv.groups)
    return batch_norm.norm_relu_conv(x, _batch_norm(x, norm), conv.weight.to(x.dtype), window)


def norm_add_relu(x: Tensor, norm: nn.Module, other: Tensor, relu: nn.Module) -> Tensor:
    """Return relu(norm(x) + other)."""
    alike = other.dtype == x.dtype and other.shape == x.shape and _is_channels_last(other)
    if not (alike and isinstance(norm, nn.BatchNorm2d) and _can_fuse_norm(x, norm, relu)):
        total: Tensor = norm(x)
        total += other
        out: Tensor = relu(total)
        return out
    from faircl.kernels import batch_norm

    return batch_norm.norm_add_relu(x, _batch_norm(x, norm), other)


def _can_fuse_norm(x: Tensor, norm: nn.BatchNorm2d, relu: nn.Module | None, *others: nn.Module) -> bool:
    """Whether norm and ReLU are plain ones, and kernels may compute them and the other modules."""
    plain = type(norm) is nn.BatchNorm2d and norm.affine and norm.momentum is not None
    plain = plain and (relu is None or type(relu) is nn.ReLU)
    tracked = norm.running_mean is not None and norm.running_mean.dtype == torch.float32
    single = norm.training and x.numel() == x.shape[1]  # one value has no variance; torch raises its own error
    modules = (norm, *others) if relu is None else (norm, relu, *others)
    return can_fuse(x, *modules) and plain and tracked and not single and _is_channels_last(x)


def _is_channels_last(x: Tensor) -> bool:
    return x.is_contiguous(memory_format=torch.channels_last)


def _halves(pool: nn.Module) -> bool:
    if type(pool) is not nn.MaxPool2d or pool.return_indices:
        return False
    return (pool.kernel_size, pool.stride, pool.padding, pool.dilation, pool.ceil_mode) == (3, 2, 1, 1, False)


def _is_plain_conv(conv: nn.Module) -> bool:
    if type(conv) is not nn.Conv2d or conv.bias is not None:
        return False
    return conv.padding_mode == "zeros" and not isinstance(conv.padding, str)


def _batch_norm(x: Tensor, norm: nn.BatchNorm2d) -> Norm:
    """Return mean, scale and affine parameters of a norm on this batch; in training its running statistics move."""
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
