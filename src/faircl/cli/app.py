"""The typer application; a user's mistake becomes one sentence and exit code 2."""

from __future__ import annotations

import atexit
import io
import os
import sys
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Annotated, Any, NoReturn

import typer

import faircl
from faircl.cli import bench, compare, config, data, demo, evaluate, info, scenario, train
from faircl.cli.deploy import add_classes, adopt, classes, export, predict, suggest, versions
from faircl.cli.reports import audit, gradients, report, serve
from faircl.cli.stopping import Stopped
from faircl.errors import RenamedSetting, UserError

INTERRUPTED = 130
"""Exit code after Ctrl-C: 128 plus the number of SIGINT."""
PIPE_CLOSED = 141
"""Exit code when the reader of the output has closed it: 128 plus the number of SIGPIPE."""
_TRAINING = ("train", "demo")

app = typer.Typer(
    name="faircl",
    help="Segmentation networks that learn new classes step by step, keep the old ones and treat rare classes fairly.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    add_completion=True,
    epilog="Start with [bold]faircl demo[/bold]. Every command has examples: [bold]faircl train --help[/bold].",
)
app.command()(demo.demo)
app.command()(train.train)
app.command("eval")(evaluate.evaluate)
app.command()(adopt.adopt)
app.command()(predict.predict)
app.command()(report.report)
app.command()(serve.serve)
app.command()(compare.compare)
app.command()(audit.audit)
app.command()(gradients.gradients)
app.command("add-classes")(add_classes.add_classes)
app.add_typer(classes.app, name="classes")
app.command()(suggest.suggest)
app.add_typer(versions.app, name="versions")
app.command()(export.export)
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
    warnings.showwarning = partial(_show_warning, warnings.showwarning)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # characters that the terminal cannot show are replaced
    try:
        app()
    except UserError as error:
        _stop("faircl: " + str(error).replace("\n", "\\n"), 2)  # one line, even if a file name holds a line break
    except Stopped as stop:
        _stop(f"faircl: {stop}", stop.code)
    except KeyboardInterrupt:
        _stop(_stopped(), INTERRUPTED)
    except SystemExit as leave:
        if leave.code == INTERRUPTED:  # typer has caught the KeyboardInterrupt
            _stop(_stopped(), INTERRUPTED)
        if isinstance(leave.__context__, BrokenPipeError):  # rich and typer leave with another exit code
            _leave_closed_pipe()
        if _has_process_group():
            _leave(leave.code)
        raise
    except BrokenPipeError:  # the reader of the output has closed it, as `head` does
        _leave_closed_pipe()
    except OSError as error:  # a full or forbidden disk behind standard output, say
        _stop(_refused(error), 2)
    except Exception:
        if not _several():
            raise
        _stop(traceback.format_exc(), 1)


def _show_warning(show: Callable[..., None], message: Warning | str, category: type[Warning], *where: Any) -> None:
    """Show a renamed setting as one line, other warnings as Python does."""
    if not issubclass(category, RenamedSetting):
        show(message, category, *where)
    elif os.environ.get("RANK", "0") == "0":
        print(f"faircl: note: {message}", file=sys.stderr)


def _leave_closed_pipe() -> NoReturn:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(PIPE_CLOSED)


def _stopped() -> str:
    if sys.argv[1:2] and sys.argv[1] in _TRAINING:
        return "faircl: stopped; a training run keeps its finished steps and continues with --resume."
    if sys.argv[1:2] == ["predict"]:
        return "faircl: stopped; finished images are kept, and the same command continues with --resume."
    return "faircl: stopped."


def _stop(text: str, code: int) -> NoReturn:
    """Print why the command stops and exit; of several processes one prints, and none waits for the others."""
    if not _several():
        print(text, file=sys.stderr)
        sys.exit(code)
    from faircl.distributed import another_process_failed, report_failure

    if code == 1 and another_process_failed():  # this process failed because the connection to it broke
        code = 2
    else:
        report_failure(text, lambda line: print(line, file=sys.stderr, flush=True))
    os._exit(_flushed(code))  # an orderly end would wait for processes that wait for this one


def _leave(code: object) -> NoReturn:
    """End one of several processes without the interpreter's own end, during which gloo's threads may abort it."""
    atexit._run_exitfuncs()
    os._exit(_flushed(code if isinstance(code, int) else int(code is not None)))


def _flushed(code: int) -> int:
    """Write out what was printed; return the exit code, which is not 0 where standard output could not be written."""
    try:
        with suppress(BrokenPipeError):  # nobody reads the output any more
            sys.stdout.flush()
    except OSError as error:  # a full disk behind it, say
        code = code or 2
        with suppress(OSError):
            print(_refused(error), file=sys.stderr)
    with suppress(OSError):  # there is nowhere left to say it
        sys.stderr.flush()
    return code


def _refused(error: OSError) -> str:
    place = f" {error.filename}" if error.filename else ""
    return f"faircl: the system refused{place}: {error.strerror or error}."


def _several() -> bool:
    """Whether torchrun has started more processes than this one."""
    return os.environ.get("WORLD_SIZE", "1") != "1"


def _has_process_group() -> bool:
    """Whether this process has met the others; most commands never do, and need not load torch to know it."""
    module = sys.modules.get("faircl.distributed")
    return module is not None and bool(module.world_size() > 1)
