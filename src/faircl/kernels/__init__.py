"""Triton kernels: what would otherwise pass through large tensors that need not exist.

Every kernel has a plain path with the same results, for CPUs and for GPUs that Triton does not know.
"""

from __future__ import annotations

import os
import warnings
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

# Triton 3.9 warns until it is told whether to fuse products and sums, and 3.10 would not: kernels count on it.
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")

SWITCH = "FAIRCL_KERNELS"
"""Environment variable; 0 takes the plain paths everywhere."""


def usable(tensor: Tensor) -> bool:
    """Whether kernels run where a tensor lies: on an NVIDIA GPU that Triton knows, unless they are switched off.

    Kernels compute in float32: tensors of more bits take the plain path.
    """
    fits = tensor.device.type == "cuda" and tensor.dtype != torch.float64
    if not fits or os.environ.get(SWITCH, "1") == "0":
        return False
    here = torch.cuda.current_device()  # where Triton launches
    return tensor.device.index in (None, here) and _known(here)


@cache
def _known(device: int) -> bool:
    nvidia = torch.version.hip is None and torch.cuda.get_device_capability(device) >= (8, 0)
    return nvidia and find_spec("triton") is not None and _compiles()


def _compiles() -> bool:
    """Try a kernel: Triton needs a C compiler, which small containers lack."""
    from faircl.kernels.upsampled_logits import upsampled_argmax

    try:
        upsampled_argmax(torch.zeros((1, 2, 1, 1), device="cuda"), (2, 2))
    except Exception as error:  # whatever it is, training can do without
        warnings.warn(
            f"Triton cannot compile here, so plain torch is used, which costs time and memory: "
            f"{' '.join(str(error).split())[:200]}",
            stacklevel=2,
        )
        return False
    return True
