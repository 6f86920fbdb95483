"""Options that say which data set to open."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Data = Annotated[
    str, typer.Option("--data", "-d", metavar="NAME", help="Kind of data set; 'faircl data list' shows them.")
]
Root = Annotated[Path | None, typer.Option("--root", "-r", help="Folder of the data set.")]
DataSet = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, e.g. --set data.train=val. May be repeated."),
]
