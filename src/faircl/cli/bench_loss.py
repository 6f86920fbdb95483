"""``faircl bench loss``: cost of cross-entropy at full resolution, in three implementations."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from faircl.cli import bench_common
from faircl.cli.bench_common import DEFAULT_CLASSES, Batch, Classes, Rounds, Sizes, Strides
from faircl.cli.output import Format, Json, Output, print_json
from faircl.tables import Column, Table

if TYPE_CHECKING:
    from faircl.bench.loss import LossCost
    from faircl.bench.problem_size import ProblemSize


def bench_loss_command(
    classes: Classes = None,
    sizes: Sizes = None,
    strides: Strides = None,
    batch: Batch = 24,
    precision: Annotated[str, typer.Option(help="Type of the logits: bf16, fp16 or fp32.")] = "bf16",
    rounds: Rounds = 10,
    exact: Annotated[bool, typer.Option("--exact/--no-exact", help="Compare with float64.")] = True,
    channels_last: Annotated[
        bool,
        typer.Option(
            "--channels-last/--channels-first", help="Memory format of the logits; training uses channels first."
        ),
    ] = False,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", readable=False, help="Draw time and memory: a .svg, .png or .pdf file."),
    ] = None,
    form: Format = "terminal",
    as_json: Json = False,
) -> None:
    """Time cross-entropy of upsampled logits, forward and backward: milliseconds, extra memory, errors.

    The loss of training is compared with interpolation of the whole batch and torch's cross_entropy, and with the same
    image by image. Ratios are to the first. With --plot only some combinations are timed: all classes at the first
    size, and all sizes at 151 classes or the first number given. The defaults need a GPU of 24 GB.

    [bold]Examples[/bold]

    faircl bench loss

    faircl bench loss --classes 21 --classes 151 --size 256 --size 512 --stride 16 --plot cost.png

    faircl bench loss --classes 21 --size 64 --batch 2 --rounds 3 --precision fp32 --json
    """
    from faircl.bench.loss import LossOptions, bench_loss
    from faircl.progress import ConsoleReporter
    from faircl.runs.environment import environment

    bench_common.require_single_process("loss")
    size_options = bench_common.grid_options(classes, sizes, strides, batch)
    options = LossOptions(precision, rounds, exact, channels_last)
    grid = size_options.grid()
    plotted_classes = DEFAULT_CLASSES if DEFAULT_CLASSES in size_options.classes else size_options.classes[0]
    plotted_size = size_options.sizes[0]
    if plot is not None:
        from faircl.report.plot_files import check_plot_file

        plot = plot.expanduser()
        check_plot_file(plot)
        grid = [one for one in grid if one.size == plotted_size or one.classes == plotted_classes]
    rows, speed = bench_loss(grid, options, ConsoleReporter())
    facts = environment()
    if plot is not None:
        from faircl.bench.plots import write_loss_costs

        stride = f", stride {grid[0].stride}" if len({one.stride for one in grid}) == 1 else ""
        title = f"Cross-entropy, batch {batch}, {precision}{stride}; {bench_common.hardware(facts)}"
        write_loss_costs(plot, title, rows, plotted_classes, plotted_size)
        ConsoleReporter().say(f"plot: {plot}")
    if as_json:
        settings = {**size_options._asdict(), **vars(options)}
        speeds = {"bytes_per_second": speed.bandwidth, "exponentials_per_second": speed.exponentials}
        print_json({**settings, **speeds, "environment": facts, "rows": [row.to_json() for row in rows]})
    else:
        Output(form).table(_table(rows, grid, precision, facts))


def _table(rows: list[LossCost], sizes: list[ProblemSize], precision: str, environment: dict[str, Any]) -> Table:
    first = bench_common.varying(sizes)
    columns = [
        *(Column(key, wrap=False) for key in first),
        Column("loss"),
        Column("ms", wrap=False),
        Column("extra GiB", 3, wrap=False),
        Column("speed", kind="factor", wrap=False),
        Column("roofline", 0, kind="percent", wrap=False),
        *(Column(name, wrap=False, detail=True) for name in ("forward", "backward")),
        *(
            Column(name, 0, kind="scientific", wrap=False, detail=True)
            for name in ("loss error", "gradient", "in fp32")
        ),
        Column("repeats", wrap=False, detail=True),
    ]
    cells = [
        [
            *(getattr(row, key) for key in first),
            f"{row.loss} ({row.note})" if row.note else row.loss,
            row.milliseconds,
            row.extra_gib,
            row.ratio,
            row.roofline_share,
            row.forward_milliseconds,
            row.backward_milliseconds,
            row.loss_error,
            row.gradient_error,
            row.gradient_error_fp32,
            None if row.repeatable is None else "yes" if row.repeatable else "no",
        ]
        for row in rows
    ]
    title, caption = bench_common.common_title(sizes, precision), bench_common.caption(environment)
    return Table(columns, cells, title=title, caption=caption)
