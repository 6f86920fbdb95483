"""One update of the network: forward and backward passes over its micro-batches, then one optimiser step."""

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
    """An update: its learning rate, loss terms and measures. On a GPU it may still be running.

    ``values`` holds the terms followed by the measures, in one tensor on the host, so that one copy from the GPU is
    enough; they are valid once the event ``copied`` has happened (None: at once).
    """

    step: int
    iteration: int
    lr: float
    term_names: tuple[str, ...]
    values: Tensor
    measure_names: tuple[str, ...] = ()
    copied: torch.cuda.Event | None = None

    def terms(self) -> dict[str, float]:
        """Return the terms, after waiting for them."""
        return self.read()[0]

    def read(self) -> tuple[dict[str, float], dict[str, float]]:
        """Return terms and measures, after waiting for them; raise a UserError if a term is not finite.

        Values are the same on all processes, so all of them raise it.
        """
        if self.copied is not None:
            self.copied.synchronize()
        values, count = self.values.tolist(), len(self.term_names)
        terms = dict(zip(self.term_names, values[:count], strict=True))
        measures = dict(zip(self.measure_names, values[count:], strict=True))
        if not all(math.isfinite(value) for value in terms.values()):
            listed = ", ".join(f"{name} = {value:.6g}" for name, value in terms.items())
            raise UserError(
                f"The loss is not finite at step {self.step}, iteration {self.iteration}: {listed}; lower optim.lr, "
                "set optim.clip, or use precision fp32 or bf16. Finished steps are kept."
            )
        return terms, measures


class Updater:
    """Updates a network that Fabric has set up, with the losses of a method."""

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
        """Train on the next ``optim.accumulate`` batches; values are means over them and over processes.

        ``measure`` also computes the method's measures.
        """
        results: list[tuple[Terms, Terms]] = []
        lr = float(self.schedule.get_last_lr()[0])
        for number, batch in enumerate(islice(batches, self.config.accumulate), 1):
            # DDP reduces the gradients over processes once, after the last batch.
            with self.fabric.no_backward_sync(self.network, enabled=number < self.config.accumulate):
                results.append(self._forward_backward(batch, iteration, measure))
        if self.config.clip > 0:
            # Under fp16 gradients may overflow; the scaler then skips the update.
            self.fabric.clip_gradients(
                self.network, self.optimizer, max_norm=self.config.clip, error_if_nonfinite=False
            )
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.schedule.step()
        self.method.after_update(iteration)
        terms, measures = (_means([result[k] for result in results]) for k in (0, 1))
        values = global_sum(torch.stack([*terms.values(), *measures.values()])) / world_size()
        values, copied = copy_to_host_async(values)
        return Update(step, iteration, lr, tuple(terms), values, tuple(measures), copied)

    def _forward_backward(self, batch: Batch, iteration: int, measure: bool) -> tuple[Terms, Terms]:
        """Run the forward and backward pass of one batch; return terms and measures."""
        needs = self.method.needs
        out = drop_undeclared_stages(self.network(batch.image, attentions=needs.attentions), needs)
        old = None
        if self.teacher is not None:
            old = forward_without_grad(self.fabric, self.teacher, batch.image, needs.attentions)
            old = drop_undeclared_stages(old, needs)
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


def drop_undeclared_stages(output: SegOutput, needs: Needs) -> SegOutput:
    """Return the output without stages if the method does not declare them, as under CUDA graphs."""
    return output if needs.stages else output._replace(stages=())


def copy_to_host_async(values: Tensor) -> tuple[Tensor, torch.cuda.Event | None]:
    """Start a copy to the host; return the copy and the CUDA event of its end.

    Waiting for the event does not wait for work that is queued on the GPU after it. Tensors on a CPU are returned as
    they are, with None.
    """
    if values.device.type != "cuda":
        return values, None
    host = torch.empty_like(values, device="cpu", pin_memory=True).copy_(values, non_blocking=True)
    copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
    copied.record()
    return host, copied


def _means(results: list[Terms]) -> Terms:
    """Average every value over batches."""
    return {name: torch.stack([result[name] for result in results]).mean() for name in results[0]}


def forward_without_grad(fabric: Fabric, model: nn.Module, image: Tensor, attentions: bool = False) -> SegOutput:
    """Run a network that Fabric has not wrapped, in the run's precision and without gradients."""
    with torch.no_grad(), fabric.autocast():
        out: SegOutput = model(image, attentions=attentions)
    return full_precision_logits(out)


def delay_by_one(updates: Iterable[Update | None]) -> Iterator[Update]:
    """Yield each update after the next one has been issued, so that the GPU has work while its values are read.

    None in the place of the next update lets the values be read at once.
    """
    previous = None
    for update in updates:
        if previous is not None:
            yield previous
        previous = update
    if previous is not None:
        yield previous
