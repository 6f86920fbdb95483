"""``faircl config``."""

from __future__ import annotations

from typing import Annotated

import typer

import faircl
from faircl.cli.output import Fit, Json, Set, fitted, print_json

app = typer.Typer(help="Look at configurations.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Look at configurations."""


@app.command()
def show(
    recipe: Annotated[str, typer.Argument(help="A recipe's name or a YAML file.")],
    settings: Set = None,
    fit: Fit = None,
    as_json: Json = False,
) -> None:
    """Print a configuration with every setting resolved, ready to be saved and edited.

    [bold]Examples[/bold]

    faircl config show demo > my.yaml

    faircl config show demo --set method.fairness=kl --json

    faircl config show folder-segformer --fit 8gb > small-card.yaml
    """
    config = fitted(faircl.load_config(recipe, settings), fit)
    if as_json:
        print_json(config.model_dump(mode="json"))
    else:
        print(config.to_yaml(), end="")
