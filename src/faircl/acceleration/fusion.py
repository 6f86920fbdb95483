"""Fused modules in the place of plain ones, for a while.

A network is written and saved in plain torch. Within ``fused`` some of its modules have another class: the same
parameters, names and results, computed by Triton kernels where these run, and by the plain code elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn
from torchvision.models.resnet import Bottleneck

from faircl.acceleration.batch_norm import FusedBottleneck, FusedConvNorm, FusedDeepLabHead, FusedResNet
from faircl.acceleration.bias import FusedBiasConv2d, FusedBiasLinear
from faircl.acceleration.layer_norm import FusedLayerNorm, FusedLayerNormLowPrecision, can_fuse_layer_norm
from faircl.acceleration.mlp_decoder import FusedMlpDecoder
from faircl.models.aspp import ASPP, DeepLabHead, DeepLabPlusHead
from faircl.models.backbones import ResNet
from faircl.models.mlp_decoder import MlpDecoder
from faircl.models.segformer import MixTransformer

Replacements = dict[nn.Module, type[nn.Module]]

BATCH_NORM, LAYER_NORM, BIAS, DECODER = "batch norm", "layer norm", "bias", "decoder"
FUSIONS = (BATCH_NORM, LAYER_NORM, BIAS, DECODER)
"""What can be fused; ``benchmarks/tricks.py`` times each of them."""


@contextmanager
def fused(*networks: nn.Module, fusions: tuple[str, ...] = FUSIONS) -> Iterator[None]:
    """Give the modules of some networks their fused classes, and their own ones back afterwards."""
    replaced = {module: kind for network in networks for module, kind in replacements(network, fusions).items()}
    own = [(module, type(module)) for module in replaced]
    try:
        for module, kind in replaced.items():
            module.__class__ = kind
        yield
    finally:
        for module, kind in own:
            module.__class__ = kind


def replacements(network: nn.Module, fusions: tuple[str, ...] = FUSIONS) -> Replacements:
    """Return the fused class of every module that has one. Only exact types are replaced: subclasses may do more."""
    found: Replacements = {}
    for module in network.modules():
        kind = type(module)
        if BATCH_NORM in fusions:
            if kind is ResNet:
                found[module] = FusedResNet
            elif kind is DeepLabHead:
                found[module] = FusedDeepLabHead
            elif kind is Bottleneck:
                found[module] = FusedBottleneck
            if kind in (Bottleneck, ASPP, DeepLabPlusHead):
                found |= {part: FusedConvNorm for part in module.modules() if _is_conv_norm(part)}
        if DECODER in fusions and kind is MlpDecoder:
            found[module] = FusedMlpDecoder
        if isinstance(module, MixTransformer):
            if LAYER_NORM in fusions:
                found |= _layer_norms(module)
            if BIAS in fusions:
                found |= {part: FusedBiasLinear for part in module.modules() if type(part) is nn.Linear}
                found |= {part: FusedBiasConv2d for part in module.modules() if type(part) is nn.Conv2d}
    return found


def _is_conv_norm(module: nn.Module) -> bool:
    """Whether a module is a sequence that starts with a convolution and BatchNorm."""
    if not isinstance(module, nn.Sequential) or type(module).forward is not nn.Sequential.forward:
        return False
    first, second = (*module, None, None)[:2]
    return isinstance(first, nn.Conv2d) and isinstance(second, nn.BatchNorm2d)


def _layer_norms(backbone: MixTransformer) -> Replacements:
    """Return the classes of a transformer's layer norms: those in blocks and after a stage feed matrix products."""
    found: Replacements = {part: FusedLayerNorm for part in backbone.modules() if can_fuse_layer_norm(part)}
    for owner in (*backbone.blocks(), *(stage.layer_norm for stage in backbone.stages)):
        found |= {part: FusedLayerNormLowPrecision for part in owner.modules() if part in found}
    return found
