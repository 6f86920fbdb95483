"""``faircl bench``: time and memory of training, compared within one run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from faircl.cli.bench_common import caption, require_single_process
from faircl.cli.bench_evaluation import bench_evaluation_command
from faircl.cli.bench_input import bench_input_command
from faircl.cli.bench_loss import bench_loss_command
from faircl.cli.output import Format, Json, Output, Set, print_json
from faircl.errors import UserError
from faircl.tables import Column, Table, TableFormat

if TYPE_CHECKING:
    from faircl.bench.peers import Peer
    from faircl.bench.step import StepTime
    from faircl.bench.updates import BenchSize
    from faircl.config.run import RunConfig

app = typer.Typer(help="Time the parts of training, side by side in one run.", no_args_is_help=True)
app.command("input")(bench_input_command)
app.command("loss")(bench_loss_command)
app.command("evaluation")(bench_evaluation_command)
DEEPLAB, SEGFORMER = "{name: deeplabv3, backbone: resnet101, stride: 16}", "{name: segformer, variant: b3}"
METHODS = (("cross-entropy", "finetune"), ("FairCL", "faircl"))


Classes = Annotated[int, typer.Option(help="Channels after the step, background included.")]
Old = Annotated[int, typer.Option(help="Channels before the step.")]
BatchSize = Annotated[int, typer.Option(help="Images per batch.")]
Side = Annotated[int, typer.Option(help="Side of an image.")]
Precision = Annotated[str, typer.Option(help="fp32, bf16 or fp16.")]
Iterations = Annotated[int, typer.Option(min=1, help="Timed updates per round.")]
Peers = Annotated[
    list[str] | None,
    typer.Option(
        "--peer",
        help="A step in plain torch to compare with: eager, or compiled (compiling takes minutes). May be repeated.",
    ),
]
Rounds = Annotated[int, typer.Option(min=1, help="Rounds; each times all methods in turn.")]


@app.callback()
def _group() -> None:
    """Time the parts of training, side by side in one run."""


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
    """Time an update by plain cross-entropy and by FairCL, the default: milliseconds and peak memory.

    Images are random and already on the device; data loading is not included. Without --model: DeepLabV3 and SegFormer
    at the paper's size, which needs a GPU of 40 GB.

    [bold]Examples[/bold]

    faircl bench step

    faircl bench step --model '{name: segformer, variant: b0}' --batch 4 --size 128 --precision fp32

    faircl bench step --peer eager --peer compiled --json

    faircl bench step --model small --batch 8 --size 96 --precision fp32 --set method.fairness=kl --json
    """
    from faircl.bench.updates import BenchSize

    require_single_process("step")
    configs = [_config(model, batch, size, precision, settings or []) for model in models or (DEEPLAB, SEGFORMER)]
    _time_and_print(configs, METHODS, _parse_peers(peers), BenchSize(old, classes, iterations, rounds), form, as_json)


@app.command()
def methods(
    names: Annotated[
        list[str] | None, typer.Option("--method", help="A method to time; may be repeated. Default: all methods.")
    ] = None,
    model: Annotated[str, typer.Option(help="A network, or '{name: …, …}' with its settings.")] = DEEPLAB,
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

    Numbers kept are those of a copy of the old network and of the state that a method carries from step to step.

    Ratios are to fine-tuning. Images are random and already on the device; work that a method does once before a step
    is not included. Methods that need attentions are left out if the network has none. The defaults need a GPU of
    40 GB.

    [bold]Examples[/bold]

    faircl bench methods

    faircl bench methods --method mib --method plop --method faircl --json

    faircl bench methods --model small --batch 8 --size 96 --precision fp32 --iterations 3
    """
    from faircl.bench.updates import BenchSize
    from faircl.registry import METHODS as KNOWN
    from faircl.registry import MODELS

    require_single_process("methods")
    for name in names or ():
        if KNOWN.get(name).joint:
            raise UserError(f"Method '{name}' has no later step to time; leave it out.")
    config = _config(model, batch, size, precision, settings or [])
    attentions = MODELS.get(config.model.name).has_attentions
    usable = [name for name in KNOWN.names() if attentions or not KNOWN.get(name).needs.attentions]
    chosen = dict.fromkeys(["finetune", *(names or (name for name in usable if not KNOWN.get(name).joint))])
    pairs = tuple((name, name) for name in chosen)
    _time_and_print([config], pairs, _parse_peers(peers), BenchSize(old, classes, iterations, rounds), form, as_json)


def _time_and_print(
    configs: list[RunConfig],
    methods: tuple[tuple[str, str], ...],
    peers: list[Peer],
    size: BenchSize,
    form: TableFormat,
    as_json: bool,
) -> None:
    from faircl.bench.step import bench_step
    from faircl.progress import ConsoleReporter
    from faircl.runs.environment import environment

    rows = bench_step(configs, methods, size, ConsoleReporter(), peers)
    train = configs[0].train  # with the values of --set
    sizes: dict[str, Any] = {"classes": size.classes, "old": size.old_classes}
    sizes |= {"batch": train.batch, "size": train.crop, "precision": train.precision}
    if as_json:
        counts = {"iterations": size.iterations, "rounds": size.rounds}
        print_json({**sizes, **counts, "environment": environment(), "rows": [row.to_json() for row in rows]})
    else:
        Output(form).table(_table(rows, sizes, environment()))


def _parse_peers(names: list[str] | None) -> list[Peer]:
    from faircl.bench.peers import PEERS

    for name in names or ():
        if name not in PEERS:
            raise UserError(f"--peer is '{name}'; expected {' or '.join(PEERS)}.")
    return [peer for peer in PEERS if peer in (names or ())]


def _config(model: str, batch: int, size: int, precision: str, settings: list[str]) -> RunConfig:
    from faircl.config.run import resolve

    # Data and learning rate do not matter: images are random, and the trained network is discarded.
    tree = {"data": "scenes", "model": "small", "method": "faircl", "optim": {"lr": 0.001}}
    train = {"batch": batch, "crop": size, "precision": precision}
    config = resolve(tree | {"train": train}, [f"model={model}", *settings])
    if config.method.name != "faircl":
        raise UserError(
            f"--set method.… changes FairCL's settings here, found method.name={config.method.name}; choose methods "
            "with --method of 'faircl bench methods'."
        )
    return config


def _table(rows: list[StepTime], sizes: dict[str, Any], environment: dict[str, str]) -> Table:
    title = "{classes} classes, {old} of them old; batch {batch} of {size}×{size}, {precision}".format(**sizes)
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
    return Table(columns, cells, title=title, caption=caption(environment))
