"""Commands of faircl side by side, in processes that live on from one command to the next."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

_WORKER = Path(__file__).with_name("worker.py")


class Command:
    """A command that a worker runs; ``returncode`` is None until it has ended."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit code; None while the command runs."""
        return self.wait(0)

    def wait(self, timeout: float | None = None) -> int | None:
        """Return the exit code, or None if the command is still running after ``timeout`` seconds."""
        if self.returncode is None:
            self.returncode = self._worker.answer(timeout)
        return self.returncode

    def terminate(self) -> None:
        """Send SIGTERM: training saves a checkpoint and ends."""
        self._worker.process.terminate()

    def kill(self) -> None:
        """End the worker at once."""
        self._worker.process.kill()


class Worker:
    """A process that runs one command at a time, each on one thread."""

    def __init__(self) -> None:
        variables = {**os.environ, "OMP_NUM_THREADS": "1"}
        command, pipe = [sys.executable, str(_WORKER)], subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=variables)
        self.busy = False

    def start(self, arguments: Sequence[str], output: Path, errors: Path) -> Command:
        """Begin a command, the words after ``faircl``; what it prints is appended to the files."""
        assert self.process.stdin is not None
        request = {"arguments": list(arguments), "output": str(output), "errors": str(errors)}
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        self.busy = True
        return Command(self)

    def answer(self, timeout: float | None) -> int | None:
        """Return the exit code of the command, that of the process if it has died; None after ``timeout`` seconds."""
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], timeout)[0]:
            return None
        self.busy = False
        line = self.process.stdout.readline()
        return int(line) if line else self.process.wait() or 1

    def close(self) -> None:
        """End the process."""
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        self.process.terminate()
        self.process.wait()


class Workers:
    """Workers that are started when one is needed, and used again."""

    def __init__(self) -> None:
        self._workers: list[Worker] = []

    def start(self, arguments: Sequence[str], output: Path, errors: Path | None = None) -> Command:
        """Begin a command in a worker that is free, or in a new one."""
        self._workers = [worker for worker in self._workers if worker.busy or worker.process.poll() is None]
        free = next((worker for worker in self._workers if not worker.busy), None)
        if free is None:
            free = Worker()
            self._workers.append(free)
        return free.start(arguments, output, output if errors is None else errors)

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self._workers:
            worker.close()
