"""Loading the model that classes are added to, with what its method knows of the old classes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from faircl.config.run import RunConfig
from faircl.deploy.adding.added_step import Base
from faircl.deploy.matched_data import Source
from faircl.deploy.matching import Known
from faircl.deploy.statistics import describe_classes
from faircl.engine.make_method import make_method
from faircl.engine.network import build_model, move_to_device
from faircl.errors import UserError
from faircl.labels import IGNORE, UNLABELLED, ignore_value
from faircl.methods.base import Method
from faircl.methods.faircl import FairCL
from faircl.models.segmenter import Segmenter
from faircl.progress import Reporter
from faircl.registry import METHODS
from faircl.runs.checkpoint import load_step


def load_base(
    base: Base, config: RunConfig, source: Source, device: torch.device, reporter: Reporter
) -> tuple[Segmenter, Method]:
    """Return network and method of a model on a device; the method is the one that ``config`` goes on with.

    Where another method than FairCL has trained the model, prototypes, features and class shares come from the model's
    own predictions on the images of ``source``.
    """
    if METHODS.get(base.config.method.name).needs.sigmoid:
        raise UserError(
            f"The model was trained by {base.config.method.name}, with one sigmoid per class; FairCL, which adds "
            "classes, needs a softmax over classes: train it by another method."
        )
    network = build_model(config, pretrained=False)
    method = make_method(config, network)
    load_step(base.folder.step_path(base.step), network, method if base.keeps_features else None)
    move_to_device(network.eval(), device)
    method.to(device)
    if not base.keeps_features:
        assert isinstance(method, FairCL), "added_config goes on with FairCL"
        with reporter.task("class statistics by the model's predictions", len(source.ids)) as task:
            batches = _batches(source, base.known, task.advance)
            describe_classes(method, network, batches, background=base.scenario.background)
    return network, method


def _batches(source: Source, known: Known, advance: Callable[[], None]) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield every image (1, 3, H, W) uint8 and its labels (1, H, W): channels of known classes where they are labelled.

    Pixels of new classes are ignored, since the model's predictions for them are wrong; the others are unlabelled.
    """
    table = np.full(65536, IGNORE, np.int64)
    table[source.unlabelled] = UNLABELLED
    first = int(known.classes.background)
    table[list(known.foreground)] = range(first, first + len(known.foreground))
    for id in source.ids:
        sample = source.data.read(source.split, id)
        image = torch.from_numpy(sample.image).permute(2, 0, 1)[None]
        labels = np.where(sample.mask == ignore_value(sample.mask), IGNORE, table[source.table[sample.mask]])
        yield image, torch.from_numpy(labels)[None]
        advance()
