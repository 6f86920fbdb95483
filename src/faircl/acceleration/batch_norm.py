"""BatchNorm fused with the operations after it: ReLU, a convolution, a residual sum, max-pooling.

Each function returns the result of the modules that it is given. While a CUDA graph is recorded it uses kernels that
read and write large maps once and save only the outputs of convolutions; otherwise it calls the modules.
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
    from faircl.kernels.batch_norm import NormState


class FusedResNet(ResNet):
    """A ResNet with norm, ReLU and pooling of the stem in one kernel."""

    def stem(self, image: Tensor) -> Tensor:
        """Return the pooled map (B, 64, H/4, W/4)."""
        return norm_relu_pool(self.conv1(image), self.bn1, self.relu, self.maxpool)


class FusedBottleneck(Bottleneck):  # type: ignore[misc]  # torchvision has no types
    """torchvision's bottleneck that saves only the outputs of convolutions for the backward pass."""

    def forward(self, x: Tensor) -> Tensor:
        """Return relu(branch(x) + x), or relu(branch(x) + downsample(x)), (B, C, h, w)."""
        y = norm_relu_conv(self.conv1(x), self.bn1, self.relu, self.conv2)
        y = norm_relu_conv(y, self.bn2, self.relu, self.conv3)
        return norm_add_relu(y, self.bn3, x if self.downsample is None else self.downsample(x), self.relu)


class FusedConvNorm(nn.Sequential):
    """A sequence that starts with a convolution, BatchNorm and optionally ReLU."""

    def forward(self, x: Tensor) -> Tensor:
        """Return what ``nn.Sequential`` returns."""
        layers = list(self)
        has_relu = len(layers) > 2 and type(layers[2]) is nn.ReLU
        x = norm_relu(layers[0](x), layers[1], layers[2] if has_relu else None)
        for layer in layers[3 if has_relu else 2 :]:
            x = layer(x)
        return x


class FusedDeepLabHead(DeepLabHead):
    """DeepLabV3's head with its last norm and ReLU fused."""

    def forward(self, stages: tuple[Tensor, ...]) -> Tensor:
        """Return the embedding."""
        aspp, conv, norm, relu = self
        return norm_relu(conv(aspp(stages[-1])), norm, relu)


def norm_relu_pool(x: Tensor, norm: nn.Module, relu: nn.Module, pool: nn.Module) -> Tensor:
    """Return pool(relu(norm(x))) for a 3×3 max-pooling of stride 2; updates running statistics as BatchNorm does."""
    if not (isinstance(norm, nn.BatchNorm2d) and _is_stem_pool(pool) and _can_fuse_norm(x, norm, relu, pool)):
        pooled: Tensor = pool(relu(norm(x)))
        return pooled
    from faircl.kernels import stem

    return stem.norm_relu_pool(x, _batch_norm(x, norm))


def norm_relu(x: Tensor, norm: nn.Module, relu: nn.Module | None) -> Tensor:
    """Return relu(norm(x)), or norm(x) without ReLU."""
    if not (isinstance(norm, nn.BatchNorm2d) and _can_fuse_norm(x, norm, relu)):
        out: Tensor = norm(x)
        return out if relu is None else relu(out)
    from faircl.kernels import batch_norm

    return batch_norm.norm_relu(x, _batch_norm(x, norm), relu=relu is not None)


def norm_relu_conv(x: Tensor, norm: nn.Module, relu: nn.Module, conv: nn.Module) -> Tensor:
    """Return conv(relu(norm(x))) without saving the maps in between for the backward pass."""
    if not (isinstance(norm, nn.BatchNorm2d) and _can_fuse_norm(x, norm, relu, conv) and _is_plain_conv(conv)):
        out: Tensor = conv(relu(norm(x)))
        return out
    from faircl.kernels import batch_norm

    assert isinstance(conv, nn.Conv2d)
    assert not isinstance(conv.padding, str)
    geometry = batch_norm.ConvGeometry(conv.stride, conv.padding, conv.dilation, conv.groups)
    return batch_norm.norm_relu_conv(x, _batch_norm(x, norm), conv.weight.to(x.dtype), geometry)


def norm_add_relu(x: Tensor, norm: nn.Module, residual: Tensor, relu: nn.Module) -> Tensor:
    """Return relu(norm(x) + residual)."""
    compatible = residual.dtype == x.dtype and residual.shape == x.shape and _is_channels_last(residual)
    if not (compatible and isinstance(norm, nn.BatchNorm2d) and _can_fuse_norm(x, norm, relu)):
        total: Tensor = norm(x)
        total += residual
        out: Tensor = relu(total)
        return out
    from faircl.kernels import batch_norm

    return batch_norm.norm_add_relu(x, _batch_norm(x, norm), residual)


def _can_fuse_norm(x: Tensor, norm: nn.BatchNorm2d, relu: nn.Module | None, *other_modules: nn.Module) -> bool:
    """Whether the kernels support norm and ReLU, and may replace them and the other modules."""
    supported = type(norm) is nn.BatchNorm2d and norm.affine and norm.momentum is not None
    supported = supported and (relu is None or type(relu) is nn.ReLU)
    tracked = norm.running_mean is not None and norm.running_mean.dtype == torch.float32
    single_value = norm.training and x.numel() == x.shape[1]  # torch raises an error: one value has no variance
    modules = (norm, *other_modules) if relu is None else (norm, relu, *other_modules)
    return can_fuse(x, *modules) and supported and tracked and not single_value and _is_channels_last(x)


def _is_channels_last(x: Tensor) -> bool:
    return x.is_contiguous(memory_format=torch.channels_last)


def _is_stem_pool(pool: nn.Module) -> bool:
    if type(pool) is not nn.MaxPool2d or pool.return_indices:
        return False
    return (pool.kernel_size, pool.stride, pool.padding, pool.dilation, pool.ceil_mode) == (3, 2, 1, 1, False)


def _is_plain_conv(conv: nn.Module) -> bool:
    if type(conv) is not nn.Conv2d or conv.bias is not None:
        return False
    return conv.padding_mode == "zeros" and not isinstance(conv.padding, str)


def _batch_norm(x: Tensor, norm: nn.BatchNorm2d) -> NormState:
    """Return mean, scale and affine parameters of a norm for this batch; update running statistics in training."""
    from faircl.kernels.batch_norm import NormState, moments

    assert norm.running_mean is not None
    assert norm.running_var is not None
    if norm.training:
        assert norm.num_batches_tracked is not None
        assert norm.momentum is not None
        norm.num_batches_tracked.add_(1)
        mean, scale = moments(x.detach(), norm.eps, norm.running_mean, norm.running_var, norm.momentum)
    else:
        mean, scale = norm.running_mean, (norm.running_var + norm.eps).rsqrt()
    return NormState(mean, scale, norm.weight, norm.bias, norm.training)
