"""``faircl bench loss``: what cross-entropy at full resolution costs, three ways."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from faircl.cli.output import Format, Json, Output, print_json
from faircl.errors import UserError
from faircl.tables import Column, Table

if TYPE_CHECKING:
    from faircl.bench.loss import LossCost
    from faircl.bench.timing import ProblemSize

CLASSES = 151
"""Classes at which a plot compares image sizes, if they are among those given."""
Classes = Annotated[list[int] | None, typer.Option(help="Channels; may be repeated. Default: 151.")]
Sizes = Annotated[list[int] | None, typer.Option("--size", help="Side of an image; may be repeated. Default: 512.")]
Strides = Annotated[
    list[int] | None,
    typer.Option("--stride", help="Pixels from one logit to the next; may be repeated. Default: 16 and 4."),
]
Batch = Annotated[int, typer.Option(help="Images per batch.")]
Rounds = Annotated[int, typer.Option(help="Timed rounds, of which the median is given.")]


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
            "--channels-last/--channels-first", help="Order of the logits in memory; training's is the first."
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

    Beside the loss that training uses: interpolation of the whole batch with torch's cross_entropy, and the same image
    by image. Ratios are to the first. With --plot not all combinations are timed: the classes at the first size, and
    the sizes at 151 classes or the first number given. The default wants a GPU of 24 GB.

    [bold]Examples[/bold]

    faircl bench loss

    faircl bench loss --classes 21 --classes 151 --size 256 --size 512 --stride 16 --plot cost.png

    faircl bench loss --classes 21 --size 64 --batch 2 --rounds 3 --precision fp32 --json
    """
    from faircl.bench.loss import LossOptions, bench_loss
    from faircl.bench.timing import size_grid
    from faircl.distributed import init_process_group, launched_world_size
    from faircl.progress import ConsoleReporter
    from faircl.runs.environment import environment

    init_process_group()
    if launched_world_size() > 1:
        raise UserError("faircl bench loss times one process; start it without torchrun.")
    counts, sides, steps = classes or [CLASSES], sizes or [512], strides or [16, 4]
    shown = CLASSES if CLASSES in counts else counts[0]
    options = LossOptions(precision, rounds, exact, channels_last)
    chosen = size_grid(counts, sides, steps, batch)
    if plot is not None:
        from faircl.report.plot_files import check_plot_file

        plot = plot.expanduser()
        check_plot_file(plot)
        chosen = [one for one in chosen if one.size == sides[0] or one.classes == shown]
    rows, speed = bench_loss(chosen, options, ConsoleReporter())
    facts = environment()
    if plot is not None:
        from faircl.bench.plots import write_loss_costs

        common = f"batch {batch}, {precision}" + (f", stride {steps[0]}" if len(set(steps)) == 1 else "")
        write_loss_costs(plot, f"Cross-entropy, {common}; {_where(facts)}", rows, shown, sides[0])
        ConsoleReporter().say(f"plot: {plot}")
    if as_json:
        about = {"classes": counts, "sizes": sides, "strides": steps, "batch": batch, **vars(options)}
        found = {"bytes_per_second": speed.bandwidth, "exponentials_per_second": speed.exponentials}
        print_json({**about, **found, "environment": facts, "rows": [row.to_json() for row in rows]})
    else:
        Output(form).table(_table(rows, chosen, precision, facts))


def varying(sizes: list[ProblemSize]) -> tuple[str, ...]:
    """Return which of classes, size and stride differ: those are columns of the table."""
    return tuple(key for key in ("classes", "size", "stride") if len({getattr(one, key) for one in sizes}) > 1)


def title_of(sizes: list[ProblemSize], precision: str) -> str:
    """Return what all rows have in common, as the title of their table."""
    first, differ = sizes[0], varying(sizes)
    words = [f"{first.classes} classes"] if "classes" not in differ else []
    words.append(f"batch {first.batch}" + (f" of {first.size}×{first.size}" if "size" not in differ else ""))
    words += [f"stride {first.stride}"] if "stride" not in differ else []
    return ", ".join([*words, precision])


def caption_of(facts: dict[str, Any]) -> str:
    """Return hardware, version of torch and commit."""
    return f"{_where(facts)}; torch {facts['torch']}; commit {facts['commit'] or 'unknown'}"


def _where(facts: dict[str, Any]) -> str:
    threads = f"{facts['threads']} thread{'' if facts['threads'] == '1' else 's'}"
    return str(facts["gpu"]) if facts["gpu"] != "none" else f"{facts['cpu']}, {threads}"


def _table(rows: list[LossCost], sizes: list[ProblemSize], precision: str, facts: dict[str, Any]) -> Table:
    first = varying(sizes)
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
    return Table(columns, cells, title=title_of(sizes, precision), caption=caption_of(facts))
