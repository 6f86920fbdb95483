"""Timing of one training step, methods side by side in one run: random images, real networks, losses and optimisers.

Nothing is read from disk: a step here is everything from a batch on the device to updated weights and prototypes. What
a method does once before a step, such as assigning labels, is not part of it.
"""

from __future__ import annotations

import copy
import gc
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import cycle
from typing import Any, NamedTuple

import torch
from lightning_fabric import Fabric
from torch import Tensor

from faircl.acceleration import accelerated
from faircl.bench.peers import Peer, make_plain_update
from faircl.config.run import RunConfig
from faircl.engine.make_method import set_balanced_loss
from faircl.engine.network import build_model, check_network, move_to_device, set_training_mode
from faircl.engine.optim import make_optimizer, make_schedule
from faircl.engine.runtime import (
    cudnn_benchmark,
    explain_out_of_memory,
    make_fabric,
    process_settings,
    use_fused_optimizer,
)
from faircl.engine.update import Update, Updater, delay_by_one
from faircl.errors import UserError
from faircl.labels import BACKGROUND
from faircl.loading.batch import Batch
from faircl.methods.base import Method, StepContext
from faircl.models.segmenter import Segmenter
from faircl.progress import Reporter
from faircl.registry import METHODS

WARM = 8
"""Updates before those that are timed."""
SETTLED = 3
"""How many of these come after all cached memory was given back: the first has to ask the device for it again."""
BLOCK = 16
"""Side of the squares that random labels are made of: about what objects are to a network's stride."""


@dataclass(frozen=True)
class StepTime:
    """What one update of a method costs, the median of the rounds; ratios are to the first method of the network.

    ``speed``: images per second over those of the plain eager step of the same run, where that was timed.
    ``passes``: forward passes per update, the old network's included. ``extra``: numbers kept beside the network at a
    later step: a copy of the old network, and what the method carries from step to step.
    """

    model: str
    method: str
    parameters: int
    milliseconds: float
    spread: tuple[float, float]
    images_per_second: float
    peak_gib: float | None
    time_ratio: float
    memory_ratio: float | None
    speed: float | None
    passes: int
    extra: int

    def to_json(self) -> dict[str, Any]:
        """Return the numbers."""
        return asdict(self)


@dataclass(frozen=True)
class BenchSize:
    """How much is timed: classes old and new, updates per round, rounds in turn over the methods."""

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


def bench_step(
    configs: Sequence[RunConfig],
    methods: Sequence[tuple[str, str]],
    size: BenchSize,
    reporter: Reporter,
    peers: Sequence[Peer] = (),
) -> list[StepTime]:
    """Time an update of a later step for every network (one configuration each) and method, and plain peers of it.

    ``methods`` are (label, name); the one that is each configuration's own takes its settings from there.
    """
    found: list[StepTime] = []
    if peers and any(config.optim.accumulate > 1 for config in configs):
        raise UserError("A plain step makes an update of every batch; leave --peer or optim.accumulate out.")
    for config in configs:
        with process_settings(config.train), explain_out_of_memory():
            fabric = make_fabric(config.train)
            network = build_model(config, pretrained=False)
            check_network(config, network)
            trials: dict[str, Callable[[], Timed]] = {
                f"plain {peer}": partial(_time_peer, config, peer, network, fabric, size) for peer in peers
            }
            trials |= {
                label: partial(_time_method, config, name, network, fabric, size, reporter) for label, name in methods
            }
            timed: dict[str, list[Timed]] = {label: [] for label in trials}
            with reporter.task(f"{_label(config)}", size.rounds * len(trials)) as task:
                for _ in range(size.rounds):
                    for label, trial in trials.items():
                        one = trial()
                        _let_go(fabric.device)
                        timed[label].append(one)
                        task.advance(f"{label} {1e3 * one.seconds:.1f} ms")
            weights = sum(p.numel() for p in network.parameters()) + size.classes * (network.embedding_width + 1)
            found += _rows(config, weights, timed, methods[0][0], fabric.device.type == "cuda")
    return found


class Timed(NamedTuple):
    """Seconds of an update, largest number of bytes in use meanwhile, forward passes, numbers kept."""

    seconds: float
    peak: int
    passes: int
    extra: int


def _rows(
    config: RunConfig, parameters: int, timed: dict[str, list[Timed]], first: str, memory: bool
) -> Iterator[StepTime]:
    base = statistics.median(one.seconds for one in timed[first])
    plain = timed.get("plain eager")
    plain_time = statistics.median(one.seconds for one in plain) if plain else None
    peaks = {label: max(one.peak for one in rounds) for label, rounds in timed.items()}
    images = config.train.batch * config.optim.accumulate
    for label, rounds in timed.items():
        times = [one.seconds for one in rounds]
        middle = statistics.median(times)
        yield StepTime(
            model=_label(config),
            method=label,
            parameters=parameters,
            milliseconds=1e3 * middle,
            spread=(1e3 * min(times), 1e3 * max(times)),
            images_per_second=images / middle,
            peak_gib=peaks[label] / 2**30 if memory else None,
            time_ratio=middle / base,
            memory_ratio=peaks[label] / peaks[first] if memory else None,
            speed=None if plain_time is None else plain_time / middle,
            passes=rounds[0].passes,
            extra=rounds[0].extra,
        )


def _time_peer(config: RunConfig, peer: Peer, network: Segmenter, fabric: Fabric, size: BenchSize) -> Timed:
    """Time an update of a plain network; compiling is not timed."""
    batch = _random_batch(config, 0, (0, size.classes), 0, assigned=False).to(fabric.device)
    update = make_plain_update(copy.deepcopy(network), size.classes, fabric, batch.image, batch.labels, peer)
    if peer == "compiled":
        _try_compiling(update)
    for number in range(WARM):
        if number == WARM - SETTLED:
            _reset_peak(fabric.device)
        update()
    started = _now(fabric.device)
    for _ in range(size.iterations):
        update()
    return Timed((_now(fabric.device) - started) / size.iterations, _peak(fabric.device), 1, 0)


def _try_compiling(update: Callable[[], Tensor]) -> None:
    from torch._dynamo.exc import TorchDynamoException

    try:
        update()
    except (TorchDynamoException, RuntimeError) as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise
        text = " ".join(str(error).split())[:200]
        raise UserError(f"torch.compile cannot do the plain step here: {text}; leave --peer compiled out.") from None


def _time_method(
    config: RunConfig, name: str, network: Segmenter, fabric: Fabric, size: BenchSize, reporter: Reporter
) -> Timed:
    """Time an update of a later step."""
    model = copy.deepcopy(network)
    table = METHODS.get(name)
    method: Method = table(config.method if name == config.method.name else table.Config(name=name), model)
    set_balanced_loss(method, config)
    device = fabric.device
    move_to_device(model, device)
    method.to(device)
    # A short first step gives the method what it takes from one: old classes, prototypes, statistics.
    _run(config, method, model, fabric, reporter, 0, (0, size.old_classes), 6, timed=False)
    later = (size.old_classes, size.classes)
    return _run(config, method, model, fabric, reporter, 1, later, size.iterations, timed=True)


def _run(
    config: RunConfig,
    method: Method,
    model: Segmenter,
    fabric: Fabric,
    reporter: Reporter,
    step: int,
    classes: tuple[int, int],
    iterations: int,
    timed: bool,
) -> Timed:
    """Make the updates of a step; the first ones, which warm up caches and wait for prototypes, are not timed."""
    context = _context(model, step, *classes)
    teacher = copy.deepcopy(model).eval().requires_grad_(False) if method.needs_teacher(context) else None
    model.eval().requires_grad_(True)
    method.begin_step(context)
    optimizer = make_optimizer(config.optim, model, step, fused=use_fused_optimizer(config.train, fabric))
    network, optimizer = fabric.setup(model, optimizer)
    set_training_mode(model, config, step)
    warm = max(WARM, getattr(config.method, "period", 0) + 2) if timed else 0
    total = warm + iterations
    updater = Updater(
        fabric, method, network, optimizer, make_schedule(config.optim, optimizer, total), config.optim, teacher
    )
    assigned = context.assigned is not None
    batches = cycle([_random_batch(config, step, classes, seed, assigned).to(fabric.device) for seed in range(2)])
    started = 0.0

    def updates() -> Iterator[Update]:
        nonlocal started
        for number in range(1, total + 1):
            if number == warm + 1 - SETTLED:
                _reset_peak(fabric.device)
            if number == warm + 1:
                started = _now(fabric.device)
            yield updater.update(batches, step, number)

    with (
        cudnn_benchmark(config.train),
        accelerated(model, method, config, fabric, reporter, teacher),
    ):
        for update in delay_by_one(updates()):
            update.terms()
        seconds = (_now(fabric.device) - started) / iterations  # giving the recording back is no part of an update
    peak = _peak(fabric.device)
    copied = sum(parameter.numel() for parameter in teacher.parameters()) if teacher is not None else 0
    method.end_step(context)
    kept = sum(value.numel() for value in method.state_dict().values())
    return Timed(seconds, peak, 1 if teacher is None else 2, copied + kept)


def _context(model: Segmenter, step: int, old: int, classes: int) -> StepContext:
    pixels = torch.arange(1, classes + 1) * 1000  # a long tail, hundred to one
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
        scan=lambda: iter(()),
    )


def _random_batch(config: RunConfig, step: int, classes: tuple[int, int], seed: int, assigned: bool) -> Batch:
    """Return noise with blocks of random labels: new classes and background; assigned ones from the old classes."""
    draw = torch.Generator().manual_seed(seed)
    images, side = config.train.batch, config.train.crop
    old, known = classes

    def blocks(low: int, high: int) -> Tensor:
        coarse = torch.randint(low, high, (images, -(-side // BLOCK), -(-side // BLOCK)), generator=draw)
        return coarse.repeat_interleave(BLOCK, 1).repeat_interleave(BLOCK, 2)[:, :side, :side].contiguous()

    labels = blocks(0, known)
    if step > 0:
        labels[labels < old] = BACKGROUND
    image = torch.rand((images, 3, side, side), generator=draw)
    draws = torch.arange(images) + seed * images
    return Batch(image, labels, blocks(0, old) if assigned else None, draws)


def _label(config: RunConfig) -> str:
    """Return the network with what was set of it."""
    chosen = config.model.model_dump(exclude_unset=True, exclude={"name", "weights"})
    words = [str(value) if key in ("backbone", "variant") else f"{key}={value}" for key, value in chosen.items()]
    return " ".join([config.model.name, *words])


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def _reset_peak(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


def _peak(device: torch.device) -> int:
    """Bytes that torch held at most: of those in use alone, what CUDA graphs keep for themselves would not be seen."""
    return torch.cuda.max_memory_reserved(device) if device.type == "cuda" else 0


def _let_go(device: torch.device) -> None:
    """Give back what the last trial held."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
