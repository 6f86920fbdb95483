"""``faircl bench``: time and memory of training, compared within one run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from faircl.cli.bench_evaluation import bench_evaluation_command
from faircl.cli.bench_input import bench_input_command
from faircl.cli.bench_loss import bench_loss_command, caption_of
from faircl.cli.output import Format, Json, Output, Set, print_json
from faircl.errors import UserError
from faircl.tables import Column, Table

if TYPE_CHECKING:
    from faircl.bench.peers import Peer
    from faircl.bench.step import StepTime
    from faircl.config.run import RunConfig

app = typer.Typer(help="Time what training costs, side by side in one run.", no_args_is_help=True)
app.command("input")(bench_input_command)
app.command("loss")(bench_loss_command)
app.command("evaluation")(bench_evaluation_command)
METHODS = (("cross-entropy", "finetune"), ("FairCL", "faircl"))


Classes = Annotated[int, typer.Option(help="Channels after the step, background among them.")]
Old = Annotated[int, typer.Option(help="Channels before the step.")]
BatchSize = Annotated[int, typer.Option(help="Images per batch.")]
Side = Annotated[int, typer.Option(help="Side of an image.")]
Precision = Annotated[str, typer.Option(help="fp32, bf16 or fp16.")]
Iterations = Annotated[int, typer.Option(min=1, help="Timed updates per round.")]
Peers = Annotated[
    list[str] | None,
    typer.Option(
        "--peer", help="A plain step to compare with: eager, or compiled (minutes of compiling). May be repeated."
    ),
]
Rounds = Annotated[int, typer.Option(min=1, help="Rounds, in turn over the methods.")]


@app.callback()
def _group() -> None:
    """Time what training costs, side by side in one run."""


@app.command()
def step(
    models: Annotated[
        list[str] | None,
        typer.Option("--model", help="A network, or '{name: …, …}' with its settings. May be repeated."),
    ] = None,
    peers: Peers = None,
    classes: Classes = 151,
    old: Old = 101,
    batch: BatchSize = 24,
    size: Side = 512,
    precision: Precision = "bf16",
    iterations: Iterations = 20,
    rounds: Rounds = 3,
    settings: Set = None,
    form: Format = "terminal",
    as_json: Json = False,
) -> None:
    """Time an update by plain cross-entropy and by FairCL (assigned labels, all terms): milliseconds and peak memory.

    Images are random and already on the device; data loading is not part of it. Without --model: DeepLabV3 and
    SegFormer at the paper's size, which wants a GPU of 40 GB.

    [bold]Examples[/bold]

    faircl bench step

    faircl bench step --model '{name: segformer, variant: b0}' --batch 4 --size 128 --precision fp32

    faircl bench step --peer eager --peer compiled --json

    faircl bench step --model small --batch 8 --size 96 --precision fp32 --set method.fairness=kl --json
    """
    from faircl.bench.step import BenchSize, bench_step
    from faircl.distributed import init_process_group, launched_world_size
    from faircl.progress import ConsoleReporter
    from faircl.runs.environment import environment

    init_process_group()
    if launched_world_size() > 1:
        raise UserError("faircl bench step times one process; start it without torchrun.")
    configs = [
        _config(model, batch, size, precision, settings or [])
        for model in models or ("{name: deeplabv3, backbone: resnet101, stride: 16}", "{name: segformer, variant: b3}")
    ]
    chosen = _peers(peers or [])
    rows = bench_step(configs, METHODS, BenchSize(old, classes, iterations, rounds), ConsoleReporter(), chosen)
    used = configs[0].train  # --set may have changed them
    about = {"classes": classes, "old": old, "batch": used.batch, "size": used.crop, "precision": used.precision}
    if as_json:
        print_json({**about, "iterations": iterations, "rounds": rounds, "environment": environment()} | _json(rows))
    else:
        Output(form).table(_table(rows, about, environment()))


@app.command()
def methods(
    names: Annotated[
        list[str] | None, typer.Option("--method", help="A method to time; may be repeated. Default: all of them.")
    ] = None,
    model: Annotated[str, typer.Option(help="A network, or '{name: …, …}' with its settings.")] = (
        "{name: deeplabv3, backbone: resnet101, stride: 16}"
    ),
    peers: Peers = None,
    classes: Classes = 151,
    old: Old = 101,
    batch: BatchSize = 24,
    size: Side = 512,
    precision: Precision = "bf16",
    iterations: Iterations = 20,
    rounds: Rounds = 3,
    settings: Set = None,
    form: Format = "terminal",
    as_json: Json = False,
) -> None:
    """Time an update of every method at a later step: passes, milliseconds, peak memory, numbers kept.

    Kept are those of a copy of the old network, and of what a method carries from step to step.

    Ratios are to fine-tuning. Images are random and already on the device; what a method does once before a step is
    not part of it. Methods that need attentions are left out where the network has none. The default wants a GPU of
    40 GB.

    [bold]Examples[/bold]

    faircl bench methods

    faircl bench methods --method mib --method plop --method faircl --json

    faircl bench methods --model small --batch 8 --size 96 --precision fp32 --iterations 3
    """
    from faircl.bench.step import BenchSize, bench_step
    from faircl.distributed import init_process_group, launched_world_size
    from faircl.progress import ConsoleReporter
    from faircl.registry import METHODS as KNOWN
    from faircl.registry import MODELS
    from faircl.runs.environment import environment

    init_process_group()
    if launched_world_size() > 1:
        raise UserError("faircl bench methods times one process; start it without torchrun.")
    for name in names or ():
        if KNOWN.get(name).joint:
            raise UserError(f"Method '{name}' has no later step to time; leave it out.")
    config = _config(model, batch, size, precision, settings or [])
    attentive = MODELS.get(config.model.name).has_attentions
    fitting = [name for name in KNOWN.names() if attentive or not KNOWN.get(name).needs.attentions]
    chosen = dict.fromkeys(["finetune", *(names or (name for name in fitting if not KNOWN.get(name).joint))])
    timed = [(name, name) for name in chosen]
    plain = _peers(peers or [])
    rows = bench_step([config], timed, BenchSize(old, classes, iterations, rounds), ConsoleReporter(), plain)
    used = config.train
    about = {"classes": classes, "old": old, "batch": used.batch, "size": used.crop, "precision": used.precision}
    if as_json:
        print_json({**about, "iterations": iterations, "rounds": rounds, "environment": environment()} | _json(rows))
    else:
        Output(form).table(_table(rows, about, environment()))


def _peers(names: list[str]) -> list[Peer]:
    from faircl.bench.peers import PEERS

    for name in names:
        if name not in PEERS:
            raise UserError(f"--peer is '{name}'; expected {' or '.join(PEERS)}.")
    return [peer for peer in PEERS if peer in names]


def _config(model: str, batch: int, size: int, precision: str, settings: list[str]) -> RunConfig:
    from faircl.config.run import resolve

    # Any data and learning rate will do: images are random, and the trained network is not used.
    tree = {"data": "scenes", "model": "small", "method": "faircl", "optim": {"lr": 0.001}}
    train = {"batch": batch, "crop": size, "precision": precision}
    config = resolve(tree | {"train": train}, [f"model={model}", *settings])
    if config.method.name != "faircl":
        raise UserError(
            f"--set method.… changes FairCL's settings here, found method.name={config.method.name}; choose methods "
            "with --method of 'faircl bench methods'."
        )
    return config


def _json(rows: list[StepTime]) -> dict[str, Any]:
    return {"rows": [row.to_json() for row in rows]}


def _table(rows: list[StepTime], about: dict[str, Any], facts: dict[str, str]) -> Table:
    title = "{classes} classes, {old} of them old; batch {batch} of {size}×{size}, {precision}".format(**about)
    several = len({row.model for row in rows}) > 1
    peers = any(row.speed is not None for row in rows)
    columns = [
        *([Column("network")] if several else []),
        Column("method", wrap=False),
        Column("passes", wrap=False),
        Column("ms", 1, wrap=False),
        Column("from", 1, wrap=False, detail=True),
        Column("to", 1, wrap=False, detail=True),
        Column("images/s", 1, wrap=False),
        Column("peak GiB", wrap=False),
        Column("time", 3, kind="factor", wrap=False),
        Column("memory", 3, kind="factor", wrap=False),
        *([Column("speed", kind="factor", wrap=False)] if peers else []),
        Column("kept", wrap=False),
    ]
    cells = [
        [
            *([row.model] if several else []),
            row.method,
            row.passes,
            row.milliseconds,
            *row.spread,
            row.images_per_second,
            row.peak_gib,
            row.time_ratio,
            row.memory_ratio,
            *([row.speed] if peers else []),
            row.extra,
        ]
        for row in rows
    ]
    title = title if several else f"{rows[0].model}; {title}"
    return Table(columns, cells, title=title, caption=caption_of(facts))
