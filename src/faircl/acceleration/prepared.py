"""A copy of a network that is prepared for inference on a GPU: results equal up to rounding.

The copy shares all tensors with the network that are not replaced. Replaced are

- weights of an all-MLP decoder, which are otherwise multiplied for every batch, with those of its norm;
- for half precision, weights of convolutions and linear layers: autocast would cast them for every batch.

BatchNorm is not folded into convolutions: torch adds a convolution's bias in a pass of its own over the map, which
costs what the norm costs, and the fused kernels of recorded passes do norm, ReLU and residual sum in one pass.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from faircl.acceleration.fusion import replacements
from faircl.acceleration.mlp_decoder import fix_weights
from faircl.acceleration.relative_error import relative_error
from faircl.models.mlp_decoder import MlpDecoder
from faircl.models.segmenter import Segmenter

SIDE = 64
"""Side of the random image that the copy is tried on."""
TOLERANCE = 1e-2
"""Largest relative error ‖a − b‖ / ‖b‖ of the copy, whose products may round to TF32, beyond twice the error of the
network itself in float16; a wrong copy errs by the order of one."""


@torch.no_grad()
def prepared(network: Segmenter, half: bool) -> Segmenter | None:
    """Return a copy for evaluation, with fused modules on a GPU; the network itself does not change.

    A copy whose results differ on a random image, or that fails, is replaced by one without the preparations; None if
    the network cannot be copied. ``half``: the copy is called under float16 autocast.
    """
    try:
        plain = _shared_copy(network)
    except Exception:  # it holds a lock, for example, or a tensor with a gradient
        return None
    try:
        copied = _improved(plain, half)
    except Exception:  # networks of others may fail in any way; then they run as they are
        copied = plain
    if network.mean.device.type == "cuda":
        for module, new_class in replacements(copied).items():
            module.__class__ = new_class
    return copied


def half_precision(device: torch.device, half: bool) -> torch.autocast:
    """Return float16 autocast if ``half``; without its cache, since the weights of a prepared copy are cast already."""
    return torch.autocast(device.type, torch.float16, enabled=half, cache_enabled=False)


def _improved(plain: Segmenter, half: bool) -> Segmenter:
    """Return a prepared copy of a network in evaluation mode, or the network itself if results differ."""
    made = _shared_copy(plain)
    for module in made.modules():
        if type(module) is MlpDecoder:
            fix_weights(module, torch.float16 if half else module.fuse.weight.dtype)
    if half:
        _to_half(module for part in (made.backbone, made.decoder) for module in part.modules())
    random = torch.rand((1, 3, SIDE, SIDE), generator=torch.Generator().manual_seed(0))
    return made if _equal(made, plain, random.to(plain.mean), half) else plain


def _shared_copy(network: Segmenter) -> Segmenter:
    """Return a copy in evaluation mode whose parameters and buffers are the network's own tensors."""
    tensors = {id(tensor): tensor for tensor in (*network.parameters(), *network.buffers())}
    return copy.deepcopy(network, tensors).eval()


def _to_half(modules: Iterable[nn.Module]) -> None:
    """Replace the parameters of convolutions and linear layers by float16 ones."""
    for module in modules:
        if type(module) not in (nn.Conv2d, nn.Linear):
            continue
        for name, value in module.named_parameters(recurse=False):
            setattr(module, name, nn.Parameter(value.half(), requires_grad=False))


def _equal(made: Segmenter, plain: Segmenter, image: Tensor, half: bool) -> bool:
    """Whether a copy's logits and embedding are those of a network up to rounding."""
    exact = _outputs(plain, image, False)
    error, bound = relative_error(_outputs(made, image, half), exact), TOLERANCE
    if half:
        bound += 2 * relative_error(_outputs(plain, image, True), exact)
    return error <= bound  # False for NaN


def _outputs(network: Segmenter, image: Tensor, half: bool) -> tuple[Tensor, Tensor]:
    with half_precision(image.device, half):
        output = network(image)
    return output.logits.double(), output.embedding.double()
