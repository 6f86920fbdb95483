"""Triton kernels: what would otherwise pass through large tensors that need not exist.

Every kernel has a plain path with the same results, for CPUs and for GPUs that Triton does not know.
"""

from __future__ import annotations

import os
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

SWITCH = "FAIRCL_KERNELS"
"""Environment variable; 0 takes the plain paths everywhere."""


def usable(tensor: Tensor) -> bool:
    """Whether kernels run where a tensor lies: on an NVIDIA GPU that Triton knows, unless they are switched off.

    Kernels compute in float32: tensors of more bits take the plain path.
    """
    fits = tensor.device.type == "cuda" and tensor.dtype != torch.float64
    return fits and os.environ.get(SWITCH, "1") != "0" and _known(tensor.device.index or 0)


@cache
def _known(device: int) -> bool:
    nvidia = torch.version.hip is None and torch.cuda.get_device_capability(device) >= (8, 0)
    return nvidia and find_spec("triton") is not None
