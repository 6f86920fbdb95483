"""``faircl bench evaluation``: time of the argmax of upsampled logits and of the confusion matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from faircl.cli import bench_common
from faircl.cli.bench_common import Batch, Classes, Rounds, Sizes, Strides
from faircl.cli.output import Format, Json, Output, print_json
from faircl.tables import Column, Table

if TYPE_CHECKING:
    from faircl.bench.evaluation import EvaluationCost
    from faircl.bench.problem_size import ProblemSize


def bench_evaluation_command(
    classes: Classes = None,
    sizes: Sizes = None,
    strides: Strides = None,
    batch: Batch = 24,
    rounds: Rounds = 10,
    form: Format = "terminal",
    as_json: Json = False,
) -> None:
    """Time evaluation after the network: argmax of upsampled logits, and the confusion matrix.

    The argmax of evaluation is compared with interpolation of the whole batch and with the same image by image; its
    confusion matrix with torch's bincount, which checks nothing. Ratios are to the first of each. The defaults need a
    GPU of 24 GB.

    [bold]Examples[/bold]

    faircl bench evaluation

    faircl bench evaluation --classes 21 --classes 151 --stride 4 --json

    faircl bench evaluation --classes 21 --size 64 --batch 2 --rounds 3
    """
    from faircl.bench.evaluation import bench_evaluation
    from faircl.progress import ConsoleReporter
    from faircl.runs.environment import environment

    bench_common.require_single_process("evaluation")
    options = bench_common.grid_options(classes, sizes, strides, batch)
    grid = options.grid()
    rows = bench_evaluation(grid, rounds, ConsoleReporter())
    if as_json:
        settings = {**options._asdict(), "rounds": rounds}
        print_json({**settings, "environment": environment(), "rows": [row.to_json() for row in rows]})
    else:
        Output(form).table(_table(rows, grid, environment()))


def _table(rows: list[EvaluationCost], sizes: list[ProblemSize], environment: dict[str, Any]) -> Table:
    first = bench_common.varying(sizes)
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
    title, caption = bench_common.common_title(sizes, "fp32"), bench_common.caption(environment)
    return Table(columns, cells, title=title, caption=caption)
