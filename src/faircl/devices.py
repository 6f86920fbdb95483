"""Whether the machine has the device that is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from faircl.errors import UserError

if TYPE_CHECKING:
    import torch

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


def torch_device(name: str | torch.device) -> torch.device:
    """Return a device by name, "auto" for a GPU where there is one; raise a UserError if it is not there."""
    import torch

    cuda = torch.cuda.is_available()
    if name == "auto":
        return torch.device("cuda" if cuda else "cpu")
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError):
        raise UserError(f"Unknown device {name!r}; expected auto, cpu, cuda or cuda:N.") from None
    if device.type == "cuda" and not (cuda and (device.index or 0) < torch.cuda.device_count()):
        raise UserError(
            f"The device {name} is not there: torch sees {torch.cuda.device_count()} GPUs; use device='cpu' or 'auto'."
        )
    return device
