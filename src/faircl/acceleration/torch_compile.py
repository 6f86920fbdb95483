"""Compilation of a network block by block with torch.compile, which fuses pointwise operations and reductions.

Equal blocks with equal shapes share one compilation: a ResNet needs at most eight, a SegFormer five. Stems and decoders
are not compiled: the compiled gradient of an upsampling is not deterministic.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from lightning_fabric import Fabric
from torch import nn

from faircl.acceleration.cuda_graphs import autocast_without_cache, can_be_replayed, unchanged_buffers
from faircl.acceleration.hooks import has_hooks_inside
from faircl.config.run import RunConfig
from faircl.distributed import all_gather_objects, rank_slice
from faircl.methods.base import Method
from faircl.models.segmenter import Segmenter
from faircl.progress import Reporter

BACKEND = "inductor"
MAX_VARIANTS = 4
"""Largest number of compilations per block: frozen or trained, with and without updates of running statistics."""


@contextmanager
def compiled(model: Segmenter, method: Method, config: RunConfig, fabric: Fabric, reporter: Reporter) -> Iterator[None]:
    """Compile a network's blocks in a context if ``train.compile`` is set; compilation happens on entry.

    A network that cannot be compiled runs without, with a note.
    """
    if not config.train.compile:
        yield
        return
    from torch._dynamo import config as dynamo_config

    blocks = list(model.blocks())
    if problem := _unsupported_reason(model, method, blocks):
        reporter.say(f"note: the network's blocks are not compiled: {problem}")
        yield
        return
    replays = fabric.device.type == "cuda" and can_be_replayed(model, method, config)
    try:
        # torch's default limit, eight, would be reached by a ResNet whose norms are frozen at a later step.
        with dynamo_config.patch(recompile_limit=MAX_VARIANTS * max(len(blocks), 8)):
            for block in blocks:
                block.compile(backend=BACKEND, dynamic=False)
            with reporter.task("compile", 1) as task:
                # All processes must make the same choice, or they would wait for each other's gradients forever.
                problem = next(filter(None, all_gather_objects(_compile_passes(model, config, fabric, replays))), "")
                task.advance()
            if problem:
                _uncompile(blocks)
                reporter.say(
                    f"note: network '{model.name}' cannot be compiled here and runs uncompiled, more slowly "
                    f"({problem}); train.compile: false skips the attempt"
                )
            yield
    finally:
        _uncompile(blocks)


def _unsupported_reason(model: Segmenter, method: Method, blocks: list[nn.Module]) -> str:
    if method.needs.attentions or has_hooks_inside(model):
        return f"method '{method.name}' reads attentions or has hooks in them"
    if any(isinstance(part, nn.SyncBatchNorm) for block in blocks for part in block.modules()):
        return "BatchNorm synchronises with other processes (train.sync_norm)"
    return ""


def _uncompile(blocks: list[nn.Module]) -> None:
    for block in blocks:
        block._compiled_call_impl = None


def _compile_passes(model: Segmenter, config: RunConfig, fabric: Fabric, replays: bool) -> str:
    """Compile by running both passes on a batch of zeros; return the error message, or "".

    Running statistics, gradients and the random state do not change.
    """
    device, crop = fabric.device, config.train.crop
    batch = len(rank_slice(range(config.train.batch)))
    image = torch.zeros((batch, 3, crop, crop), device=device, dtype=torch.get_default_dtype())
    parameters = [p for part in (model.backbone, model.decoder) for p in part.parameters() if p.requires_grad]
    with torch.random.fork_rng([device] if device.type == "cuda" else []), unchanged_buffers(model):
        try:
            # With the autocast of the training passes, or everything would be compiled again.
            with autocast_without_cache(config.train.precision) if replays else fabric.autocast():
                embedding = model.embed(image)[2]
            if parameters:  # not backward(), which would communicate with other processes
                torch.autograd.grad(embedding.sum(), parameters, allow_unused=True)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # compilers raise many types of errors
            return " ".join(str(error).split())[:200]
    return ""
