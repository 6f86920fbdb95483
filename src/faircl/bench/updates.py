"""Timing of single updates on random batches: of a method at a later step, or of a plain baseline."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from typing import NamedTuple

import torch
from lightning_fabric import Fabric
from torch import Tensor

from faircl.acceleration import accelerated
from faircl.bench.peers import Peer, make_plain_update
from faircl.bench.timing import synchronized_time
from faircl.config.run import RunConfig
from faircl.engine.make_method import set_balanced_loss
from faircl.engine.network import move_to_device, set_training_mode
from faircl.engine.optim import make_optimizer, make_schedule
from faircl.engine.runtime import cudnn_benchmark, use_fused_optimizer
from faircl.engine.update import Update, Updater, delay_by_one, forward_without_grad
from faircl.errors import UserError
from faircl.labels import BACKGROUND
from faircl.loading.batch import Batch, FixedWindow
from faircl.methods.base import Method, ScannedBatch, StepContext
from faircl.models.segmenter import Segmenter
from faircl.progress import Reporter
from faircl.registry import METHODS

WARMUP_UPDATES = 8
"""Updates before the timed ones."""
WARMUP_AFTER_RESET = 3
"""How many of them follow the reset of peak memory, which also empties the cache: the first one fills it again."""
FIRST_STEP_UPDATES = 6
"""Updates of the first step, which is not timed."""
BLOCK = 16
"""Side in pixels of the squares of random labels, about the size of a small object."""


@dataclass(frozen=True)
class BenchSize:
    """Old classes, all classes, timed updates per round, and rounds; every round times all methods in turn."""

    old_classes: int = 101
    classes: int = 151
    iterations: int = 20
    rounds: int = 3

    def __post_init__(self) -> None:
        if not 2 <= self.old_classes < self.classes:
            raise UserError(
                f"A step to time needs at least two old classes and a new one, found {self.old_classes} old of "
                f"{self.classes}; background counts as one."
            )


class UpdateCost(NamedTuple):
    """Seconds per update, peak memory in bytes, forward passes per update, and numbers kept beside the network."""

    seconds: float
    peak: int
    passes: int
    extra: int


def time_peer(config: RunConfig, peer: Peer, network: Segmenter, fabric: Fabric, size: BenchSize) -> UpdateCost:
    """Time an update of a plain baseline, without its compilation."""
    batch = random_batch(config, 0, (0, size.classes), 0).to(fabric.device)
    update = make_plain_update(copy.deepcopy(network), size.classes, fabric, batch.image, batch.labels, peer)
    if peer == "compiled":
        compile_update(update)
    for number in range(WARMUP_UPDATES):
        if number == WARMUP_UPDATES - WARMUP_AFTER_RESET:
            _reset_peak(fabric.device)
        update()
    started = synchronized_time(fabric.device)
    for _ in range(size.iterations):
        update()
    seconds = (synchronized_time(fabric.device) - started) / size.iterations
    return UpdateCost(seconds, _peak(fabric.device), 1, 0)


def compile_update(update: Callable[[], Tensor]) -> None:
    """Run a compiled update once; raise a UserError if it cannot be compiled."""
    from torch._dynamo.exc import TorchDynamoException

    try:
        update()
    except (TorchDynamoException, RuntimeError) as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise
        text = " ".join(str(error).split())[:200]
        raise UserError(f"torch.compile cannot compile the plain step: {text}; leave --peer compiled out.") from None


def time_method(
    config: RunConfig, name: str, network: Segmenter, fabric: Fabric, size: BenchSize, reporter: Reporter
) -> UpdateCost:
    """Time an update of a method at a later step."""
    model = copy.deepcopy(network)
    table = METHODS.get(name)
    method: Method = table(config.method if name == config.method.name else table.Config(name=name), model)
    set_balanced_loss(method, config)
    move_to_device(model, fabric.device)
    method.to(fabric.device)
    # A short first step gives the method its old classes, prototypes and statistics.
    first = (0, size.old_classes)
    run_step(config, method, model, fabric, reporter, 0, first, FIRST_STEP_UPDATES, timed=False)
    later = (size.old_classes, size.classes)
    return run_step(config, method, model, fabric, reporter, 1, later, size.iterations, timed=True)


def run_step(
    config: RunConfig,
    method: Method,
    model: Segmenter,
    fabric: Fabric,
    reporter: Reporter,
    step: int,
    classes: tuple[int, int],
    iterations: int,
    timed: bool,
) -> UpdateCost:
    """Train a step on random batches; ``classes`` are its old classes and all classes.

    With ``timed``, warm-up updates come first: caches are filled, and FairCL's first prototypes are computed.
    """
    # A batch has all that a method may use; what it does not use costs nothing.
    batches = [random_batch(config, step, classes, seed).to(fabric.device) for seed in range(2)]
    context = _context(model, step, *classes, partial(_scan, fabric, model, batches))
    teacher = copy.deepcopy(model).eval().requires_grad_(False) if method.needs_teacher(context) else None
    model.eval().requires_grad_(True)
    method.begin_step(context)
    batches = [_with_soft_labels(batch, context) for batch in batches]
    optimizer = make_optimizer(config.optim, model, step, fused=use_fused_optimizer(config.train, fabric))
    network, optimizer = fabric.setup(model, optimizer)
    set_training_mode(model, config, step)
    warmup = max(WARMUP_UPDATES, getattr(config.method, "period", 0) + 2) if timed else 0
    total = warmup + iterations
    schedule = make_schedule(config.optim, optimizer, total)
    updater = Updater(fabric, method, network, optimizer, schedule, config.optim, teacher)
    shown, started = cycle(batches), 0.0

    def updates() -> Iterator[Update]:
        nonlocal started
        for number in range(1, total + 1):
            if number == warmup + 1 - WARMUP_AFTER_RESET:
                _reset_peak(fabric.device)
            if number == warmup + 1:
                started = synchronized_time(fabric.device)
            yield updater.update(shown, step, number)

    with (
        cudnn_benchmark(config.train),
        accelerated(model, method, config, fabric, reporter, teacher),
    ):
        for update in delay_by_one(updates()):
            update.terms()
        seconds = (synchronized_time(fabric.device) - started) / iterations  # before CUDA graphs are released
    peak = _peak(fabric.device)
    teacher_size = sum(parameter.numel() for parameter in teacher.parameters()) if teacher is not None else 0
    method.end_step(context)
    state_size = sum(value.numel() for value in method.state_dict().values())
    return UpdateCost(seconds, peak, 1 if teacher is None else 2, teacher_size + state_size)


def _scan(
    fabric: Fabric, model: Segmenter, batches: Sequence[Batch], windows: int = 0, _most: int | None = None
) -> Iterator[ScannedBatch]:
    """Scan the batches as fixed windows; there are no whole images, and always all windows."""
    for batch in batches if windows > 0 else ():
        assert batch.windows is not None, "random batches have fixed windows"
        output = forward_without_grad(fabric, model, batch.image)
        yield ScannedBatch([""] * len(batch.image), batch.labels, output, [one.number for one in batch.windows])


def _with_soft_labels(batch: Batch, context: StepContext) -> Batch:
    """Return the batch as the engine prepares it for a method that has made soft labels."""
    if context.soft is None or batch.windows is None:
        return batch
    return batch._replace(soft=context.soft.of(batch.windows, batch.image.device))


def _context(
    model: Segmenter, step: int, old: int, classes: int, scan: Callable[..., Iterator[ScannedBatch]]
) -> StepContext:
    pixels = torch.arange(1, classes + 1) * 1000  # unbalanced: the last class has ``classes`` times the first one's
    return StepContext(
        step=step,
        old_classes=old,
        classes=classes,
        background=True,
        unlabelled=BACKGROUND,
        seed=0,
        model=model,
        label_pixels=pixels,
        label_images=pixels // 1000,
        pixels=int(pixels.sum()),
        scan=scan,
    )


def random_batch(config: RunConfig, step: int, classes: tuple[int, int], seed: int) -> Batch:
    """Return noise images with labels in blocks: new classes and background; assigned labels are old classes."""
    generator = torch.Generator().manual_seed(seed)
    images, side = config.train.batch, config.train.crop
    old, known = classes

    def blocks(low: int, high: int) -> Tensor:
        coarse = torch.randint(low, high, (images, -(-side // BLOCK), -(-side // BLOCK)), generator=generator)
        return coarse.repeat_interleave(BLOCK, 1).repeat_interleave(BLOCK, 2)[:, :side, :side].contiguous()

    labels = blocks(0, known)
    if step > 0:
        labels[labels < old] = BACKGROUND
    image = torch.rand((images, 3, side, side), generator=generator)
    draws = torch.arange(images) + seed * images
    windows = tuple(FixedWindow(draw, draw % 2 == 1) for draw in draws.tolist())
    return Batch(image, labels, blocks(0, max(old, 1)), draws, windows=windows)


def _reset_peak(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


def _peak(device: torch.device) -> int:
    """Return the peak of reserved bytes; allocated bytes would leave out the private pools of CUDA graphs."""
    return torch.cuda.max_memory_reserved(device) if device.type == "cuda" else 0
