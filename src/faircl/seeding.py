"""Counter-based randomness: generators are made from the seed and counters, not from a global state.

A generator made from (seed, step, iteration, sample) gives the same numbers in any worker or process and whatever was
drawn before. So a resumed run, or one with another number of workers, draws the same numbers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np


def generator(seed: int, *counters: int | str) -> np.random.Generator:
    """Return a NumPy generator that depends only on the seed and the counters."""
    return np.random.Generator(np.random.Philox(key=_key(seed, *counters)))


def torch_seed(seed: int, *counters: int | str) -> int:
    """Return a 63-bit seed for torch that depends only on the seed and the counters."""
    return _key(seed, *counters) >> 65


@contextmanager
def seeded(seed: int, *counters: int | str) -> Iterator[None]:
    """Run a block, such as a weight initialisation, with its own torch CPU seed; restore the global state after it."""
    import torch  # imported here, so that modules that use NumPy only start without it

    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(torch_seed(seed, *counters))  # torch.manual_seed would seed GPUs too
        yield


def _key(seed: int, *counters: int | str) -> int:
    text = "/".join(str(part) for part in (seed, *counters))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=16).digest(), "big")
