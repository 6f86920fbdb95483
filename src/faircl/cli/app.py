"""The typer application: every command is one short file away; a user's mistake is one sentence and exit code 2."""

from __future__ import annotations

import io
import os
import sys
import traceback
import warnings
from typing import Annotated, NoReturn

import typer

import faircl
from faircl.cli import bench, compare, config, data, demo, evaluate, info, scenario, train
from faircl.errors import UserError

INTERRUPTED = 130
"""Exit code after Ctrl-C: 128 plus the number of SIGINT."""
PIPE_CLOSED = 141
"""Exit code when nobody reads the output any more: 128 plus the number of SIGPIPE."""
_TRAINING = ("train", "demo")

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
app.command()(compare.compare)
app.command()(info.methods)
app.command()(info.models)
app.command()(info.recipes)
app.command()(info.doctor)
app.add_typer(bench.app, name="bench")
app.add_typer(config.app, name="config")
app.add_typer(data.app, name="data")
app.add_typer(scenario.app, name="scenario")


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
    warnings.filterwarnings("ignore", message=".*decompression bomb")  # large pictures are read, too large ones refused
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that lacks a sign shows another in its place
    try:
        app()
    except UserError as error:
        _stop("faircl: " + str(error).replace("\n", "\\n"), 2)  # one line, whatever files are called
    except KeyboardInterrupt:
        _stop(_stopped(), INTERRUPTED)
    except SystemExit as leave:
        if leave.code == INTERRUPTED:  # typer has caught the KeyboardInterrupt
            _stop(_stopped(), INTERRUPTED)
        raise
    except BrokenPipeError:  # the reader of our output left, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(PIPE_CLOSED)
    except OSError as error:  # a full or forbidden disk behind standard output, say
        place = f" {error.filename}" if error.filename else ""
        _stop(f"faircl: the system refused{place}: {error.strerror or error}.", 2)
    except Exception:
        if not _several():
            raise
        _stop(traceback.format_exc(), 1)


def _stopped() -> str:
    if sys.argv[1:2] and sys.argv[1] in _TRAINING:
        return "faircl: stopped; a training run keeps its finished steps and continues with --resume."
    return "faircl: stopped."


def _stop(text: str, code: int) -> NoReturn:
    """Say why the command stops and leave; where there are several processes, say it once and let none wait."""
    if not _several():
        print(text, file=sys.stderr)
        sys.exit(code)
    from faircl.distributed import another_process_failed, report_failure

    if code == 1 and another_process_failed():  # what fails then is the connection to it
        code = 2
    else:
        report_failure(text, lambda line: print(line, file=sys.stderr, flush=True))
    sys.stdout.flush()
    os._exit(code)  # an orderly end would wait for processes that wait for this one


def _several() -> bool:
    """Whether torchrun has started more processes than this one."""
    return os.environ.get("WORLD_SIZE", "1") != "1"
