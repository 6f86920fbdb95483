"""One update of the network: forward and backward passes over its batches, then one step of the optimiser."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

import torch
from lightning_fabric import Fabric
from lightning_fabric.wrappers import _FabricModule
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler

from faircl.config.schema import OptimConfig
from faircl.distributed import global_sum, world_size
from faircl.engine.runtime import full_precision_logits
from faircl.errors import UserError
from faircl.loading.batch import Batch
from faircl.methods.base import Method, Terms
from faircl.methods.needs import Needs
from faircl.models.segmenter import SegOutput


class Update(NamedTuple):
    """An update that was made, or is still being made by a device: its learning rate, terms and measures.

    ``values`` holds the terms, then the measures, so that a device is waited for once; on their way from a GPU to the
    host until they have ``arrived``.
    """

    step: int
    iteration: int
    lr: float
    names: tuple[str, ...]
    values: Tensor
    measured: tuple[str, ...] = ()
    arrived: torch.cuda.Event | None = None

    def terms(self) -> dict[str, float]:
        """Wait for the terms alone."""
        return self.read()[0]

    def read(self) -> tuple[dict[str, float], dict[str, float]]:
        """Wait for terms and measures; stop at a term that is not finite, all processes together."""
        if self.arrived is not None:
            self.arrived.synchronize()
        values = self.values.tolist()
        terms = dict(zip(self.names, values[: len(self.names)], strict=True))
        measures = dict(zip(self.measured, values[len(self.names) :], strict=True))
        if not all(math.isfinite(value) for value in terms.values()):
            listed = ", ".join(f"{name} = {value:.6g}" for name, value in terms.items())
            raise UserError(
                f"The loss is not finite at step {self.step}, iteration {self.iteration}: {listed}; lower optim.lr, "
                "set optim.clip, or use precision fp32 or bf16. Finished steps are kept."
            )
        return terms, measures


class Updater:
    """Trains a network that Fabric has set up, by a method's losses."""

    def __init__(
        self,
        fabric: Fabric,
        method: Method,
        network: _FabricModule,
        optimizer: torch.optim.Optimizer,
        schedule: LRScheduler,
        config: OptimConfig,
        teacher: nn.Module | None = None,
    ) -> None:
        self.fabric, self.method, self.network, self.teacher = fabric, method, network, teacher
        self.optimizer, self.schedule, self.config = optimizer, schedule, config

    def update(self, batches: Iterable[Batch], step: int, iteration: int, measure: bool = False) -> Update:
        """Train on the next ``accumulate`` batches; the values are means over them and over processes.

        With ``measure`` the method's measures are taken too.
        """
        parts: list[tuple[Terms, Terms]] = []
        lr = float(self.schedule.get_last_lr()[0])
        for number, batch in enumerate(islice(batches, self.config.accumulate), 1):
            # Gradients meet those of the other processes once, after the last batch.
            with self.fabric.no_backward_sync(self.network, enabled=number < self.config.accumulate):
                parts.append(self._pass(batch, iteration, measure))
        if self.config.clip > 0:
            # Under fp16 an overflow is everyday business: the scaler skips that update.
            self.fabric.clip_gradients(
                self.network, self.optimizer, max_norm=self.config.clip, error_if_nonfinite=False
            )
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.schedule.step()
        self.method.after_update(iteration)
        terms, measures = (_means([part[k] for part in parts]) for k in (0, 1))
        values = global_sum(torch.stack([*terms.values(), *measures.values()])) / world_size()
        values, arrived = sent_to_host(values)
        return Update(step, iteration, lr, tuple(terms), values, tuple(measures), arrived)

    def _pass(self, batch: Batch, iteration: int, measure: bool) -> tuple[Terms, Terms]:
        """One forward and backward pass; return terms and measures."""
        needs = self.method.needs
        out = only_needed(self.network(batch.image, attentions=needs.attentions), needs)
        old = None
        if self.teacher is not None:
            old = only_needed(without_gradient(self.fabric, self.teacher, batch.image, needs.attentions), needs)
        with torch.no_grad():
            targets = self.method.targets(batch, out, old)
        terms = self.method.losses(batch, out, old, targets)
        self.fabric.backward(torch.stack(list(terms.values())).sum() / self.config.accumulate)
        measures: Terms = {}
        if measure:
            with torch.no_grad():
                measures = self.method.measures(batch, out, old, targets)
        self.method.observe(batch, out, targets, iteration)
        return {name: value.detach() for name, value in terms.items()}, measures


def only_needed(output: SegOutput, needs: Needs) -> SegOutput:
    """Leave out stages that a method does not declare: a replayed network has none, so no other may show them."""
    return output if needs.stages else output._replace(stages=())


def sent_to_host(values: Tensor) -> tuple[Tensor, torch.cuda.Event | None]:
    """Send values to the host: who reads them then waits for them alone, and not for what comes after them."""
    if values.device.type != "cuda":
        return values, None
    host = torch.empty_like(values, device="cpu", pin_memory=True).copy_(values, non_blocking=True)
    arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
    arrived.record()
    return host, arrived


def _means(parts: list[Terms]) -> Terms:
    """Average every value over batches."""
    return {name: torch.stack([part[name] for part in parts]).mean() for name in parts[0]}


def without_gradient(fabric: Fabric, model: nn.Module, image: Tensor, attentions: bool = False) -> SegOutput:
    """Run a network in the run's precision, outside Fabric's wrapping; the output is as with it."""
    with torch.no_grad(), fabric.autocast():
        out: SegOutput = model(image, attentions=attentions)
    return full_precision_logits(out)


def one_behind(updates: Iterable[Update]) -> Iterator[Update]:
    """Yield every update once the next one is under way: reading its values then keeps no device waiting."""
    held = None
    for update in updates:
        if held is not None:
            yield held
        held = update
    if held is not None:
        yield held
