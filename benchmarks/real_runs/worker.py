"""A process that runs many commands of faircl one after another: libraries and GPU are made ready once.

Every line of its input is a JSON object with ``arguments``, the words after ``faircl``, and ``output`` and ``errors``,
files that get what the command prints. The answer is a line with the command's exit code.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    for line in sys.stdin:
        request = json.loads(line)
        with _printing_to(request["output"], request["errors"]):
            code = _run(request["arguments"])
        answers.write(f"{code}\n")


@contextmanager
def _printing_to(*paths: str) -> Iterator[None]:
    """Append standard output and standard error to files, those of libraries in C too."""
    before = [os.dup(number) for number in (1, 2)]
    for number, path in enumerate(paths, 1):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(file, number)
        os.close(file)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, file in enumerate(before, 1):
            os.dup2(file, number)
            os.close(file)


def _run(arguments: Sequence[str]) -> int:
    """Return the exit code of a command."""
    from faircl.cli import main as faircl_main

    sys.argv[1:] = arguments
    try:
        faircl_main()
    except SystemExit as leave:
        return leave.code if isinstance(leave.code, int) else int(leave.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    main()
