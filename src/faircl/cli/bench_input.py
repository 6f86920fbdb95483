"""``faircl bench input``: training windows per second that reach the device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from faircl.cli.bench_common import caption, require_single_process
from faircl.cli.output import Format, Json, Output, print_json
from faircl.tables import Column, Table

if TYPE_CHECKING:
    from faircl.bench.input import InputSize, InputSpeed


def bench_input_command(
    images: Annotated[int, typer.Option(min=1, help="Images to draw and write.")] = 240,
    width: Annotated[int, typer.Option(min=8, help="Width of an image.")] = 683,
    height: Annotated[int, typer.Option(min=8, help="Height of an image.")] = 512,
    size: Annotated[int, typer.Option(min=8, help="Side of a training window.")] = 512,
    batch: Annotated[int, typer.Option(min=1, help="Windows per batch.")] = 24,
    workers: Annotated[
        list[int] | None, typer.Option(min=0, help="Worker processes; may be repeated. Default: the number of cores.")
    ] = None,
    seconds: Annotated[float, typer.Option(min=0, help="Seconds timed per row.")] = 5.0,
    noise: Annotated[
        float, typer.Option(min=0, help="Noise of the images, in levels of 255; more noise makes larger files.")
    ] = 9.0,
    form: Format = "terminal",
    as_json: Json = False,
) -> None:
    """Time data loading, from JPEGs and PNG masks on disk to augmented batches on the device.

    Every setting of train.augment and train.cache is timed. Ratios are to a plain loader: Pillow, resizing of whole
    images, float conversion in the workers, torch's DataLoader. Synthetic images are written to a temporary folder and
    read from the system's file cache. Without a GPU, the work of the GPU is left out.

    [bold]Examples[/bold]

    faircl bench input

    faircl bench input --workers 1 --workers 4 --seconds 10

    faircl bench input --noise 5

    faircl bench input --width 2048 --height 1024 --images 60 --json
    """
    from faircl.bench.input import InputSize, bench_input
    from faircl.parallel import available_cores
    from faircl.progress import ConsoleReporter
    from faircl.runs.environment import environment

    require_single_process("input")
    sizes = InputSize(images, width, height, size, batch, seconds, noise)
    rows, file_bytes = bench_input(sizes, workers or [available_cores()], ConsoleReporter())
    if as_json:
        facts = {"jpeg_kilobytes": file_bytes / 1e3, "environment": environment()}
        print_json({**vars(sizes), **facts, "rows": [row.to_json() for row in rows]})
    else:
        Output(form).table(_table(rows, sizes, file_bytes, environment()))


def _table(rows: list[InputSpeed], size: InputSize, file_bytes: float, environment: dict[str, Any]) -> Table:
    title = (
        f"{size.width}×{size.height} JPEGs of {file_bytes / 1e3:.0f} kB and PNG masks; batch {size.batch} of "
        f"{size.size}×{size.size}"
    )
    device = f"{environment['cpu']}, {environment['cores']} cores; GPU: {environment['gpu']}"
    omitted = "; work of the GPU, such as resampling, is not included" if environment["gpu"] == "none" else ""
    columns = [
        Column("way", wrap=False),
        Column("workers", wrap=False),
        Column("crops/s", 0, wrap=False),
        Column("core ms/crop", wrap=False),
        Column("MB/s", 0, wrap=False),
        Column("speed", kind="factor", wrap=False),
    ]
    cells = [
        [row.way, row.workers, row.crops_per_second, row.core_milliseconds, row.megabytes_per_second, row.ratio]
        for row in rows
    ]
    return Table(columns, cells, title=title, caption=caption(environment, device) + omitted)
