"""Timing of a training step, all methods in one run, with random images and real networks, losses and optimisers.

A step is everything from a batch on the device to updated weights and prototypes. Reading data, and what a method does
once before a step, such as assigning labels, are not included.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from faircl.bench.peers import Peer
from faircl.bench.timing import BenchRow, free_memory
from faircl.bench.updates import BenchSize, UpdateCost, time_method, time_peer
from faircl.config.run import RunConfig
from faircl.engine.network import build_model, check_network
from faircl.engine.runtime import explain_out_of_memory, make_fabric, process_settings
from faircl.errors import UserError
from faircl.progress import Reporter


@dataclass(frozen=True)
class StepTime(BenchRow):
    """Cost of one update of a method, median over rounds; ratios are to the first method of the network.

    ``speed``: images per second over those of the plain eager step, if that was timed. ``passes``: forward passes per
    update, the old network's included. ``extra``: numbers kept beside the network at a later step, in a copy of the
    old network and in the method's state.
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


def bench_step(
    configs: Sequence[RunConfig],
    methods: Sequence[tuple[str, str]],
    size: BenchSize,
    reporter: Reporter,
    peers: Sequence[Peer] = (),
) -> list[StepTime]:
    """Time an update at a later step for every network (one configuration each), method and plain baseline.

    ``methods`` are pairs (label, name). A method that a configuration names takes its settings from there.
    """
    rows: list[StepTime] = []
    if peers and any(config.optim.accumulate > 1 for config in configs):
        raise UserError("A plain step makes an update of every batch; leave --peer or optim.accumulate out.")
    for config in configs:
        with process_settings(config.train), explain_out_of_memory():
            fabric = make_fabric(config.train)
            network = build_model(config, pretrained=False)
            check_network(config, network)
            trials: dict[str, Callable[[], UpdateCost]] = {
                f"plain {peer}": partial(time_peer, config, peer, network, fabric, size) for peer in peers
            }
            trials |= {
                label: partial(time_method, config, name, network, fabric, size, reporter) for label, name in methods
            }
            costs: dict[str, list[UpdateCost]] = {label: [] for label in trials}
            with reporter.task(network_label(config), size.rounds * len(trials)) as task:
                for _ in range(size.rounds):
                    for label, trial in trials.items():
                        cost = trial()
                        free_memory(fabric.device)
                        costs[label].append(cost)
                        task.advance(f"{label} {1e3 * cost.seconds:.1f} ms")
            weights = sum(p.numel() for p in network.parameters()) + size.classes * (network.embedding_width + 1)
            rows += _rows(config, weights, costs, methods[0][0], fabric.device.type == "cuda")
    return rows


def _rows(
    config: RunConfig, parameters: int, costs: dict[str, list[UpdateCost]], first: str, memory: bool
) -> Iterator[StepTime]:
    """Summarise the rounds of every method; ratios are to ``first``, memory is None unless it was measured."""
    medians = {label: statistics.median(cost.seconds for cost in rounds) for label, rounds in costs.items()}
    peaks = {label: max(cost.peak for cost in rounds) for label, rounds in costs.items()}
    plain = medians.get("plain eager")
    images = config.train.batch * config.optim.accumulate
    for label, rounds in costs.items():
        times = [cost.seconds for cost in rounds]
        yield StepTime(
            model=network_label(config),
            method=label,
            parameters=parameters,
            milliseconds=1e3 * medians[label],
            spread=(1e3 * min(times), 1e3 * max(times)),
            images_per_second=images / medians[label],
            peak_gib=peaks[label] / 2**30 if memory else None,
            time_ratio=medians[label] / medians[first],
            memory_ratio=peaks[label] / peaks[first] if memory else None,
            speed=None if plain is None else plain / medians[label],
            passes=rounds[0].passes,
            extra=rounds[0].extra,
        )


def network_label(config: RunConfig) -> str:
    """Return the network's name with the settings that were given: "deeplabv3 resnet101 stride=16"."""
    given = config.model.model_dump(exclude_unset=True, exclude={"name", "weights"})
    words = [str(value) if key in ("backbone", "variant") else f"{key}={value}" for key, value in given.items()]
    return " ".join([config.model.name, *words])
