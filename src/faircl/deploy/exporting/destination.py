"""Formats of exports, what they need, and output that appears complete or not at all; imports no torch."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from faircl.errors import UserError, unknown_name
from faircl.files import flush, move_into_place


class Format(NamedTuple):
    """How a format's output is named, and the packages that writing and checking it needs beside faircl's own.

    A format without a suffix is a folder.
    """

    suffix: str = ""
    packages: tuple[str, ...] = ()


FORMATS = {
    "onnx": Format(".onnx", ("onnx", "onnxscript", "onnxruntime")),
    "torch": Format(".pt2"),
    "huggingface": Format(),
}
OPSETS = range(18, 24)
"""Versions of ONNX's operators that torch's exporter writes."""


def check_request(to: str, out: Path, opset: int | None) -> None:
    """Raise a UserError for an unknown format, an output that cannot be written, or a package that is missing."""
    if to not in FORMATS:
        raise unknown_name("format", to, FORMATS)
    if opset is not None and to != "onnx":
        raise UserError(f"An opset belongs to ONNX; leave --opset out for {to}.")
    if opset is not None and opset not in OPSETS:
        raise UserError(f"Found opset {opset}; torch writes ONNX with an opset from {OPSETS[0]} to {OPSETS[-1]}.")
    _check_free(to, out)
    missing = [name for name in FORMATS[to].packages if find_spec(name) is None]
    if missing:
        raise UserError(
            f"Export to {to} needs {' and '.join(missing)}, not installed here; install with: "
            "pip install 'faircl[export]'."
        )


def _check_free(to: str, out: Path) -> None:
    suffix = FORMATS[to].suffix
    try:
        if suffix and out.is_dir():
            raise UserError(f"Output {out} is a folder; give the name of a {suffix} file with --out.")
        if suffix and out.suffix != suffix:
            raise UserError(f"Found the output {out}; a file of format {to} ends in {suffix}, so give one with --out.")
        if out.exists() and not (out.is_dir() and not any(out.iterdir())):
            raise UserError(f"Output {out} exists already; choose another with --out, or remove it.")
    except OSError as error:
        raise UserError(f"Cannot look at the output {out}: {error.strerror}; choose another with --out.") from None
    parent = next(folder for folder in out.absolute().parents if folder.exists())
    if not parent.is_dir():
        raise UserError(f"Cannot write {out}: {parent} is a file; choose another place with --out.")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise UserError(f"Cannot write {out}: no permission to write into {parent}; choose another place with --out.")


@contextmanager
def written_whole(out: Path) -> Iterator[Path]:
    """Yield a path of the same name in a temporary folder beside the output; without an error it is moved there.

    Files that were written beside it, as ONNX does for weights above 2 GB, are moved too.
    """
    out = out.absolute()
    new = [folder for folder in out.parents if not folder.exists()]
    part = out.with_name(f".{out.name}.part")
    try:
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        yield part / out.name
        for path in part.rglob("*"):
            flush(path)
        others = [path for path in part.iterdir() if path.name != out.name]
        for path in (*others, part / out.name):  # the named one last: it is whole when it appears
            move_into_place(path, out.with_name(path.name))
        new = []
    except OSError as error:
        raise UserError(f"Cannot write {out}: {error.strerror or error}; choose another place with --out.") from None
    finally:
        shutil.rmtree(part, ignore_errors=True)
        for folder in new:
            with suppress(OSError):
                folder.rmdir()
