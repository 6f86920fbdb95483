"""Building the network of a run, and trying it without computing anything."""

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
    """Return the configured network, without classes yet, its weights drawn from the run's seed.

    ``pretrained`` says whether weights that the configuration names are wanted; a checkpoint would replace them.
    """
    with seeded(config.seed, "model"):
        model: Segmenter = MODELS.get(config.model.name)(config.model)
    if pretrained:
        on_rank_zero(model.load_pretrained)  # the other processes get the weights with the first step's network …
        broadcast_buffers(model)  # … but BatchNorm's statistics with it only under some releases of torch
    if config.train.checkpointing and not checkpoint_blocks(model.blocks()):
        raise UserError(
            f"train.checkpointing is set, but network '{model.name}' has no blocks to compute twice; leave it unset."
        )
    if config.train.compile and not any(True for _ in model.blocks()):
        raise UserError(f"train.compile is set, but network '{model.name}' has no blocks to compile; leave it unset.")
    return model


def place(model: Segmenter, device: torch.device) -> Segmenter:
    """Move a network to a device; on a GPU its maps have their channels side by side, as tensor cores want them."""
    fast = torch.channels_last if device.type == "cuda" else torch.preserve_format
    placed: Segmenter = model.to(device, memory_format=fast)  # type: ignore[call-overload]
    return placed


def set_training_mode(model: Segmenter, config: RunConfig, step: int) -> Segmenter:
    """Set training mode, all but parts that are frozen whole and BatchNorm whose statistics are frozen."""
    model.train()
    when, rates = config.train.frozen_norm, config.optim.parts
    everywhere = when == "always" or (when == "later" and step > 0)
    for part, factor in ((model.backbone, rates.backbone), (model.decoder, rates.decoder)):
        if factor == 0 or _frozen(part):
            part.eval()
        elif everywhere:
            for module in _norms(part):
                module.eval()
    return model


def synchronised(config: TrainConfig, device: torch.device) -> bool:
    """Whether BatchNorm is to take its statistics over the batches of all processes."""
    if config.sync_norm == "always" and device.type == "cpu":
        raise UserError("train.sync_norm is always, but SyncBatchNorm needs GPUs; set it to auto or never.")
    return config.sync_norm == "always" or (config.sync_norm == "auto" and device.type != "cpu" and world_size() > 1)


def synchronise_norm(model: Segmenter) -> Segmenter:
    """Replace every BatchNorm by SyncBatchNorm; weights and their names stay."""
    convert: Any = nn.SyncBatchNorm.convert_sync_batchnorm
    if any(type(module).__name__ == "BatchNormAct2d" for module in model.modules()):
        from timm.layers import convert_sync_batchnorm

        convert = convert_sync_batchnorm  # torch's would drop the activations inside timm's norms
    converted: Segmenter = convert(model)
    return converted


def has_local_statistics(model: Segmenter) -> bool:
    """Whether a network in training mode has BatchNorm that sees this process's share of a batch alone."""
    found = (norm for norm in _norms(model) if norm.training and not isinstance(norm, nn.SyncBatchNorm))
    return world_size() > 1 and any(True for _ in found)


def check_network(config: RunConfig, model: Segmenter, images: int | None = None) -> None:
    """Run a training batch of so many images through a copy of the network on the meta device: at no cost."""
    images = config.train.batch if images is None else images
    trial = copy.deepcopy(model)
    with seeded(0):
        trial.classifier.grow(2)
    side = config.train.crop
    try:
        set_training_mode(trial.to("meta"), config, step=0)(torch.empty(images, 3, side, side, device="meta"))
    except (ValueError, RuntimeError) as error:
        text = " ".join(str(error).split())
        raise UserError(
            f"Network '{model.name}' cannot train on batches of {images} windows of {side}x{side}: {text}; raise "
            f"train.batch{'' if 'two per process' in text else ' or train.crop'}"
            f"{', or start fewer processes' if images < config.train.batch else ''}."
        ) from None


def _frozen(part: nn.Module) -> bool:
    """Whether a method has frozen a part whole at the start of the step."""
    parameters = list(part.parameters())
    return bool(parameters) and not any(parameter.requires_grad for parameter in parameters)


def _norms(module: nn.Module) -> list[nn.Module]:
    return [part for part in module.modules() if isinstance(part, nn.modules.batchnorm._BatchNorm)]
