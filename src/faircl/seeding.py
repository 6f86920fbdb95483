"""Counted randomness: every draw belongs to a counter, none to a global state.

A generator made from (seed, step, iteration, sample) gives the same numbers whichever worker or process draws
them and whatever was drawn before. Resuming, changing the number of workers and repeating a run bit for bit then
need no further care.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np


def generator(seed: int, *counters: int | str) -> np.random.Generator:
    """Return a NumPy generator that depends on the seed and the counters alone."""
    return np.random.Generator(np.random.Philox(key=_key(seed, *counters)))


def torch_seed(seed: int, *counters: int | str) -> int:
    """Return a 63-bit seed for torch that depends on the seed and the counters alone."""
    return _key(seed, *counters) >> 65


@contextmanager
def seeded(seed: int, *counters: int | str) -> Iterator[None]:
    """Run a block (a weight initialisation, say) under its own torch CPU seed and leave the global state as it was."""
    import torch  # here, so that what only draws with NumPy starts without it

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(torch_seed(seed, *counters))
        yield


def _key(seed: int, *counters: int | str) -> int:
    text = "/".join(str(part) for part in (seed, *counters))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=16).digest(), "big")
