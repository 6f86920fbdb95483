"""Standard error as a stream that never raises: what cannot be shown must not end the work it is about."""

from __future__ import annotations

import os
import sys
from typing import Any


class StandardError:
    """The process's standard error, as it is when something is written.

    The first error of writing is kept in ``problem``; from then on everything is dropped.
    """

    def __init__(self) -> None:
        self.problem = ""

    @property
    def stream(self) -> Any:
        """The stream without the proxy that a progress bar puts before it; None if it was closed from the start."""
        return getattr(sys.stderr, "rich_proxied_file", sys.stderr)

    @property
    def encoding(self) -> str:
        """Encoding of the stream."""
        return getattr(self.stream, "encoding", None) or "utf-8"

    def isatty(self) -> bool:
        """Whether the stream is a terminal."""
        try:
            return self.stream is not None and bool(self.stream.isatty())
        except ValueError:  # closed
            return False

    def fileno(self) -> int:
        """File descriptor of the stream; an OSError if it has none."""
        if self.stream is None:
            raise OSError("standard error is closed")
        return int(self.stream.fileno())

    def write(self, text: str) -> int:
        """Write a text, or drop it."""
        stream = self.stream
        if stream is not None and not self.problem:
            try:
                stream.write(text)
            except (OSError, ValueError) as error:
                self._give_up(stream, error)
        return len(text)

    def flush(self) -> None:
        """Write what is buffered, or drop it."""
        stream = self.stream
        if stream is not None and not self.problem:
            try:
                stream.flush()
            except (OSError, ValueError) as error:
                self._give_up(stream, error)

    def _give_up(self, stream: Any, error: OSError | ValueError) -> None:
        self.problem = getattr(error, "strerror", None) or str(error)
        own = sys.__stderr__
        if own is not None and stream is own and not own.closed:
            # Python writes the rest of its buffer when it exits, and would exit with an error.
            devnull = os.open(os.devnull, os.O_WRONLY)
            os.dup2(devnull, own.fileno())
            os.close(devnull)
