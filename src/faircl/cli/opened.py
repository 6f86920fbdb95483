"""Opening a data set from the command line, without a recipe and without torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from faircl.config.schema import ScenarioConfig
    from faircl.readers.base import ReaderConfig

Data = Annotated[
    str, typer.Option("--data", "-d", metavar="NAME", help="Kind of data set; 'faircl data list' shows them.")
]
Root = Annotated[Path | None, typer.Option("--root", "-r", help="Folder of the data set.")]
DataSet = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, e.g. --set data.train=val. May be repeated."),
]


def settings(
    data: str, root: Path | None, scenario: dict[str, Any] | None = None, overrides: Sequence[str] = ()
) -> tuple[ReaderConfig, ScenarioConfig]:
    """Return the configuration of a data set and of a scenario on it; a mistake in either is one sentence."""
    from faircl.config.run import parse_data
    from faircl.errors import UserError
    from faircl.registry import READERS

    fields = READERS.get(data).Config.model_fields
    if root is not None and "root" not in fields:
        instead = "; give --set data.path=…" if "path" in fields else ""
        raise UserError(f"Data set '{data}' has no root, found --root {root}{instead}.")
    tree: dict[str, Any] = {"name": data} | ({} if root is None else {"root": str(root)})
    given = {key: value for key, value in (scenario or {}).items() if value is not None}
    return parse_data({"data": tree, "scenario": given}, overrides)
