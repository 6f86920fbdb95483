"""Building the network of a run, its training mode, BatchNorm across processes, and a check of shapes."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from faircl.config.run import RunConfig
from faircl.config.schema import TrainConfig
from faircl.distributed import broadcast_buffers, on_rank_zero, world_size
from faircl.errors import UserError
from faircl.models.checkpointing import checkpoint_blocks
from faircl.models.segmenter import Segmenter
from faircl.registry import MODELS
from faircl.seeding import seeded


def build_model(config: RunConfig, pretrained: bool = True) -> Segmenter:
    """Return the configured network without classes, its weights initialised from the run's seed.

    ``pretrained`` loads the weights that the configuration names; not needed if a checkpoint is loaded afterwards.
    """
    with seeded(config.seed, "model"):
        model: Segmenter = MODELS.get(config.model.name)(config.model)
    if pretrained:
        on_rank_zero(model.load_pretrained)  # DDP copies the weights to the other processes
        broadcast_buffers(model)  # only some releases of torch copy BatchNorm's statistics, too
    if config.train.checkpointing and not checkpoint_blocks(model.blocks()):
        raise UserError(
            f"train.checkpointing is set, but network '{model.name}' has no blocks to checkpoint; leave it unset."
        )
    if config.train.compile and not any(True for _ in model.blocks()):
        raise UserError(f"train.compile is set, but network '{model.name}' has no blocks to compile; leave it unset.")
    return model


def move_to_device(model: Segmenter, device: torch.device) -> Segmenter:
    """Move a network to a device; on a GPU to the channels_last format, which tensor cores need."""
    memory_format = torch.channels_last if device.type == "cuda" else torch.preserve_format
    moved: Segmenter = model.to(device, memory_format=memory_format)  # type: ignore[call-overload]
    return moved


def set_training_mode(model: Segmenter, config: RunConfig, step: int) -> Segmenter:
    """Set training mode; frozen parts and BatchNorm with frozen statistics are set to evaluation mode."""
    model.train()
    when, rates = config.train.frozen_norm, config.optim.part_rates(step)
    freeze_norm = when == "always" or (when == "later" and step > 0)
    for part, factor in ((model.backbone, rates.backbone), (model.decoder, rates.decoder)):
        if factor == 0 or _frozen(part):
            part.eval()
        elif freeze_norm:
            for module in batch_norms(part):
                module.eval()
    return model


def use_sync_batch_norm(config: TrainConfig, device: torch.device) -> bool:
    """Whether ``train.sync_norm`` asks for BatchNorm statistics over all processes; auto does so on several GPUs."""
    if config.sync_norm == "always" and device.type == "cpu":
        raise UserError("train.sync_norm is always, but SyncBatchNorm needs GPUs; set it to auto or never.")
    return config.sync_norm == "always" or (config.sync_norm == "auto" and device.type != "cpu" and world_size() > 1)


def convert_sync_batch_norm(model: Segmenter) -> Segmenter:
    """Replace every BatchNorm by SyncBatchNorm; the state dict stays the same."""
    convert: Any = nn.SyncBatchNorm.convert_sync_batchnorm
    if any(type(module).__name__ == "BatchNormAct2d" for module in model.modules()):
        from timm.layers import convert_sync_batchnorm

        convert = convert_sync_batchnorm  # torch's own conversion drops the activation inside BatchNormAct2d
    converted: Segmenter = convert(model)
    return converted


def has_unsynchronised_batch_norm(model: Segmenter) -> bool:
    """Whether, with several processes, a BatchNorm in training mode computes its statistics per process."""
    found = (norm for norm in batch_norms(model) if norm.training and not isinstance(norm, nn.SyncBatchNorm))
    return world_size() > 1 and any(True for _ in found)


def check_network(config: RunConfig, model: Segmenter, images: int | None = None) -> int:
    """Check the shapes of a training batch of ``images`` (default: ``train.batch``) on torch's meta device.

    Raises a UserError if the network cannot train on them. Nothing is computed and the network is not changed. Returns
    the cells h·w of a window at network stride.
    """
    images = config.train.batch if images is None else images
    trial = copy.deepcopy(model)
    with seeded(0):
        trial.classifier.grow(2)
    side = config.train.crop
    try:
        out = set_training_mode(trial.to("meta"), config, step=0)(torch.empty(images, 3, side, side, device="meta"))
    except (ValueError, RuntimeError) as error:
        text = " ".join(str(error).split())
        raise UserError(
            f"Network '{model.name}' cannot train on batches of {images} windows of {side}x{side}: {text}; raise "
            f"train.batch{'' if 'two per process' in text else ' or train.crop'}"
            f"{', or start fewer processes' if images < config.train.batch else ''}."
        ) from None
    return int(out.logits.shape[-2] * out.logits.shape[-1])


def batch_norms(module: nn.Module) -> list[nn.Module]:
    """Return all BatchNorm layers of a module, SyncBatchNorm included."""
    return [part for part in module.modules() if isinstance(part, nn.modules.batchnorm._BatchNorm)]


def _frozen(part: nn.Module) -> bool:
    """Whether the method froze all parameters of a part in ``begin_step``."""
    parameters = list(part.parameters())
    return bool(parameters) and not any(parameter.requires_grad for parameter in parameters)
