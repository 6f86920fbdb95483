"""Output of commands: results on standard output, as tables or as JSON; everything else on standard error."""

from __future__ import annotations

import json
import math
import os
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from faircl.tables import Table, TableFormat

if TYPE_CHECKING:
    from faircl.config.run import RunConfig

Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts instead of a table.")]
Format = Annotated[TableFormat, typer.Option("--format", help="How to print the table.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, e.g. --set train.crop=256. May be repeated."),
]
Fit = Annotated[
    str | None,
    typer.Option("--fit", metavar="8gb|12gb|24gb", help="Change what it takes to train on a card of this memory."),
]


def fitted(config: RunConfig, preset: str | None) -> RunConfig:
    """Apply a memory preset, if one is wanted, and say on standard error what it changes."""
    if preset is None:
        return config
    from faircl.config.presets import fit
    from faircl.parallel import launched_world_size
    from faircl.progress import ConsoleReporter

    config, changes, notes = fit(config, preset, launched_world_size())
    reporter = ConsoleReporter(quiet=os.environ.get("RANK", "0") != "0")
    for change in changes:
        reporter.say(f"{preset}: {change}")
    for note in notes:
        reporter.say(f"note: {note}")
    return config


class Output:
    """Prints tables in a chosen format.

    On the terminal, text beside the tables is printed with them. In every other format standard output holds the
    tables alone, separated by an empty line, and the text goes to standard error.
    """

    def __init__(self, form: TableFormat = "terminal") -> None:
        self.form, self.printed = form, False
        self.console = Console(highlight=False, stderr=form != "terminal")
        if not self.console.is_terminal:
            self.console.width = 160

    def table(self, table: Table) -> None:
        """Print a table."""
        if self.printed:
            print()
        if self.form == "terminal":
            table.print_to(self.console)
        else:
            print(table.text(self.form), end="")
        self.printed = True

    def text(self, *parts: str | Text) -> None:
        """Print one or more parts on a line that is not wrapped."""
        self.console.print(*parts, soft_wrap=True, markup=False)


def print_json(value: Any) -> None:
    """Print a value as JSON; NaN becomes null, as JSON has no NaN."""
    text = json.dumps(_clean(value), indent=2, ensure_ascii=False, allow_nan=False)
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:  # the terminal's encoding, or a file name that is no text
        text = json.dumps(_clean(value), indent=2, allow_nan=False)
    print(text)


def _clean(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(item) for item in value]
    return value
