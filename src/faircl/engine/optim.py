"""Optimisers with learning rates per part of the network, and learning-rate schedules."""

from __future__ import annotations

import math
from collections import defaultdict

import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

from faircl.config.schema import OptimConfig
from faircl.models.segmenter import ParameterGroup, Segmenter


def make_optimizer(
    config: OptimConfig, model: Segmenter, step: int, fused: bool | None = None
) -> torch.optim.Optimizer:
    """Return a new optimiser for a step; ``fused`` selects torch's fused implementation.

    Parts with a factor of zero are frozen. Parameters that the method froze in ``begin_step`` stay frozen.
    """
    lr = config.lr if step == 0 or config.later_lr is None else config.later_lr
    parts: dict[ParameterGroup, list[nn.Parameter]] = defaultdict(list)
    for part, parameter in model.parameter_groups():
        parts[part].append(parameter)
    if sum(map(len, parts.values())) != len(list(model.parameters())):
        raise ValueError(
            f"network '{model.name}' has parameters that its parameter_groups() leaves out; they would never be trained"
        )
    groups = []
    for part, parameters in parts.items():
        factor = getattr(config.part_rates(step), part)
        if factor == 0:
            for parameter in parameters:
                parameter.requires_grad_(False)
        trainable = [parameter for parameter in parameters if parameter.requires_grad]
        if trainable:
            groups.append({"params": trainable, "lr": lr * factor, "name": part})
    if config.name == "adamw":
        return torch.optim.AdamW(groups, betas=config.betas, weight_decay=config.weight_decay, fused=fused)
    nesterov = config.nesterov and config.momentum > 0
    return torch.optim.SGD(
        groups, momentum=config.momentum, weight_decay=config.weight_decay, nesterov=nesterov, fused=fused
    )


def make_schedule(config: OptimConfig, optimizer: torch.optim.Optimizer, iterations: int, done: int = 0) -> LambdaLR:
    """Return the learning-rate schedule over a step's iterations, ``done`` of which are behind."""
    for group in optimizer.param_groups:
        group.setdefault("initial_lr", group["lr"])
    return LambdaLR(optimizer, lambda number: lr_factor(config, number, iterations), last_epoch=done - 1)


def lr_factor(config: OptimConfig, done: int, iterations: int) -> float:
    """Factor of the learning rate after ``done`` updates.

    Warm-up of W updates: (done + 1) / W. Then, with x = (done − W) / (iterations − W): poly (1 − x)^power, cosine
    (1 + cos πx) / 2, constant 1.
    """
    if done < config.warmup:
        return (done + 1) / config.warmup
    x = min((done - config.warmup) / max(iterations - config.warmup, 1), 1.0)
    if config.schedule == "poly":
        return float((1 - x) ** config.power)
    return (1 + math.cos(math.pi * x)) / 2 if config.schedule == "cosine" else 1.0
