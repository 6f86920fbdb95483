"""Compiling a network block by block: torch.compile fuses what lies between its products and convolutions.

Blocks that do the same to the same shapes share one compilation: a ResNet costs no more than eight of its blocks, a
SegFormer five. Stems and decoders stay as they are: compiled, the gradient of an upsampling is a sum in no fixed order.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from lightning_fabric import Fabric
from torch import nn

from faircl.acceleration.cuda_graphs import can_be_replayed, recorded_arithmetic, unchanged_buffers
from faircl.acceleration.hooks import has_hooks_inside
from faircl.config.run import RunConfig
from faircl.distributed import all_gather_objects, rank_slice
from faircl.methods.base import Method
from faircl.models.segmenter import Segmenter
from faircl.progress import Reporter

BACKEND = "inductor"
VARIANTS = 4
"""Compilations per block, at most: blocks come frozen or trained, with and without statistics that move."""


@contextmanager
def compiled(model: Segmenter, method: Method, config: RunConfig, fabric: Fabric, reporter: Reporter) -> Iterator[None]:
    """Compile a network's blocks for a while, if ``train.compile`` asks for it; what is compiled is compiled here.

    A network that cannot be compiled is run as it is, and a note says so.
    """
    if not config.train.compile:
        yield
        return
    from torch._dynamo import config as limits

    blocks = list(model.blocks())
    if problem := _why_not(model, method, blocks):
        reporter.say(f"note: the network's blocks are not compiled: {problem}")
        yield
        return
    replays = fabric.device.type == "cuda" and can_be_replayed(model, method, config)
    try:
        # Torch's own limit, eight, would be met by a ResNet whose norms freeze at a later step.
        with limits.patch(recompile_limit=VARIANTS * max(len(blocks), 8)):
            for block in blocks:
                block.compile(backend=BACKEND, dynamic=False)
            with reporter.task("compile", 1) as task:
                # All processes go the same way: gradients of the others would be waited for in vain.
                problem = next(filter(None, all_gather_objects(_try(model, config, fabric, replays))), "")
                task.advance()
            if problem:
                _as_they_are(blocks)
                reporter.say(
                    f"note: network '{model.name}' cannot be compiled here and runs as it is, which costs time alone "
                    f"({problem}); train.compile: false leaves the attempt out"
                )
            yield
    finally:
        _as_they_are(blocks)


def _why_not(model: Segmenter, method: Method, blocks: list[nn.Module]) -> str:
    if method.needs.attentions or has_hooks_inside(model):
        return f"method '{method.name}' looks into them"
    if any(isinstance(part, nn.SyncBatchNorm) for block in blocks for part in block.modules()):
        return "BatchNorm waits for the other processes (train.sync_norm)"
    return ""


def _as_they_are(blocks: list[nn.Module]) -> None:
    for block in blocks:
        block._compiled_call_impl = None


def _try(model: Segmenter, config: RunConfig, fabric: Fabric, replays: bool) -> str:
    """Run both passes on an empty batch, which compiles; return what went wrong.

    Statistics, gradients and random numbers are as if that had not happened.
    """
    device, side = fabric.device, config.train.crop
    own = len(rank_slice(range(config.train.batch)))
    image = torch.zeros((own, 3, side, side), device=device, dtype=torch.get_default_dtype())
    trained = [p for part in (model.backbone, model.decoder) for p in part.parameters() if p.requires_grad]
    with torch.random.fork_rng([device] if device.type == "cuda" else []), unchanged_buffers(model):
        try:
            # In the arithmetic that is to come, or all would be compiled once more.
            with recorded_arithmetic(config.train.precision) if replays else fabric.autocast():
                embedding = model.embed(image)[2]
            if trained:  # not by backward(), which would tell other processes
                torch.autograd.grad(embedding.sum(), trained, allow_unused=True)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # compilers, and what they are made of, raise nearly anything
            return " ".join(str(error).split())[:200]
    return ""
