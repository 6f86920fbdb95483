"""The fast path: fused kernels in the place of a network's modules, torch.compile, CUDA graphs.

``accelerated`` is its one door: methods and networks are written in plain torch and know nothing of it.
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
    """Run the updates of a step as fast as the device allows: same results up to rounding.

    Modules are fused; blocks are compiled if ``train.compile`` asks for it; backbone and decoder are replayed from CUDA
    graphs unless ``train.graphs`` is off. What is impossible for a network or method is left out, with a note.
    """
    networks = (model,) if teacher is None else (model, teacher)
    with (
        fused(*networks, fusions=fusions),
        compiled(model, method, config, fabric, reporter),
        replayed(model, method, config, fabric.device, reporter, teacher),
    ):
        yield
