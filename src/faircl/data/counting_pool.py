"""Counting masks in processes of their own.

They are plain Python processes that import NumPy and Pillow, no torch, and speak over pipes. Unlike multiprocessing's
they do not import the caller's main module, so a script needs no guard, and nothing is forked under running threads.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Lock
from typing import BinaryIO, NamedTuple

from faircl.data.count_cache import DIGEST_BYTES
from faircl.data.file_data import FileData
from faircl.data.mask_coding import MaskCounts
from faircl.data.masks import file_bytes
from faircl.errors import UserError

CHUNK = 32
"""Masks sent to a process at a time."""
_WORKER = "import sys; sys.path[:] = {path!r}; from faircl.data.counting_pool import run_worker; run_worker()"

_Chunk = tuple[int, Sequence[str]]


def available_cores() -> int:
    """Return how many cores this process may use, which may be fewer than there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class CountedFile(NamedTuple):
    """A mask file: digest of its content and coding, what tells it from other files, its counts if not yet known."""

    digest: bytes
    file: object
    counted: MaskCounts | None


def count_file(data: FileData, split: str, id: str, known: Collection[bytes]) -> CountedFile:
    """Read a mask file once; count it unless its digest is among the known ones."""
    path = data.mask_path(split, id)
    content = file_bytes(path, "mask")
    digest = hashlib.blake2b(data.label_key(split, id).encode(), digest_size=DIGEST_BYTES)
    digest.update(content)
    file = _identity(data, split, id, path)
    new = digest.digest() not in known
    return CountedFile(digest.digest(), file, data.count_mask(split, id, content) if new else None)


def _identity(data: FileData, split: str, id: str, mask: Path) -> object:
    """Return what tells an image from others: its file, or the name it would have, or else its mask's file.

    Links are followed, so two names of one file are the same. Some systems number no files.
    """
    image = data.image_key(split, id)
    for path in (mask,) if image is None else (data.root / image,):
        with suppress(OSError):
            about = os.stat(path)
            return (about.st_dev, about.st_ino) if about.st_ino else str(path)
    return image


class _WorkerError(Exception):
    """A worker could not be started, or not be given the reader."""


def count_in_processes(
    data: FileData, split: str, ids: Sequence[str], known: Collection[bytes], advance: Callable[[], None]
) -> list[CountedFile] | None:
    """Look at masks in as many processes as there are cores; None where the reader cannot be sent to another one."""
    try:
        job = pickle.dumps((data, split, frozenset(known)))
    except Exception:  # an outside reader may hold anything
        return None
    chunks: SimpleQueue[_Chunk] = SimpleQueue()
    for start in range(0, len(ids), CHUNK):
        chunks.put((start, ids[start : start + CHUNK]))
    results: list[CountedFile | None] = [None] * len(ids)
    workers, lock = min(available_cores(), chunks.qsize()), Lock()
    with ThreadPoolExecutor(workers) as pool:
        drivers = [pool.submit(_feed_worker, job, chunks, results, advance, lock) for _ in range(workers)]
        try:
            for driver in drivers:
                driver.result()
        except _WorkerError:
            return None
        finally:  # an error, or Ctrl-C: the others finish their chunk and find nothing more to do
            _drain(chunks)
    return [result for result in results if result is not None]


def _feed_worker(
    job: bytes, chunks: SimpleQueue[_Chunk], results: list[CountedFile | None], advance: Callable[[], None], lock: Lock
) -> None:
    """Feed one process until there is nothing left."""
    command = [sys.executable, "-c", _WORKER.format(path=sys.path)]
    try:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    except OSError as error:
        raise _WorkerError from error
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(job)
        process.stdin.flush()
        if not pickle.load(process.stdout):
            raise _WorkerError
        while True:
            try:
                start, ids = chunks.get_nowait()
            except Empty:
                return
            pickle.dump(ids, process.stdin)
            process.stdin.flush()
            answer = pickle.load(process.stdout)
            if answer is None:
                raise _WorkerError
            if isinstance(answer, str):
                raise UserError(answer)
            results[start : start + len(ids)] = answer
            with lock:
                for _ in ids:
                    advance()
    except (OSError, EOFError, pickle.UnpicklingError) as error:  # killed, for want of memory perhaps
        raise _WorkerError from error
    finally:
        with suppress(OSError):  # it flushes, and nobody may be there to read
            process.stdin.close()
        process.stdout.close()
        process.wait()


def _drain(chunks: SimpleQueue[_Chunk]) -> None:
    try:
        while True:
            chunks.get_nowait()
    except Empty:
        return


def run_worker() -> None:
    """Be such a process: read the reader and chunks of ids; answer each chunk with what was found, or a sentence."""
    source, sink = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what anything prints must not get between the answers
    try:
        data, split, known = pickle.load(source)
    except Exception:  # a reader that only the caller's process knows
        _send(sink, False)
        return
    _send(sink, True)
    while True:
        try:
            ids = pickle.load(source)
            _send(sink, [count_file(data, split, id, known) for id in ids])
        except UserError as error:
            _send(sink, str(error))
        except (EOFError, BrokenPipeError, KeyboardInterrupt):
            return
        except Exception:  # an outside reader's: it is raised where the caller sees it, counting there
            _send(sink, None)


def _send(sink: BinaryIO, value: object) -> None:
    pickle.dump(value, sink)
    sink.flush()
