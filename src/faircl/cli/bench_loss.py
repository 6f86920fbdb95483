"""``faircl bench loss``: what cross-entropy at full resolution costs, three ways."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from faircl.cli.output import Json, console, print_json
from faircl.errors import UserError

if TYPE_CHECKING:
    from rich.table import Table

    from faircl.bench.loss import LossCost
    from faircl.bench.timing import MapSize

CLASSES = 151
"""Classes at which a plot shows image sizes, where they are among those given."""
DETAILED = 148
"""Columns of a terminal from which the table has all its columns; on narrower ones they are left to --json."""
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
    from faircl.bench.timing import every_size
    from faircl.distributed import init_process_group, launched_world_size
    from faircl.progress import ConsoleReporter
    from faircl.runs.environment import environment

    init_process_group()
    if launched_world_size() > 1:
        raise UserError("faircl bench loss times one process; start it without torchrun.")
    counts, sides, steps = classes or [CLASSES], sizes or [512], strides or [16, 4]
    shown = CLASSES if CLASSES in counts else counts[0]
    options = LossOptions(precision, rounds, exact, channels_last)
    chosen = every_size(counts, sides, steps, batch)
    if plot is not None:
        from faircl.report.data_plots import check_plot_file

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
        console().print(_table(rows, chosen, precision, facts))


def varying(sizes: list[MapSize]) -> tuple[str, ...]:
    """Which of classes, size and stride differ: the columns that tables need."""
    return tuple(key for key in ("classes", "size", "stride") if len({getattr(one, key) for one in sizes}) > 1)


def title_of(sizes: list[MapSize], precision: str) -> str:
    """Return what all rows have in common."""
    first, differ = sizes[0], varying(sizes)
    words = [f"{first.classes} classes"] if "classes" not in differ else []
    words.append(f"batch {first.batch}" + (f" of {first.size}×{first.size}" if "size" not in differ else ""))
    words += [f"stride {first.stride}"] if "stride" not in differ else []
    return ", ".join([*words, precision])


def number(value: float | None, form: str, unit: str = "") -> str:
    """Return a number, or a dash where there is none."""
    return "–" if value is None else f"{value:{form}}{unit}"


def caption_of(facts: dict[str, Any]) -> str:
    """Return where and with what was timed."""
    return f"{_where(facts)}; torch {facts['torch']}; commit {facts['commit'] or 'unknown'}"


def _where(facts: dict[str, Any]) -> str:
    return str(facts["gpu"]) if facts["gpu"] != "none" else f"{facts['cpu']}, {facts['threads']} threads"


def _table(rows: list[LossCost], sizes: list[MapSize], precision: str, facts: dict[str, Any]) -> Table:
    from rich.table import Table

    first = varying(sizes)
    wide = console().width >= DETAILED
    details = ("forward", "backward", "loss error", "gradient", "in fp32", "repeats") if wide else ()
    table = Table(title=title_of(sizes, precision), caption=caption_of(facts), header_style="bold", box=None)
    for column in (*first, "loss", "ms", "extra GiB", "speed", "roofline", *details):
        table.add_column(column, no_wrap=column != "loss", justify="left" if column == "loss" else "right")
    for row in rows:
        exact = (row.loss_error, row.gradient_error, row.gradient_error_fp32)
        more = (
            number(row.forward_milliseconds, ".2f"),
            number(row.backward_milliseconds, ".2f"),
            *(number(error, ".0e") for error in exact),
            "–" if row.repeatable is None else "yes" if row.repeatable else "no",
        )
        table.add_row(
            *(str(getattr(row, key)) for key in first),
            f"{row.loss} ({row.note})" if row.note else row.loss,
            number(row.milliseconds, ".2f"),
            number(row.extra_gib, ".3f"),
            number(row.ratio, ".2f", "×"),
            number(row.roofline_share, ".0%"),
            *(more if wide else ()),
        )
    return table
