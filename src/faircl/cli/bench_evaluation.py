"""``faircl bench evaluation``: time of the argmax at full resolution and of the confusion matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from faircl.cli.bench_loss import CLASSES, Batch, Classes, Rounds, Sizes, Strides, caption_of, title_of, varying
from faircl.cli.output import Format, Json, Output, print_json
from faircl.errors import UserError
from faircl.tables import Column, Table

if TYPE_CHECKING:
    from faircl.bench.evaluation import EvaluationCost
    from faircl.bench.timing import ProblemSize


def bench_evaluation_command(
    classes: Classes = None,
    sizes: Sizes = None,
    strides: Strides = None,
    batch: Batch = 24,
    rounds: Rounds = 10,
    form: Format = "terminal",
    as_json: Json = False,
) -> None:
    """Time what evaluation does to logits: argmax at full resolution, and the count of the confusion matrix.

    Beside the argmax that evaluation uses: interpolation of the whole batch, and the same image by image; beside its
    count: torch's bincount, which checks nothing. Ratios are to the first of each. The default wants a GPU of 24 GB.

    [bold]Examples[/bold]

    faircl bench evaluation

    faircl bench evaluation --classes 21 --classes 151 --stride 4 --json

    faircl bench evaluation --classes 21 --size 64 --batch 2 --rounds 3
    """
    from faircl.bench.evaluation import bench_evaluation
    from faircl.bench.timing import size_grid
    from faircl.distributed import init_process_group, launched_world_size
    from faircl.progress import ConsoleReporter
    from faircl.runs.environment import environment

    init_process_group()
    if launched_world_size() > 1:
        raise UserError("faircl bench evaluation times one process; start it without torchrun.")
    counts, sides, steps = classes or [CLASSES], sizes or [512], strides or [16, 4]
    chosen = size_grid(counts, sides, steps, batch)
    rows = bench_evaluation(chosen, rounds, ConsoleReporter())
    if as_json:
        about = {"classes": counts, "sizes": sides, "strides": steps, "batch": batch, "rounds": rounds}
        print_json({**about, "environment": environment(), "rows": [row.to_json() for row in rows]})
    else:
        Output(form).table(_table(rows, chosen, environment()))


def _table(rows: list[EvaluationCost], sizes: list[ProblemSize], facts: dict[str, Any]) -> Table:
    first = varying(sizes)
    columns = [
        *(Column(key, wrap=False) for key in first),
        Column("work", wrap=False),
        Column("way"),
        Column("ms", wrap=False),
        Column("extra GiB", 3, wrap=False),
        Column("speed", kind="factor", wrap=False),
        Column("equal pixels", 4, kind="percent", wrap=False),
    ]
    cells = [
        [
            *(getattr(row, key) for key in first),
            row.work,
            f"{row.way} ({row.note})" if row.note else row.way,
            row.milliseconds,
            row.extra_gib,
            row.ratio,
            row.equal,
        ]
        for row in rows
    ]
    return Table(columns, cells, title=title_of(sizes, "fp32"), caption=caption_of(facts))
