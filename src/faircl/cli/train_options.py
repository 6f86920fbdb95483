"""Options of ``faircl train`` for settings that most people change; all others are changed by ``--set``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from faircl.api.configuring import as_overrides
from faircl.errors import UserError

PANEL = "Settings"

Root = Annotated[
    Path | None, typer.Option("--root", "-r", rich_help_panel=PANEL, help="Folder of the data: data.root.")
]
Task = Annotated[
    str | None,
    typer.Option(
        "--task",
        "-t",
        rich_help_panel=PANEL,
        help="Classes of each step: 5-3, 15-1, 6-2-3, offline (all at once) or lists, '\\[\\[sky, road], \\[car]]': "
        "scenario.task.",
    ),
]
Method = Annotated[
    str | None,
    typer.Option(
        "--method",
        "-m",
        metavar="NAME",
        rich_help_panel=PANEL,
        help="Method; 'faircl methods' lists them: method.name.",
    ),
]
Model = Annotated[
    str | None,
    typer.Option(
        "--model", metavar="NAME", rich_help_panel=PANEL, help="Network; 'faircl models' lists them: model.name."
    ),
]
Epochs = Annotated[
    float | None,
    typer.Option(
        "--epochs",
        rich_help_panel=PANEL,
        help="Passes over the images of every step: train.epochs. A recipe's other number for later steps "
        "(train.later_epochs) is dropped; --set gives them one.",
    ),
]
Batch = Annotated[int | None, typer.Option("--batch", rich_help_panel=PANEL, help="Images per batch: train.batch.")]
Lr = Annotated[
    float | None,
    typer.Option(
        "--lr",
        rich_help_panel=PANEL,
        help="Learning rate of every step: optim.lr. A recipe's other rate for later steps (optim.later_lr) is "
        "dropped; --set gives them one.",
    ),
]
Device = Annotated[
    str | None,
    typer.Option("--device", metavar="auto|cpu|cuda", rich_help_panel=PANEL, help="Where to train: train.accelerator."),
]
Workers = Annotated[
    int | None, typer.Option("--workers", rich_help_panel=PANEL, help="Processes that read images: train.workers.")
]
Seed = Annotated[int | None, typer.Option("--seed", rich_help_panel=PANEL, help="Seed of the run: seed.")]
Logger = Annotated[
    list[str] | None,
    typer.Option(
        "--logger",
        metavar="tensorboard|wandb|mlflow",
        rich_help_panel=PANEL,
        help="Service that gets losses and scores too, beside metrics.jsonl; repeatable: train.loggers.",
    ),
]

_LATER = {"train.epochs": "train.later_epochs", "optim.lr": "optim.later_lr"}
"""Settings of the first step, and those that replace them at later steps."""


def with_options(given: Mapping[str, tuple[str, Any]], settings: Sequence[str]) -> list[str]:
    """Return options and the values of ``--set`` as overrides ``a.b=value``.

    ``given`` maps an option to its setting and its value, None where it was not given. A setting that an option and
    ``--set`` give different values is an error that names both.
    """
    from faircl.config.overrides import given_settings, parse_override

    chosen = {name: (key, value) for name, (key, value) in given.items() if value is not None}
    by_set = {key: (text, value) for text in settings for key, value in given_settings(parse_override(text)).items()}
    made = []
    for option, (key, value) in chosen.items():
        text = _override(key, value)
        wanted = given_settings(parse_override(text))[key]
        if key in by_set and by_set[key][1] != wanted:
            raise UserError(
                f"Setting {key} is given twice, by {option} {_typed(value)} and by --set {by_set[key][0]}; give one."
            )
        made.append(text)
        later = _LATER.get(key)
        if later is not None and later not in by_set:
            made.append(f"{later}=null")
    return [*made, *settings]


def _typed(value: Any) -> str:
    """Return an option's value as it was typed; of a repeated option the last one."""
    return str(value[-1] if isinstance(value, list) else value)


def _override(key: str, value: Any) -> str:
    """Return an option's value as an override: lists of classes are YAML, all else is taken as it was typed."""
    if key == "scenario.task" and value.lstrip().startswith("["):
        return f"{key}={value}"
    return as_overrides({key: value})[0]
