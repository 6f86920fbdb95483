"""Temporary replacement of modules by fused ones.

Networks are written and saved in plain torch. Within the context ``fused`` some modules have another class, with the
same parameters, names and results, which uses Triton kernels where they can run.
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
"""Names of all fusions; ``benchmarks/tricks.py`` times each of them."""


@contextmanager
def fused(*networks: nn.Module, fusions: tuple[str, ...] = FUSIONS) -> Iterator[None]:
    """Replace the classes of modules by fused ones in a context, and restore them afterwards."""
    replaced = {
        module: new_class for network in networks for module, new_class in replacements(network, fusions).items()
    }
    original = [(module, type(module)) for module in replaced]
    try:
        for module, new_class in replaced.items():
            module.__class__ = new_class
        yield
    finally:
        for module, original_class in original:
            module.__class__ = original_class


def replacements(network: nn.Module, fusions: tuple[str, ...] = FUSIONS) -> Replacements:
    """Return the fused class of every module that has one; subclasses, which may do more, are not replaced."""
    classes: Replacements = {}
    for module in network.modules():
        module_type = type(module)
        if BATCH_NORM in fusions:
            if module_type is ResNet:
                classes[module] = FusedResNet
            elif module_type is DeepLabHead:
                classes[module] = FusedDeepLabHead
            elif module_type is Bottleneck:
                classes[module] = FusedBottleneck
            if module_type in (Bottleneck, ASPP, DeepLabPlusHead):
                classes |= {part: FusedConvNorm for part in module.modules() if _is_conv_norm(part)}
        if DECODER in fusions and module_type is MlpDecoder:
            classes[module] = FusedMlpDecoder
        if isinstance(module, MixTransformer):
            if LAYER_NORM in fusions:
                classes |= _layer_norms(module)
            if BIAS in fusions:
                classes |= {part: FusedBiasLinear for part in module.modules() if type(part) is nn.Linear}
                classes |= {part: FusedBiasConv2d for part in module.modules() if type(part) is nn.Conv2d}
    return classes


def _is_conv_norm(module: nn.Module) -> bool:
    """Whether a module is a sequence that starts with a convolution and BatchNorm."""
    if not isinstance(module, nn.Sequential) or type(module).forward is not nn.Sequential.forward:
        return False
    first, second = (*module, None, None)[:2]
    return isinstance(first, nn.Conv2d) and isinstance(second, nn.BatchNorm2d)


def _layer_norms(backbone: MixTransformer) -> Replacements:
    """Return the fused classes of layer norms; in blocks and after stages, matrix products read their output."""
    classes: Replacements = {part: FusedLayerNorm for part in backbone.modules() if can_fuse_layer_norm(part)}
    for owner in (*backbone.blocks(), *(stage.layer_norm for stage in backbone.stages)):
        classes |= {part: FusedLayerNormLowPrecision for part in owner.modules() if part in classes}
    return classes
