"""Replaying a network's kernels from CUDA graphs: one launch in the place of thousands.

Training windows have one size and a step's network one shape, so forward and backward pass are recorded once and then
replayed, and so is the forward pass of the old network. The classifier, the losses and the optimiser stay as they are:
they are few kernels, and methods may do there what they like.
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

from faircl.acceleration.recording import recording
from faircl.config.run import RunConfig
from faircl.config.schema import TrainConfig
from faircl.distributed import world_size
from faircl.errors import UserError
from faircl.methods.base import Method
from faircl.models.segmenter import Segmenter, Stages
from faircl.progress import Reporter

_SHORT = {"bf16": torch.bfloat16, "fp16": torch.float16}


@contextmanager
def replayed(
    model: Segmenter,
    method: Method,
    config: RunConfig,
    device: torch.device,
    reporter: Reporter,
    teacher: Segmenter | None = None,
) -> Iterator[None]:
    """Replay a network in training mode, and its teacher, from graphs for a while, where that can be done.

    A network that waits for the device cannot be recorded; it is run as it is, and a note says so.
    """
    networks = [model] if teacher is None or is_hooked(teacher) else [model, teacher]
    try:
        if device.type == "cuda" and can_be_replayed(model, method, config):
            for network in networks:
                problem = _record(network, method.needs.stages, config.train, device)
                if problem:
                    reporter.say(
                        f"note: network '{network.name}' cannot be recorded as a CUDA graph and runs as it is, which "
                        f"costs time alone ({problem}); train.graphs: false leaves the attempt out"
                    )
                    break
        yield
    finally:
        recorded = any(network.replay is not None for network in networks)
        for network in networks:
            network.replay = None
        if recorded:
            _let_go_of_cublas()
            _let_go()


def can_be_replayed(model: Segmenter, method: Method, config: RunConfig) -> bool:
    """Whether a recording would do the same as the network.

    Not with several processes, whose gradients meet while the backward pass runs; nor with several batches per update,
    for a replay writes its gradients over the last one's; nor with attentions, or activations computed twice; nor where
    hooks act on a pass, as those of RCIL do.
    """
    if not config.train.graphs or config.train.checkpointing or config.optim.accumulate > 1:
        return False
    return world_size() == 1 and not method.needs.attentions and not is_hooked(model)


def is_hooked(model: nn.Module) -> bool:
    """Whether hooks act on passes of a module or of its parts."""
    kinds = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
    return any(getattr(module, kind) for module in model.modules() for kind in kinds)


def recorded_arithmetic(precision: str) -> AbstractContextManager[Any]:
    """Return the arithmetic of a recorded pass: weights that autocast has rounded must not outlive the recording."""
    short = _SHORT.get(precision)
    return nullcontext() if short is None else torch.autocast("cuda", short, cache_enabled=False)


def _let_go() -> None:
    """Give back the memory of a recording, or what it needed beside: it is part of a cycle."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _let_go_of_cublas() -> None:
    """Free what cuBLAS works in: taken from a recording's memory, it outlives and keeps it.

    Never while a recording may be replayed, which points there.
    """
    if torch.cuda.is_available():
        torch._C._cuda_clearCublasWorkspaces()


def _record(model: Segmenter, uses_stages: bool, config: TrainConfig, device: torch.device) -> str:
    """Record a network in its mode on an empty batch; return why that cannot be done.

    Statistics and random numbers are as if it had not happened.
    """
    image = torch.zeros((config.batch, 3, config.crop, config.crop), device=device)
    recorded = _Embedding(model, uses_stages, config.precision)
    number = torch.cuda.get_rng_state(device)
    try:
        with unchanged_buffers(model), torch.set_grad_enabled(model.training), recording():
            if problem := _waits(recorded, image):
                return problem
            model.replay = Replay(recorded, image)
            return ""
    finally:
        torch.cuda.set_rng_state(number, device)
        _let_go()  # what recording needed beside the graphs


def _waits(recorded: _Embedding, image: Tensor) -> str:
    """Return what makes a network wait for the device, or what its kernels fail at, if anything does.

    Asked before recording: a recording that fails would leave allocator and random numbers in the middle of it.
    """
    before = torch.cuda.get_sync_debug_mode()
    try:
        _both_passes(recorded, image)  # the first may wait: tables are made, and kernels compiled
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it is announced as a prototype
            torch.cuda.set_sync_debug_mode("error")
        _both_passes(recorded, image)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # compilers of kernels raise nearly anything; without a recording none is needed
        return " ".join(str(error).split())[:200]
    finally:
        torch.cuda.set_sync_debug_mode(before)
    return ""


def _both_passes(recorded: _Embedding, image: Tensor) -> None:
    outputs = [output for output in recorded(image) if output.requires_grad]
    if outputs:
        trained = [parameter for parameter in recorded.parameters() if parameter.requires_grad]
        torch.autograd.grad(outputs, trained, [torch.zeros_like(output) for output in outputs], allow_unused=True)


@contextmanager
def unchanged_buffers(model: nn.Module) -> Iterator[None]:
    """Put a module's buffers back afterwards, in place, whatever happens."""
    kept = [(buffer, buffer.clone()) for buffer in model.buffers()]
    try:
        yield
    finally:
        for buffer, before in kept:
            buffer.copy_(before)


class Replay:
    """A recorded network: images to stages and embedding.

    A network that trains is recorded with its backward pass, another without. The next replay writes over the output.
    """

    def __init__(self, recorded: _Embedding, image: Tensor) -> None:
        self.image, self.learns = image, recorded.training
        self.mean, self.std = recorded.mean, recorded.std
        self.parameters: tuple[nn.Parameter, ...] = ()
        try:
            self.run = self._both(recorded, image) if self.learns else _forward_alone(recorded, image)
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
        self.stages = recorded.stages

    def _both(self, recorded: _Embedding, image: Tensor) -> Callable[..., Stages]:
        """Record both passes."""
        trained = {name: value for name, value in recorded.named_parameters() if value.requires_grad}
        self.parameters = tuple(trained.values())
        # Other names for the same memory. What adds up gradients belongs to the stream that it was first used on: that
        # of recording must not be the parameters' own, or every update would wait for it.
        aliases = tuple(nn.Parameter(value.detach()) for value in self.parameters)

        def run(image: Tensor, *values: Tensor) -> Stages:
            found: Stages = functional_call(recorded, dict(zip(trained, values, strict=True)), (image,))
            return found

        with warnings.catch_warnings():
            # torch warms up on one stream and records on another, and says of itself that it does.
            warnings.filterwarnings("ignore", message="The AccumulateGrad node's stream")
            graphed: Any = torch.cuda.make_graphed_callables(run, (image, *aliases), allow_unused_input=True)
        return cast(Callable[..., Stages], graphed)

    def __call__(self, image: Tensor) -> tuple[Stages, Tensor] | None:
        """Return stages and embedding; None for images of another shape, or where gradients are wanted otherwise."""
        if image.shape != self.image.shape or torch.is_grad_enabled() != self.learns or image.requires_grad:
            return None
        torch.sub(image, self.mean, out=self.image)  # to where the recording reads it
        self.image.div_(self.std)
        *stages, embedding = self.run(self.image, *self.parameters)
        return tuple(stages) or self.stages, embedding


def _forward_alone(recorded: _Embedding, image: Tensor) -> Callable[[Tensor], Stages]:
    """Record a forward pass of this very image without gradients; all kernels have been run before."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found: Stages = recorded(image)

    def run(_: Tensor) -> Stages:
        graph.replay()
        return found

    return run


class _Embedding(nn.Module):
    """The part of a network that is recorded.

    Stages that no loss uses are left out of its output, which would otherwise be given gradients of zero; their values
    can still be looked at.
    """

    def __init__(self, model: Segmenter, uses_stages: bool, precision: str) -> None:
        super().__init__()
        self.arithmetic = partial(recorded_arithmetic, precision)
        self.backbone, self.decoder = model.backbone, model.decoder
        self.embed, self.uses_stages = model.embed, uses_stages
        self.mean, self.std = model.mean, model.std
        self.stages: Stages = ()
        self.training = model.training

    def forward(self, image: Tensor) -> Stages:
        """Return stages, where they are used, and the embedding."""
        with self.arithmetic():  # backward passes know no autocast
            stages, _, embedding = self.embed(image, False)
        self.stages = tuple(stage.detach() for stage in stages)
        return (*stages, embedding) if self.uses_stages else (embedding,)
