"""How commands speak: results on standard output, tables for people, JSON for scripts."""

from __future__ import annotations

import json
import math
import os
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

if TYPE_CHECKING:
    from faircl.config.run import RunConfig

Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts instead of a table.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, e.g. --set optim.lr=0.02. May be repeated."),
]
Fit = Annotated[
    str | None,
    typer.Option("--fit", metavar="8gb|12gb|24gb", help="Change what it takes to train on a card of this memory."),
]


WIDE = 100
"""Columns of a terminal from which tables show everything; on narrower ones the last details are left to --json."""


def fitted(config: RunConfig, preset: str | None) -> RunConfig:
    """Apply a memory preset, if one is wanted, and say on standard error what it changes."""
    if preset is None:
        return config
    from faircl.config.presets import fit
    from faircl.distributed import launched_world_size
    from faircl.progress import ConsoleReporter

    config, changes, notes = fit(config, preset, launched_world_size())
    reporter = ConsoleReporter(quiet=os.environ.get("RANK", "0") != "0")
    for change in changes:
        reporter.say(f"{preset}: {change}")
    for note in notes:
        reporter.say(f"note: {note}")
    return config


def console() -> Console:
    """Return the console of standard output; wide enough for tables when piped."""
    made = Console(highlight=False)
    if not made.is_terminal:
        made.width = 160
    return made


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
