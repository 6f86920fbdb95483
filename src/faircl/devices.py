"""Whether the machine has the device that a configuration asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from faircl.errors import UserError

if TYPE_CHECKING:
    from faircl.config.schema import TrainConfig


def check_device(config: TrainConfig) -> bool:
    """Return whether a run trains on a GPU; raise a UserError if it wants one and there is none."""
    import torch

    cuda = torch.cuda.is_available()
    if config.accelerator == "cuda" and not cuda:
        raise UserError(
            "train.accelerator is cuda, but torch sees no GPU; set it to cpu or auto (see 'faircl doctor' for details)."
        )
    on_gpu = cuda and config.accelerator != "cpu"
    if config.precision == "fp16" and not on_gpu:
        raise UserError("train.precision fp16 needs a GPU; on a CPU use bf16 or fp32.")
    return on_gpu
