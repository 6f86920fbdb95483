"""The typer application: every command is one short file away; a user's mistake is one sentence and exit code 2."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

import faircl
from faircl.cli import config, data, demo, evaluate, info, train
from faircl.errors import UserError

INTERRUPTED = 130
"""Exit code after Ctrl-C: 128 plus the number of SIGINT."""

app = typer.Typer(
    name="faircl",
    help="Segmentation networks that learn new classes step by step, forget nothing and treat rare classes fairly.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    add_completion=True,
    epilog="Start with [bold]faircl demo[/bold]. Every command has examples: [bold]faircl train --help[/bold].",
)
app.command()(demo.demo)
app.command()(train.train)
app.command("eval")(evaluate.evaluate)
app.command()(info.methods)
app.command()(info.models)
app.command()(info.recipes)
app.command()(info.doctor)
app.add_typer(config.app, name="config")
app.add_typer(data.app, name="data")


def _version(value: bool) -> None:
    if value:
        print(f"faircl {faircl.__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    pass


def run() -> None:
    """Run the command line; turn a user's mistake into one sentence and exit code 2."""
    try:
        app()
    except UserError as error:
        print(f"faircl: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        _stopped()
        sys.exit(INTERRUPTED)
    except SystemExit as leave:
        if leave.code == INTERRUPTED:  # typer has caught the KeyboardInterrupt
            _stopped()
        raise
    except BrokenPipeError:  # the reader of our output left, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:  # a full or forbidden disk behind standard output, say
        place = f" {error.filename}" if error.filename else ""
        print(f"faircl: the system refused{place}: {error.strerror or error}.", file=sys.stderr)
        sys.exit(2)


def _stopped() -> None:
    print("faircl: stopped; a training run keeps its finished steps and continues with --resume.", file=sys.stderr)
