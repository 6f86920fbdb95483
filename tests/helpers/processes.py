"""Several processes as torchrun would start them, on this machine."""

import os
import pickle
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def environment(rank, world, port):
    """Return what torchrun tells a process."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world),
        "LOCAL_WORLD_SIZE": str(world),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
    }


def meeting_place():
    """Return a store as torchrun's agent holds one; it lives as long as the object."""
    return dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


def start(world, work, *args):
    """Call ``work(*args)`` in so many processes that have met; return what each returned, in their order."""
    # They are forked from one process that has imported everything: importing takes longer than most tests.
    mp.set_forkserver_preload(["faircl.engine.trainer"])
    store = meeting_place()
    with tempfile.TemporaryDirectory() as folder:
        mp.start_processes(_one, (world, store.port, work, args, folder), nprocs=world, start_method="forkserver")
        return [pickle.loads(Path(folder, str(rank)).read_bytes()) for rank in range(world)]


def _one(rank, world, port, work, args, folder):
    from faircl.distributed import destroy_process_group, init_process_group

    os.environ |= environment(rank, world, port)
    torch.set_num_threads(1)
    init_process_group()
    Path(folder, str(rank)).write_bytes(pickle.dumps(work(*args)))
    destroy_process_group()


class Left(NamedTuple):
    """What a process left: exit code (None: it hung and was killed), standard output, standard error."""

    code: int | None
    out: str
    err: str


def command(folder, *lines, seconds=60):
    """Run ``faircl`` in one process per line of arguments, which torchrun's environment makes one run."""
    mp.set_forkserver_preload(["faircl.engine.trainer"])
    context, store = mp.get_context("forkserver"), meeting_place()
    started = []
    for rank, line in enumerate(lines):
        place = Path(folder, f"process{rank}")
        process = context.Process(target=_command, args=(place, line, environment(rank, len(lines), store.port)))
        process.start()
        started.append((process, place))
    left = []
    end = time.monotonic() + seconds
    for process, place in started:
        process.join(max(end - time.monotonic(), 0))
        code = process.exitcode
        process.kill()
        left.append(Left(code, place.with_suffix(".out").read_text(), place.with_suffix(".err").read_text()))
    return left


def _command(place, line, told):
    from faircl.cli.app import run

    for number, suffix in ((1, ".out"), (2, ".err")):
        os.dup2(os.open(place.with_suffix(suffix), os.O_WRONLY | os.O_CREAT), number)
    os.environ |= told
    torch.set_num_threads(1)
    sys.argv = ["faircl", *map(str, line)]
    run()
