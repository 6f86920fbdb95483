"""``faircl serve`` in a process of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple


class Served(NamedTuple):
    """A started server; ``log`` is its standard error, a file."""

    process: subprocess.Popen
    address: str
    log: Path

    def said(self) -> list[str]:
        """Lines that it has printed so far."""
        return self.log.read_text().splitlines()


@contextmanager
def serving(run: Path, *options: str, home: Path | None = None) -> Iterator[Served]:
    """Serve a run at a free port, and end the process afterwards; ``home`` is its folder, also for temporary files."""
    log = Path(run).parent / "serve.log"
    places = {"TMPDIR": str(home), "PYTHONDONTWRITEBYTECODE": "1"} if home else {}
    command = [sys.executable, "-m", "faircl", "serve", str(run), "--port", "0", "--device", "cpu", *options]
    with open(log, "w") as file:
        process = subprocess.Popen(command, stderr=file, env=os.environ | places, cwd=home or run)
    try:
        until = time.monotonic() + 120
        while not (ready := re.search(r"ready: (\S+) ", log.read_text())):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < until, log.read_text()
            time.sleep(0.05)
        yield Served(process, ready[1], log)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            process.wait(60)
