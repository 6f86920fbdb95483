"""Faster training and prediction: fused kernels in place of a network's modules, torch.compile, CUDA graphs.

``accelerated`` is the entry point of training, `inference.InferenceNetwork` that of prediction; methods and networks
are written in plain torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lightning_fabric import Fabric

from faircl.acceleration.cuda_graphs import replayed
from faircl.acceleration.fusion import FUSIONS, fused
from faircl.acceleration.torch_compile import compiled
from faircl.config.run import RunConfig
from faircl.methods.base import Method
from faircl.models.segmenter import Segmenter
from faircl.progress import Reporter

__all__ = ["FUSIONS", "accelerated", "fused"]


@contextmanager
def accelerated(
    model: Segmenter,
    method: Method,
    config: RunConfig,
    fabric: Fabric,
    reporter: Reporter,
    teacher: Segmenter | None = None,
    fusions: tuple[str, ...] = FUSIONS,
) -> Iterator[None]:
    """Accelerate the updates of a step in a context; results are the same up to rounding.

    Modules are replaced by fused ones, blocks are compiled if ``train.compile`` is set, and backbone and decoder are
    replayed from CUDA graphs if ``train.graphs`` is set. What a network or method does not support is skipped;
    failed attempts are reported.
    """
    networks = (model,) if teacher is None else (model, teacher)
    with (
        fused(*networks, fusions=fusions),
        compiled(model, method, config, fabric, reporter),
        replayed(model, method, config, fabric.device, reporter, teacher),
    ):
        yield
