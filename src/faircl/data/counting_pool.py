"""Counting the pixels of mask files in several processes.

Workers are plain Python processes that import NumPy and Pillow but not torch, and communicate over pipes. Unlike
multiprocessing they do not import the caller's main module, so a script needs no ``__main__`` guard, and no process is
forked while threads run.
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
from faircl.data.raster_files import file_bytes
from faircl.errors import UserError
from faircl.parallel import available_cores

CHUNK = 32
"""Masks sent to a process at a time."""
_WORKER = "import sys; sys.path[:] = {path!r}; from faircl.data.counting_pool import run_worker; run_worker()"

_Chunk = tuple[int, Sequence[str]]  # index of the first id, and the ids


class CountedFile(NamedTuple):
    """A mask file: digests of its content, and of content and coding; identity of its image; counts unless known."""

    content: bytes
    digest: bytes
    identity: object
    counts: MaskCounts | None


def count_file(data: FileData, split: str, id: str, known: Collection[bytes]) -> CountedFile:
    """Read a mask file once; count it unless its digest is known."""
    path = data.mask_path(split, id)
    data_bytes = file_bytes(path, "mask")
    content = hashlib.blake2b(data_bytes, digest_size=DIGEST_BYTES).digest()
    digest = hashlib.blake2b(content + data.label_key(split, id).encode(), digest_size=DIGEST_BYTES).digest()
    counts = None if digest in known else data.count_mask(split, id, data_bytes)
    return CountedFile(content, digest, _identity(data, split, id, path), counts)


def _identity(data: FileData, split: str, id: str, mask: Path) -> object:
    """Return the identity of an image: device and inode of its file, its name if it is missing, else its mask's.

    Links are followed, so two names of one file are the same image. Some file systems have no inode numbers; the path
    is used there.
    """
    image = data.image_key(split, id)
    for path in (mask,) if image is None else (data.root / image,):
        with suppress(OSError):
            about = os.stat(path)
            return (about.st_dev, about.st_ino) if about.st_ino else str(path)
    return image


class _WorkerError(Exception):
    """A worker could not be started, has died, or cannot unpickle or run the reader."""


def count_in_processes(
    data: FileData, split: str, ids: Sequence[str], known: Collection[bytes], advance: Callable[[], None]
) -> list[CountedFile] | None:
    """Count masks in one process per core; None if the reader cannot be sent to another process."""
    try:
        job = pickle.dumps((data, split, frozenset(known)))
    except Exception:  # a reader from outside may hold anything
        return None
    chunks: SimpleQueue[_Chunk] = SimpleQueue()
    for start in range(0, len(ids), CHUNK):
        chunks.put((start, ids[start : start + CHUNK]))
    results: list[CountedFile | None] = [None] * len(ids)
    workers, lock = min(available_cores(), chunks.qsize()), Lock()
    with ThreadPoolExecutor(workers) as pool:
        feeders = [pool.submit(_feed_worker, job, chunks, results, advance, lock) for _ in range(workers)]
        try:
            for feeder in feeders:
                feeder.result()
        except _WorkerError:
            return None
        finally:  # after an error or Ctrl-C the other workers finish their chunk and stop
            _drain(chunks)
    return [result for result in results if result is not None]


def _feed_worker(
    job: bytes, chunks: SimpleQueue[_Chunk], results: list[CountedFile | None], advance: Callable[[], None], lock: Lock
) -> None:
    """Start a worker process and send it chunks until none is left."""
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
    except (OSError, EOFError, pickle.UnpicklingError) as error:  # the worker was killed, perhaps for want of memory
        raise _WorkerError from error
    finally:
        with suppress(OSError):  # closing flushes, which fails if the worker has died
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
    """Run a worker: receive the reader, then lists of ids; answer each list with counts, or with an error's text."""
    source, sink = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # anything printed goes to standard error, not between the answers
    try:
        data, split, known = pickle.load(source)
    except Exception:  # the reader's class can only be imported in the caller's process
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
        except Exception:  # a bug of a reader from outside: the caller counts again itself and raises it
            _send(sink, None)


def _send(sink: BinaryIO, value: object) -> None:
    pickle.dump(value, sink)
    sink.flush()
