"""The state of a step between two updates: taking it, and continuing from it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor

from faircl.distributed import all_gather_objects, rank, world_size
from faircl.loading.batch import Batch
from faircl.methods.base import Method, StepContext
from faircl.methods.state import load_method_state, method_state
from faircl.models.segmenter import Segmenter
from faircl.runs.in_step import InStepState, ValidationState


def capture(
    context: StepContext,
    iteration: int,
    method: Method,
    optimizer: torch.optim.Optimizer,
    fabric: Fabric,
    validation: ValidationState,
    seconds: float,
) -> InStepState:
    """Return the state of a step between two updates; all processes call it."""
    return InStepState(
        step=context.step,
        iteration=iteration,
        model=context.model.state_dict(),
        method=method_state(method),
        optimizer=optimizer.state_dict()["state"],
        scaler=fabric.strategy.precision.state_dict(),
        processes=all_gather_objects(_own_state(context.model, fabric.device)),
        assigned=context.assigned,
        validation=validation,
        seconds=seconds,
    )


def begin_again(method: Method, context: StepContext, state: InStepState) -> None:
    """Repeat ``begin_step``, then load the state of network and method.

    Whole images are not scanned again: what comes of them is part of the state. Fixed windows are, since their soft
    labels are too large for checkpoints; the same network gives the same ones.
    """
    scan = context.scan
    context.scan = lambda windows=0, most=None: scan(windows, most) if windows > 0 else iter(())
    method.begin_step(context)
    context.scan = scan
    context.model.load_state_dict(state.model)
    own = state.processes[rank()] if rank() < len(state.processes) else {}
    for name, buffer in context.model.named_buffers():
        if f"buffer.{name}" in own:
            buffer.copy_(own[f"buffer.{name}"])
    load_method_state(method, state.method)
    method.to(context.model.mean.device)
    context.assigned = state.assigned


def load_optimizer(optimizer: torch.optim.Optimizer, fabric: Fabric, state: InStepState) -> None:
    """Load the state of an optimiser that was made for the same step, and of the loss scaler of fp16."""
    groups: list[dict[str, Any]] = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": dict(state.optimizer), "param_groups": groups})
    for parameter, entry in optimizer.state.items():
        for name, value in entry.items():
            if isinstance(value, Tensor) and value.shape == parameter.shape:
                # Fused optimisers need the memory layout of the parameter; files have the plain one.
                entry[name] = torch.empty_like(parameter, dtype=value.dtype).copy_(value)
    fabric.strategy.precision.load_state_dict(dict(state.scaler))


def continue_generators(batches: Iterator[Batch], state: InStepState, device: torch.device) -> Iterator[Batch]:
    """Return the same batches, with the random generators in the state of the checkpoint.

    The first batch is made before: a new data loader draws from the generators.
    """
    first = list(islice(batches, 1))
    if rank() < len(state.processes):  # a process that was not there keeps the generators of its seed
        own = state.processes[rank()]
        torch.set_rng_state(own["generator"])
        if device.type == "cuda" and "generator.cuda" in own:
            torch.cuda.set_rng_state(own["generator.cuda"], device)
    return chain(first, batches)


def _own_state(model: Segmenter, device: torch.device) -> dict[str, Tensor]:
    """Return what differs between processes: random generators, and running statistics that are not synchronised."""
    own = {"generator": torch.get_rng_state()}
    if device.type == "cuda":
        own["generator.cuda"] = torch.cuda.get_rng_state(device)
    if world_size() > 1:
        own |= {f"buffer.{name}": buffer.detach().cpu() for name, buffer in model.named_buffers()}
    return own
