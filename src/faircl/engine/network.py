"""Building the network of a run, and trying it without computing anything."""

from __future__ import annotations

import copy

import torch
from torch import nn

from faircl.config import RunConfig
from faircl.errors import UserError
from faircl.models.segmenter import Segmenter
from faircl.registry import MODELS
from faircl.seeding import seeded


def build_model(config: RunConfig) -> Segmenter:
    """Return the configured network, without classes yet, its weights drawn from the run's seed."""
    with seeded(config.seed, "model"):
        model: Segmenter = MODELS.get(config.model.name)(config.model)
    return model


def set_training_mode(model: Segmenter, config: RunConfig, step: int) -> Segmenter:
    """Set training mode, all but BatchNorm's of parts that are frozen whole or in their statistics."""
    model.train()
    when, rates = config.train.frozen_norm, config.optim.parts
    everywhere = when == "always" or (when == "later" and step > 0)
    for part, factor in ((model.backbone, rates.backbone), (model.decoder, rates.decoder)):
        for module in part.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm) and (everywhere or factor == 0):
                module.eval()
    return model


def check_network(config: RunConfig, model: Segmenter) -> None:
    """Run a training batch through a copy of the network on the meta device: shapes alone, at no cost."""
    trial = copy.deepcopy(model)
    with seeded(0):
        trial.classifier.grow(2)
    side = config.train.crop
    try:
        set_training_mode(trial.to("meta"), config, step=0)(
            torch.empty(config.train.batch, 3, side, side, device="meta")
        )
    except (ValueError, RuntimeError) as error:
        raise UserError(
            f"Network '{model.name}' cannot train on batches of {config.train.batch} windows of {side}x{side}: "
            f"{' '.join(str(error).split())}; raise train.batch or train.crop."
        ) from None
