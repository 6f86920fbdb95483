"""Fabric and the process-wide switches of a run."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from lightning_fabric import Fabric

from faircl.config import TrainConfig
from faircl.errors import UserError

_PRECISION: dict[str, Literal["32-true", "bf16-mixed", "16-mixed"]] = {
    "fp32": "32-true",
    "bf16": "bf16-mixed",
    "fp16": "16-mixed",
}


def make_fabric(config: TrainConfig) -> Fabric:
    """Return a Fabric for one device."""
    cuda = torch.cuda.is_available()
    if config.accelerator == "cuda" and not cuda:
        raise UserError(
            "train.accelerator is cuda, but torch sees no GPU; set it to cpu or auto ('faircl doctor' tells more)."
        )
    on_gpu = cuda and config.accelerator != "cpu"
    if config.precision == "fp16" and not on_gpu:
        raise UserError("train.precision fp16 needs a GPU; on a CPU use bf16 or fp32.")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Fabric warns of options that were chosen on purpose
        return Fabric(accelerator="cuda" if on_gpu else "cpu", devices=1, precision=_PRECISION[config.precision])


@contextmanager
def process_settings(config: TrainConfig) -> Iterator[None]:
    """Set thread count and determinism for a run and put them back afterwards."""
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    if config.threads:
        torch.set_num_threads(config.threads)
    torch.use_deterministic_algorithms(config.deterministic)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(deterministic)


@contextmanager
def memory_in_words() -> Iterator[None]:
    """Turn running out of memory, on a GPU or on a CPU, into a sentence."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        gpu = isinstance(error, torch.OutOfMemoryError)
        if not gpu and not isinstance(error, MemoryError) and "can't allocate memory" not in str(error):
            raise
        where = "The GPU" if gpu else "This machine"
        raise UserError(
            f"{where} has too little memory for this run; lower train.batch, train.crop, eval.batch or the network's "
            "width, and raise optim.accumulate to keep the update's size. Finished steps are kept."
        ) from None
