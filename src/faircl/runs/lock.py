"""The lock of a run folder: one process at a time trains into it."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import TracebackType

from faircl.errors import UserError

try:
    import fcntl
except ImportError:  # Windows: runs are not locked there, nor on file systems that know no locks
    fcntl = None  # type: ignore[assignment]

LOCK = ".lock"
_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)


class RunLock:
    """A lock on RUN/.lock, which holds the number of the process that has it.

    The system frees it when the process ends, however it ends. Processes that it has forked, such as those that read
    images, do not hold it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._handle: int | None = None

    def acquire(self) -> None:
        """Take the lock, in a folder that exists; a UserError if another process has it. Further calls do nothing."""
        if fcntl is None or self._handle is not None:
            return
        try:
            handle = os.open(self.folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise UserError(
                f"Cannot write into the output folder {self.folder}: {error.strerror}; choose another with --out."
            ) from None
        try:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _NO_LOCKS:
                os.close(handle)
                return
            owner = os.read(handle, 20).decode("ascii", "replace").strip() or "unknown"
            os.close(handle)
            raise UserError(
                f"Another process, number {owner}, is training into {self.folder}; wait for its end or stop it, then "
                "continue with --resume, or choose another folder with --out."
            ) from None
        os.truncate(handle, 0)
        os.write(handle, f"{os.getpid()}\n".encode())
        self._handle = handle

    def release(self) -> None:
        """Free the lock."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def __enter__(self) -> RunLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
