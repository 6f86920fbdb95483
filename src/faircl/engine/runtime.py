"""The runtime of a run: Fabric, mixed precision, process-wide torch settings, out-of-memory errors."""

from __future__ import annotations

import inspect
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from lightning_fabric import Fabric
from lightning_fabric.plugins import MixedPrecision
from lightning_fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from lightning_fabric.strategies.ddp import DDPStrategy
from torch.nn.parallel import DistributedDataParallel

from faircl.config.schema import TrainConfig
from faircl.devices import check_device
from faircl.distributed import init_process_group, local_world_size, rank, world_size
from faircl.errors import UserError
from faircl.models.segmenter import SegOutput
from faircl.parallel import launched_world_size
from faircl.precision import at_least_float32
from faircl.progress import Reporter, SilentReporter

_TRUE: dict[str, Literal["32-true", "64-true"]] = {"fp32": "32-true", "fp64": "64-true"}
_MIXED: dict[str, Literal["bf16-mixed", "16-mixed"]] = {"bf16": "bf16-mixed", "fp16": "16-mixed"}

_DDP_OPTIONS = inspect.signature(DistributedDataParallel.__init__).parameters
# Newer releases of torch have one option for buffers at construction and one for buffers at every forward pass.
_NO_BUFFER_SYNC: dict[str, Any] = {
    "forward_sync_buffers" if "forward_sync_buffers" in _DDP_OPTIONS else "broadcast_buffers": False
}


class FullPrecisionLogits(MixedPrecision):
    """Mixed precision with float32 logits; stages and embedding stay in 16 bits, and losses convert them as needed."""

    def convert_output(self, data: Any) -> Any:
        """Convert the logits of a network's output to float32."""
        return full_precision_logits(data) if isinstance(data, SegOutput) else super().convert_output(data)


def full_precision_logits(output: SegOutput) -> SegOutput:
    """Return the output with logits in at least float32."""
    return output._replace(logits=at_least_float32(output.logits))


def make_fabric(config: TrainConfig) -> Fabric:
    """Return the Fabric of this process; under torchrun it has joined the process group."""
    on_gpu = check_device(config)
    device = "cuda" if on_gpu else "cpu"
    precision: dict[str, Any] = {"precision": _TRUE.get(config.precision)}
    plugins: list[Any] = []
    if config.precision in _MIXED:
        precision, plugins = {}, [FullPrecisionLogits(_MIXED[config.precision], device)]
    logging.getLogger("lightning_fabric").setLevel(logging.ERROR)  # hides its hints about precision
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Fabric warns about options that are intended here
        if launched_world_size() == world_size() == 1:
            return Fabric(accelerator=device, devices=1, plugins=plugins, **precision)
        if on_gpu and local_world_size() > torch.cuda.device_count():
            raise UserError(
                f"torchrun has started {local_world_size()} processes on this machine, but torch sees "
                f"{torch.cuda.device_count()} GPUs here; start one process per GPU (torchrun --nproc-per-node "
                f"{torch.cuda.device_count()}), or set train.accelerator to cpu."
            )
        init_process_group()
        if world_size() != launched_world_size():
            raise UserError(
                f"The process group has {world_size()} processes, but WORLD_SIZE is {launched_world_size()}; start "
                "with torchrun."
            )
        fabric = Fabric(
            accelerator=device,
            devices=local_world_size(),
            num_nodes=launched_world_size() // local_world_size(),
            # Buffers are broadcast once at the end of a step, not at every forward pass.
            strategy=DDPStrategy(gradient_as_bucket_view=True, **_NO_BUFFER_SYNC),
            plugins=[*plugins, TorchElasticEnvironment()],
            **precision,
        )
        fabric.launch()
    if config.threads:
        torch.set_num_threads(config.threads)  # Fabric has changed it
    return fabric


def use_fused_optimizer(config: TrainConfig, fabric: Fabric) -> bool | None:
    """Return True on a GPU, and None (torch's default) on a CPU and with fp16, whose scaler needs the gradients."""
    return True if fabric.device.type == "cuda" and config.precision != "fp16" else None


def smallest_local_batch(config: TrainConfig) -> int:
    """Return the images per batch of the process that has the fewest."""
    if config.batch < world_size():
        raise UserError(
            f"train.batch is {config.batch}, which leaves some of the {world_size()} processes without an image; "
            "raise it, or start fewer processes."
        )
    return config.batch // world_size()


def rank_zero_reporter(reporter: Reporter) -> Reporter:
    """Return the reporter on rank 0 and a silent one on all other processes."""
    return reporter if rank() == 0 else SilentReporter()


@contextmanager
def process_settings(config: TrainConfig) -> Iterator[None]:
    """Set torch's thread count, determinism and default dtype for a run; restore them afterwards."""
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    dtype = torch.get_default_dtype()
    if config.threads:
        torch.set_num_threads(config.threads)
    torch.use_deterministic_algorithms(config.deterministic)
    if config.precision == "fp64":
        torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(deterministic)
        torch.set_default_dtype(dtype)


@contextmanager
def cudnn_benchmark(config: TrainConfig) -> Iterator[None]:
    """Let cuDNN benchmark its algorithms, which pays off for training windows because they all have one size.

    Off in deterministic runs: the choice of the algorithm may differ from run to run.
    """
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = not config.deterministic
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


@contextmanager
def explain_out_of_memory() -> Iterator[None]:
    """Raise a UserError instead of an out-of-memory error, or of the error of a killed DataLoader worker."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if "DataLoader worker (pid" in str(error):  # raised by a signal handler, at any line
            raise UserError(
                "A process that reads images was killed, often because the machine ran out of memory; lower "
                "train.workers or train.batch, set train.cache to none or disk, and continue with --resume. "
                "Finished steps are kept."
            ) from None
        gpu = isinstance(error, torch.OutOfMemoryError)
        if not gpu and not isinstance(error, MemoryError) and "can't allocate memory" not in str(error):
            raise
        where = "The GPU" if gpu else "This machine"
        raise UserError(
            f"{where} has too little memory for this run; lower train.batch, train.crop, eval.batch or the network's "
            "width; raise optim.accumulate to keep the number of images per update. Finished steps are kept."
        ) from None
