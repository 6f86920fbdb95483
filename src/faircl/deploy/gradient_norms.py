"""Gradient norm of every class at the logits of a trained step, with and without the fairness term (FairCL, Eqn 5)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from faircl.acceleration.evaluation import evaluation_mode
from faircl.engine.make_method import make_method
from faircl.engine.network import build_model, move_to_device
from faircl.engine.reevaluate import moved_config, saved_steps
from faircl.engine.runtime import make_fabric, process_settings
from faircl.errors import UserError
from faircl.labels import IGNORE
from faircl.loading.whole_images import WholeImages
from faircl.losses.binary import upsampled_binary_cross_entropy
from faircl.losses.cross_entropy import upsampled_cross_entropy
from faircl.precision import at_least_float32
from faircl.progress import Reporter
from faircl.runs.checkpoint import load_step
from faircl.runs.folder import RunFolder
from faircl.scenario.division import find_splits
from faircl.upsampling import upsampled

Loss = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class ClassGradient:
    """One class: its pixels and their share, and its share of all gradient norms without and with the fairness term.

    Shares are percent; ``ratio`` is the share with the term over the share without it.
    """

    id: int
    name: str
    pixels: int
    pixel_share: float
    without_term: float
    with_term: float

    @property
    def ratio(self) -> float:
        """How much the term changes the class's share; NaN for a class without any gradient."""
        return self.with_term / self.without_term if self.without_term else float("nan")


@dataclass(frozen=True)
class GradientNorms:
    """The classes of a step's network that its training images show, by channel."""

    step: int
    images: int
    classes: tuple[ClassGradient, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def gradient_norms(
    folder: RunFolder, reporter: Reporter, step: int | None = None, images: int = 50, root: Path | None = None
) -> GradientNorms:
    """Measure a saved step, by default the last, on so many of its training images, taken evenly from all of them.

    Labels are the true ones of all classes that the network knows, so that old classes, which a later step does not
    label, are measured too.
    """
    if images < 1:
        raise UserError(f"At least one image is needed to measure gradients; found {images}.")
    config = moved_config(folder, root)
    saved = saved_steps(folder, step)[-1]
    scenario, data = folder.load_scenario(), config.data.open()
    split, known = find_splits(config.data, scenario.protocol).train, scenario.steps[saved].images
    count = min(images, len(known))
    chosen = tuple(known[place * len(known) // count] for place in range(count))
    channels = scenario.channels(saved)
    sums = torch.zeros(3, channels, dtype=torch.float64)
    with process_settings(config.train):
        fabric = make_fabric(config.train.model_copy(update={"accelerator": "auto", "precision": "fp32"}))
        model = build_model(config, pretrained=False)
        method = make_method(config, model)
        load_step(folder.step_path(saved), model, method)
        move_to_device(model, fabric.device)
        method.to(fabric.device)
        plain = upsampled_binary_cross_entropy if method.needs.sigmoid else upsampled_cross_entropy
        whole = WholeImages(data, split, chosen, scenario.test_table(saved))
        with evaluation_mode(model), reporter.task(f"step {saved} gradients", count) as task:
            for k in range(count):
                item = whole[k]
                labels = item.labels[None].long().to(fabric.device)
                with torch.no_grad():
                    small = model(item.image[None].to(fabric.device).to(model.mean.dtype) / 255).logits
                    logits = upsampled(at_least_float32(small), labels.shape[-2:])
                sums += torch.stack(class_norms(logits, labels, channels, plain, method.fair_segmentation)).cpu()
                task.advance()
    shares = [(100 * part / part.sum().clamp_min(torch.finfo(part.dtype).tiny)).tolist() for part in sums]
    found = tuple(
        ClassGradient(scenario.channel_ids[c], scenario.names[c], int(sums[0, c]), *(share[c] for share in shares))
        for c in torch.nonzero(sums[0])[:, 0].tolist()
    )
    return GradientNorms(saved, count, found)


def class_norms(logits: Tensor, labels: Tensor, channels: int, *losses: Loss) -> tuple[Tensor, ...]:
    """Return the pixels of every class, and for each loss L the sum of ‖∂(N·L)/∂z_i‖₂ over its pixels i.

    Shapes: logits (B, C, H, W) with z_i (C,), labels (B, H, W) with N that are not IGNORE; results (channels,) float64.
    """
    valid = labels != IGNORE
    classes = labels[valid]

    def per_class(values: Tensor) -> Tensor:
        zeros = torch.zeros(channels, dtype=torch.float64, device=logits.device)
        return zeros.index_add(0, classes, values.double())

    found = [per_class(torch.ones_like(classes))]
    for loss in losses:
        leaf = logits.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(loss(leaf, labels) * valid.sum(), leaf)
        found.append(per_class(gradient.norm(dim=1)[valid]))
    return tuple(found)
