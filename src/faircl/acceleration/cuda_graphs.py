"""CUDA graphs: backbone and decoder are recorded once per step and replayed with one launch instead of thousands.

All training windows have the same size, so the forward and backward pass can be recorded, and the forward pass of the
old network too. Classifier, losses and optimiser are not recorded: they are few kernels, and methods define them.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call

from faircl.acceleration.hooks import has_hooks_inside
from faircl.acceleration.recording import ONE_AT_A_TIME, recording
from faircl.config.run import RunConfig
from faircl.config.schema import TrainConfig
from faircl.distributed import world_size
from faircl.errors import UserError
from faircl.methods.base import Method
from faircl.models.segmenter import Segmenter, Stages
from faircl.progress import Reporter

_AUTOCAST_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


@contextmanager
def replayed(
    model: Segmenter,
    method: Method,
    config: RunConfig,
    device: torch.device,
    reporter: Reporter,
    teacher: Segmenter | None = None,
) -> Iterator[None]:
    """Replay ``embed`` of a network in training mode, and of its teacher, from CUDA graphs if possible.

    A network that cannot be recorded, for example because it synchronises with the host, runs eagerly, with a note.
    """
    networks = [model] if teacher is None or has_hooks_inside(teacher) else [model, teacher]
    try:
        if device.type == "cuda" and can_be_replayed(model, method, config):
            for network in networks:
                with ONE_AT_A_TIME:  # a prediction in another thread may record too
                    problem = _record(network, method.needs.stages, config.train, device)
                if problem:
                    reporter.say(
                        f"note: network '{network.name}' cannot be recorded as a CUDA graph and runs without one, "
                        f"more slowly ({problem}); train.graphs: false skips the attempt"
                    )
                    break
        yield
    finally:
        recorded = [network for network in networks if isinstance(vars(network).get("embed"), Replay)]
        for network in recorded:
            del vars(network)["embed"]
        if recorded:
            with ONE_AT_A_TIME:  # memory cannot be freed while another thread records
                _free_cublas_workspaces()
                _free_memory()


def can_be_replayed(model: Segmenter, method: Method, config: RunConfig) -> bool:
    """Whether a network can be replayed with the results of the eager one.

    It cannot with several processes, which exchange gradients during the backward pass; with several batches per
    update, since a replay overwrites the gradients of the previous one; with attentions, gradient checkpointing or
    hooks, such as those of RCIL.
    """
    if not config.train.graphs or config.train.checkpointing or config.optim.accumulate > 1:
        return False
    return world_size() == 1 and not method.needs.attentions and not has_hooks_inside(model)


def autocast_without_cache(precision: str) -> AbstractContextManager[Any]:
    """Return the autocast context of a recorded pass: no cache of cast weights, which would outlive the recording."""
    dtype = _AUTOCAST_DTYPES.get(precision)
    return nullcontext() if dtype is None else torch.autocast("cuda", dtype, cache_enabled=False)


def _free_memory() -> None:
    """Free the memory of a recording, which is part of a reference cycle."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _free_cublas_workspaces() -> None:
    """Free the workspaces of cuBLAS, which are allocated from a recording's memory pool and keep it alive.

    To be called only when no recording that uses them will be replayed.
    """
    if torch.cuda.is_available():
        torch._C._cuda_clearCublasWorkspaces()


def _record(model: Segmenter, with_stages: bool, config: TrainConfig, device: torch.device) -> str:
    """Record a network in its current mode on a batch of zeros; return the problem if that fails, else "".

    Buffers and the random state are restored.
    """
    image = torch.zeros((config.batch, 3, config.crop, config.crop), device=device)
    recorded = _Embedding(model, with_stages, config.precision)
    random_state = torch.cuda.get_rng_state(device)
    try:
        with unchanged_buffers(model), torch.set_grad_enabled(model.training), recording():
            if problem := recording_problem(recorded, image):
                return problem
            vars(model)["embed"] = Replay(model, recorded, image)  # overrides the method until it is removed
            return ""
    finally:
        torch.cuda.set_rng_state(random_state, device)
        _free_memory()  # of the warm-up


def recording_problem(recorded: Callable[[Tensor], Stages], image: Tensor) -> str:
    """Return why a pass cannot be recorded (it synchronises with the host, or a kernel fails), or "".

    Tested before recording, since a failed recording leaves allocator and random state inconsistent.
    """
    previous = torch.cuda.get_sync_debug_mode()
    try:
        _both_passes(recorded, image)  # the first pass may synchronise: it builds tables and compiles kernels
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns that the mode is a prototype
            torch.cuda.set_sync_debug_mode("error")
        _both_passes(recorded, image)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # kernel compilers raise many types of errors
        return " ".join(str(error).split())[:200]
    finally:
        torch.cuda.set_sync_debug_mode(previous)
    return ""


def _both_passes(recorded: Callable[[Tensor], Stages], image: Tensor) -> None:
    outputs = [output for output in recorded(image) if output.requires_grad]
    if outputs:
        assert isinstance(recorded, nn.Module)
        trained = [parameter for parameter in recorded.parameters() if parameter.requires_grad]
        torch.autograd.grad(outputs, trained, [torch.zeros_like(output) for output in outputs], allow_unused=True)


@contextmanager
def unchanged_buffers(model: nn.Module) -> Iterator[None]:
    """Restore the values of a module's buffers at the end of a context, in place."""
    saved = [(buffer, buffer.clone()) for buffer in model.buffers()]
    try:
        yield
    finally:
        for buffer, previous in saved:
            buffer.copy_(previous)


class Replay:
    """A recorded ``Segmenter.embed``: images (B, 3, H, W) to stages, no attentions, and embedding.

    A network in training mode is recorded with its backward pass, a network in evaluation mode without. Every replay
    overwrites the output of the previous one. Inputs of another shape or mode take the eager path.
    """

    def __init__(self, model: Segmenter, recorded: _Embedding, image: Tensor) -> None:
        self.model, self.image, self.trains = model, image, recorded.training
        self.eager = type(model).embed
        self.parameters: tuple[nn.Parameter, ...] = ()
        try:
            self.run = self._record_both_passes(recorded, image) if self.trains else record_forward(recorded, image)
        except torch.OutOfMemoryError:
            raise UserError(
                "The GPU has too little memory to record the network as a CUDA graph; set train.graphs to false, or "
                "lower train.batch or train.crop. Finished steps are kept."
            ) from None
        except (RuntimeError, AssertionError) as error:
            raise UserError(
                f"The network cannot be recorded as a CUDA graph ({' '.join(str(error).split())[:200]}); set "
                "train.graphs to false. Finished steps are kept."
            ) from None

    def _record_both_passes(self, recorded: _Embedding, image: Tensor) -> Callable[..., Stages]:
        """Record both passes."""
        trained = {name: value for name, value in recorded.named_parameters() if value.requires_grad}
        self.parameters = tuple(trained.values())
        # Aliases of the parameters: the autograd node that accumulates a gradient belongs to the stream of its first
        # use. With the parameters themselves every update would wait for the stream of the recording.
        aliases = tuple(nn.Parameter(value.detach()) for value in self.parameters)

        def run(image: Tensor, *values: Tensor) -> Stages:
            outputs: Stages = functional_call(recorded, dict(zip(trained, values, strict=True)), (image,))
            return outputs

        with warnings.catch_warnings():
            # torch itself warms up on one stream and records on another, and warns about it.
            warnings.filterwarnings("ignore", message="The AccumulateGrad node's stream")
            graphed: Any = torch.cuda.make_graphed_callables(run, (image, *aliases), allow_unused_input=True)
        return cast(Callable[..., Stages], graphed)

    def __call__(self, image: Tensor, attentions: bool = False) -> tuple[Stages, None, Tensor]:
        """Return stages, None and embedding."""
        if attentions or not self._fits(image):
            return self.eager(self.model, image, attentions)  # type: ignore[return-value]
        self.image.copy_(image)
        *stages, embedding = self.run(self.image, *self.parameters)
        return tuple(stages), None, embedding

    def _fits(self, image: Tensor) -> bool:
        same = image.shape == self.image.shape and not image.requires_grad
        return same and torch.is_grad_enabled() == self.trains == self.model.training


def record_forward(recorded: Callable[[Tensor], Stages], image: Tensor, **where: Any) -> Callable[[Tensor], Stages]:
    """Record a forward pass on this image tensor without gradients; kernels must be compiled already.

    ``where``: what ``torch.cuda.graph`` takes, such as a memory pool and a stream.
    """
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, **where):
        outputs: Stages = recorded(image)

    def run(_: Tensor) -> Stages:
        graph.replay()
        return outputs

    return run


class _Embedding(nn.Module):
    """``Segmenter.embed`` as a module whose parameters are those of backbone and decoder.

    Stages that no loss reads are not returned: as outputs they would get gradients of zero.
    """

    def __init__(self, model: Segmenter, with_stages: bool, precision: str) -> None:
        super().__init__()
        self.autocast = partial(autocast_without_cache, precision)
        self.backbone, self.decoder = model.backbone, model.decoder
        self.embed, self.with_stages = model.embed, with_stages
        self.training = model.training

    def forward(self, image: Tensor) -> Stages:
        """Return the stages, if ``with_stages``, and the embedding."""
        with self.autocast():  # backward passes run without autocast
            stages, _, embedding = self.embed(image)
        return (*stages, embedding) if self.with_stages else (embedding,)
