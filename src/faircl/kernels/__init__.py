"""Triton kernels for NVIDIA GPUs, which avoid large intermediate tensors.

Callers ask ``usable`` and have a plain torch path with the same results up to rounding, for CPUs and other GPUs.

Losses and predictions:

- ``upsampled_logits``: terms of cross-entropy and binary cross-entropy of upsampled logits, and their argmax; called by
  ``losses.pixel_scores`` (for ``losses.cross_entropy``), ``losses.binary`` and ``upsampling``.
- ``cluster``: sums of L_cluster; called by ``losses.cluster``.
- ``consistency``: sum of L_cons over pairs of pixels; called by ``losses.consistency``.

Layers:

- ``batch_norm``: BatchNorm fused with ReLU, a convolution or a residual sum; called by ``acceleration.batch_norm``.
- ``stem``: BatchNorm, ReLU and max-pooling of a ResNet's stem; called by ``acceleration.batch_norm``.
- ``layer_norm``: layer normalisation; called by ``acceleration.layer_norm``.
- ``column_sums``: gradients of biases; called by ``acceleration.bias``.
- ``add_upsampled``: sum of upsampled maps; called by ``acceleration.mlp_decoder``.

Data:

- ``resample_windows``: crops and resizes of the training windows of a batch; called by ``loading.windows``.

Shared by kernels: ``bilinear_functions`` and ``bilinear_tables`` (bilinear upsampling), ``cluster_distances`` and
``cluster_tiles`` (``cluster``), ``row_tiles`` (tiling of matrices).
"""

from __future__ import annotations

import os
import warnings
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

# The kernels rely on fused multiply-add. Triton 3.9 warns if this is unset, and 3.10 changes the default to off.
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")

SWITCH = "FAIRCL_KERNELS"
"""Environment variable; 0 disables all kernels."""


def usable(tensor: Tensor) -> bool:
    """Whether kernels can run on this tensor: on the current NVIDIA GPU, if Triton supports it and SWITCH is not 0.

    Kernels compute in float32, so float64 tensors take the plain path.
    """
    supported = tensor.device.type == "cuda" and tensor.dtype != torch.float64
    if not supported or os.environ.get(SWITCH, "1") == "0":
        return False
    current = torch.cuda.current_device()  # Triton launches kernels there
    return tensor.device.index in (None, current) and _device_supported(current)


@cache
def _device_supported(device: int) -> bool:
    nvidia = torch.version.hip is None and torch.cuda.get_device_capability(device) >= (8, 0)
    return nvidia and find_spec("triton") is not None and _compiles()


def _compiles() -> bool:
    """Whether a kernel compiles: Triton needs a C compiler, which small containers lack."""
    from faircl.kernels.upsampled_logits import upsampled_argmax

    try:
        upsampled_argmax(torch.zeros((1, 2, 1, 1), device="cuda"), (2, 2))
    except Exception as error:  # training works without kernels
        warnings.warn(
            f"Triton cannot compile here, so plain torch is used, which costs time and memory: "
            f"{' '.join(str(error).split())[:200]}",
            stacklevel=2,
        )
        return False
    return True
