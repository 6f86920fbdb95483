"""Options, titles and captions that the commands of ``faircl bench`` share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from faircl.errors import UserError

if TYPE_CHECKING:
    from faircl.bench.problem_size import ProblemSize

DEFAULT_CLASSES = 151
Classes = Annotated[list[int] | None, typer.Option(help="Channels; may be repeated. Default: 151.")]
Sizes = Annotated[list[int] | None, typer.Option("--size", help="Side of an image; may be repeated. Default: 512.")]
Strides = Annotated[
    list[int] | None,
    typer.Option("--stride", help="Distance of two logits in pixels; may be repeated. Default: 16 and 4."),
]
Batch = Annotated[int, typer.Option(help="Images per batch.")]
Rounds = Annotated[int, typer.Option(help="Timed rounds; the median is reported.")]


class GridOptions(NamedTuple):
    """The sizes to time, as given on the command line: all combinations of classes, sizes and strides."""

    classes: list[int]
    sizes: list[int]
    strides: list[int]
    batch: int

    def grid(self) -> list[ProblemSize]:
        """Return all combinations."""
        from faircl.bench.problem_size import size_grid

        return size_grid(self.classes, self.sizes, self.strides, self.batch)


def grid_options(
    classes: list[int] | None, sizes: list[int] | None, strides: list[int] | None, batch: int
) -> GridOptions:
    """Fill in the defaults of options that were not given."""
    return GridOptions(classes or [DEFAULT_CLASSES], sizes or [512], strides or [16, 4], batch)


def require_single_process(command: str) -> None:
    """Raise a UserError under torchrun with several processes."""
    from faircl.distributed import init_process_group
    from faircl.parallel import launched_world_size

    init_process_group()
    if launched_world_size() > 1:
        raise UserError(f"faircl bench {command} times one process; start it without torchrun.")


def varying(sizes: list[ProblemSize]) -> tuple[str, ...]:
    """Return which of classes, size and stride differ; they become columns of the table."""
    return tuple(key for key in ("classes", "size", "stride") if len({getattr(one, key) for one in sizes}) > 1)


def common_title(sizes: list[ProblemSize], precision: str) -> str:
    """Return the title of a table: what all rows have in common."""
    first, differ = sizes[0], varying(sizes)
    parts = [f"{first.classes} classes"] if "classes" not in differ else []
    parts.append(f"batch {first.batch}" + (f" of {first.size}×{first.size}" if "size" not in differ else ""))
    parts += [f"stride {first.stride}"] if "stride" not in differ else []
    return ", ".join([*parts, precision])


def hardware(environment: dict[str, Any]) -> str:
    """Return the GPU, or the CPU and its threads."""
    threads = f"{environment['threads']} thread{'' if environment['threads'] == '1' else 's'}"
    return str(environment["gpu"]) if environment["gpu"] != "none" else f"{environment['cpu']}, {threads}"


def caption(environment: dict[str, Any], device: str | None = None) -> str:
    """Return hardware, version of torch and commit."""
    return (
        f"{device or hardware(environment)}; torch {environment['torch']}; commit {environment['commit'] or 'unknown'}"
    )
