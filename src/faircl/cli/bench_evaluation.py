"""``faircl bench evaluation``: what the class of every pixel and its count cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from faircl.cli.bench_loss import CLASSES, Batch, Classes, Rounds, Sizes, Strides, caption_of, number, title_of, varying
from faircl.cli.output import Json, console, print_json
from faircl.errors import UserError

if TYPE_CHECKING:
    from rich.table import Table

    from faircl.bench.evaluation import EvaluationCost
    from faircl.bench.timing import MapSize


def bench_evaluation_command(
    classes: Classes = None,
    sizes: Sizes = None,
    strides: Strides = None,
    batch: Batch = 24,
    rounds: Rounds = 10,
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
    from faircl.bench.timing import every_size
    from faircl.distributed import init_process_group, launched_world_size
    from faircl.progress import ConsoleReporter
    from faircl.runs.environment import environment

    init_process_group()
    if launched_world_size() > 1:
        raise UserError("faircl bench evaluation times one process; start it without torchrun.")
    counts, sides, steps = classes or [CLASSES], sizes or [512], strides or [16, 4]
    chosen = every_size(counts, sides, steps, batch)
    rows = bench_evaluation(chosen, rounds, ConsoleReporter())
    if as_json:
        about = {"classes": counts, "sizes": sides, "strides": steps, "batch": batch, "rounds": rounds}
        print_json({**about, "environment": environment(), "rows": [row.to_json() for row in rows]})
    else:
        console().print(_table(rows, chosen, environment()))


def _table(rows: list[EvaluationCost], sizes: list[MapSize], facts: dict[str, Any]) -> Table:
    from rich.table import Table

    first = varying(sizes)
    table = Table(title=title_of(sizes, "fp32"), caption=caption_of(facts), header_style="bold", box=None)
    for column in (*first, "work", "way", "ms", "extra GiB", "speed", "equal pixels"):
        text = column in ("work", "way")
        table.add_column(column, no_wrap=column != "way", justify="left" if text else "right")
    for row in rows:
        table.add_row(
            *("–" if getattr(row, key) is None else str(getattr(row, key)) for key in first),
            row.work,
            f"{row.way} ({row.note})" if row.note else row.way,
            number(row.milliseconds, ".2f"),
            number(row.extra_gib, ".3f"),
            number(row.ratio, ".2f", "×"),
            number(row.equal, ".4%"),
        )
    return table
