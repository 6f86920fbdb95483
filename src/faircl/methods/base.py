"""The method contract: what a continual method is given, and what it must return.

A method turns a batch and the network's output into named loss terms. It never calls backward, never steps an
optimiser, never touches a device, a file or a logger; the engine does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from faircl.config.components import MethodConfig as MethodConfig
from faircl.distributed import global_sum
from faircl.labels import IGNORE, UNLABELLED
from faircl.loading.assigned_labels import AssignedLabels
from faircl.loading.batch import Batch
from faircl.losses import upsampled_cross_entropy
from faircl.losses.binary import upsampled_binary_cross_entropy
from faircl.methods.balance import Balance
from faircl.models.segmenter import Segmenter, SegOutput
from faircl.seeding import seeded

Terms = dict[str, Tensor]


class Scanned(NamedTuple):
    """Whole training images of a step as the model of the step before sees them.

    Shapes: labels (B, H, W) int64; output at network stride; ids, the B images' ids.
    """

    ids: list[str]
    labels: Tensor
    output: SegOutput


@dataclass
class StepContext:
    """What a method may know and use at the start and end of a step.

    ``model`` holds the weights of the step before until ``begin_step`` grows it. ``scan`` runs it over this process's
    share of the step's training images, whole and without augmentation. ``label_pixels`` (channels after the step,)
    counts the labels visible at this step, ``pixels`` all pixels but ignored ones. A method that assigns labels fills
    ``assigned``. On a ``domain`` step no class is new and every class is labelled, so no pixel is unlabelled.
    ``label_images`` (channels after the step,) counts the images that show each label.
    """

    step: int
    old_classes: int
    classes: int
    background: bool
    unlabelled: int
    seed: int
    model: Segmenter
    label_pixels: Tensor
    label_images: Tensor
    pixels: int
    scan: Callable[[], Iterator[Scanned]]
    domain: bool = False
    assigned: AssignedLabels | None = field(default=None)


class Method(nn.Module):
    """Base of all methods; its buffers are the method's state and are saved whole."""

    Config: ClassVar[type[MethodConfig]] = MethodConfig
    name: ClassVar[str]
    summary: ClassVar[str]
    paper: ClassVar[str]
    needs: ClassVar[str] = "nothing but the step's labels"
    """What it needs beside them, in words: a copy of the old network, a look at the step's images, attentions …"""
    joint: ClassVar[bool] = False
    """Whether all classes are learned in a single step."""
    needs_attentions: ClassVar[bool] = False
    """Whether the engine must ask the networks for their attentions."""
    uses_stages: bool = True
    """Whether a loss reads the network's stages; where none does, gradients need not pass through them."""
    takes_short_logits: ClassVar[bool] = False
    """Whether its losses take logits of 16 bits, as mixed precision computes them; else they are given float32 ones."""
    needs_memory: ClassVar[bool] = False
    """Whether it makes no sense without a replay memory (the configuration's ``memory``)."""
    uses_saliency: ClassVar[bool] = False
    """Whether batches must bring saliency maps, where the data has them (``data.saliency``)."""
    sigmoid: ClassVar[bool] = False
    """Whether it trains a sigmoid per class, by ``binary_cross_entropy``, and not a softmax."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Let no class inherit what the losses of another may do without: its own may do with more."""
        super().__init_subclass__(**options)
        if {"losses", "targets", "measures", "observe"} & set(vars(cls)):
            for name, safe in (("uses_stages", True), ("takes_short_logits", False)):
                if name not in vars(cls):
                    setattr(cls, name, safe)

    def __init__(self, config: MethodConfig, model: Segmenter) -> None:
        super().__init__()
        self.base_config = config
        self.balance: Balance | None = None

    def set_balance(self, balance: Balance) -> None:
        """Train with a segmentation loss that cares for rare classes; called once, before the first step."""
        self.balance = balance

    def restored(self) -> None:
        """Act once the buffers were loaded: set again what is derived from them."""

    def needs_teacher(self, context: StepContext) -> bool:
        """Whether the engine must run the frozen model of the step before on every batch."""
        return False

    def step0_key(self) -> dict[str, object]:
        """Return what the first step depends on of the method's own settings, as far as all else is equal."""
        return {"method": self.base_config.model_dump(mode="json")}

    def begin_step(self, context: StepContext) -> None:
        """Look at the step's images with the old model where that is wanted, then grow the classifier."""
        if self.balance is not None:
            self.balance.begin_step(context)
        new = context.step > 0 and context.classes > context.old_classes
        means = ClassMeans(context) if new and self.base_config.init == "prototype" else None
        if means is not None or self.wants_scan(context):
            for scanned in context.scan():
                self.see(scanned, context)
                if means is not None:
                    means.add(scanned)
        if means is not None:
            means.gather()
        classifier = context.model.classifier
        if context.classes > context.old_classes:
            with seeded(context.seed, "grow", context.step):
                classifier.grow(context.classes - context.old_classes, context.model.mean.device)
        if means is not None:
            classifier.init_from_prototypes(
                means.classes()[context.old_classes :], means.unlabelled(), context.background
            )
        elif new and self.base_config.init == "background" and context.background:
            classifier.init_from_background()

    def wants_scan(self, context: StepContext) -> bool:
        """Whether ``see`` is to be called with the step's images before the classifier grows."""
        return False

    def see(self, scanned: Scanned, context: StepContext) -> None:
        """Take in training images of the step as the model of the step before sees them."""

    def targets(self, batch: Batch, out: SegOutput, old: SegOutput | None) -> Tensor:
        """Labels actually trained on, (B, H, W) int64 with IGNORE."""
        return batch.labels.masked_fill(batch.labels == UNLABELLED, IGNORE)

    def losses(self, batch: Batch, out: SegOutput, old: SegOutput | None, targets: Tensor) -> Terms:
        """Named, weighted terms, the same names on all processes; the engine minimises their sum."""
        raise NotImplementedError

    def cross_entropy(
        self,
        logits: Tensor,
        targets: Tensor,
        *,
        class_weight: Tensor | None = None,
        offset: Tensor | None = None,
        pixel_weight: Tensor | None = None,
        grouped: int = 0,
    ) -> Tensor:
        """Return the segmentation loss of a method that trains a softmax, as ``upsampled_cross_entropy``."""
        loss = upsampled_cross_entropy if self.balance is None else self.balance.cross_entropy
        return loss(
            logits, targets, class_weight=class_weight, offset=offset, pixel_weight=pixel_weight, grouped=grouped
        )

    def binary_cross_entropy(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the segmentation loss of a method that trains a sigmoid per class."""
        loss = upsampled_binary_cross_entropy if self.balance is None else self.balance.binary_cross_entropy
        return loss(logits, targets)

    def measures(self, batch: Batch, out: SegOutput, old: SegOutput | None, targets: Tensor) -> Terms:
        """Named numbers to be recorded beside the terms, not minimised; no gradient flows here.

        Asked for when a record is due, before ``observe``. Names are the same on all processes; values are averaged
        over batches and processes as terms are, so that a mean goes through ``global_mean``.
        """
        return {}

    def observe(self, batch: Batch, out: SegOutput, targets: Tensor, iteration: int) -> None:
        """Take in what a micro-batch showed: features, statistics. No gradient flows here."""

    def after_update(self, iteration: int) -> None:
        """Act once the optimiser has stepped; ``iteration`` counts the step's updates from 1."""

    def end_step(self, context: StepContext) -> None:
        """Merge, fuse or freeze what the step has learned."""


class TeacherMethod(Method):
    """Base of methods that run the frozen model of the step before on every batch, from the second step on."""

    needs = "a frozen copy of the old network, run on every batch"

    def needs_teacher(self, context: StepContext) -> bool:
        """Ask for the old model's output."""
        return context.step > 0


def counted(batch: Batch, size: tuple[int, int] | torch.Size) -> Tensor:
    """Pixels of a batch that are not ignored, at a coarser grid (B, h, w) bool."""
    return to_stride(batch.labels, size) != IGNORE


def restore_buffers(module: nn.Module, state: dict[str, Tensor]) -> None:
    """Load buffers whatever their present shape: a method's state grows with its classes."""
    expected = set(module.state_dict())
    if expected != set(state):
        missing, extra = sorted(expected - set(state)), sorted(set(state) - expected)
        raise ValueError(f"method state does not fit: missing {missing}, unexpected {extra}")
    for name, value in state.items():
        owner = module.get_submodule(name.rpartition(".")[0])
        owner.register_buffer(name.rpartition(".")[2], value.clone())
    for part in module.modules():
        if isinstance(part, Method):
            part.restored()


def to_stride(labels: Tensor, size: tuple[int, int] | torch.Size) -> Tensor:
    """Take labels (B, H, W) at the centres of a coarser grid (B, h, w): nearest neighbour."""
    if labels.shape[-2:] == tuple(size):
        return labels
    (high, wide), (rows, columns) = labels.shape[-2:], size
    if high % rows == wide % columns == 0:  # a view: nothing is read that is not wanted
        along, across = high // rows, wide // columns
        return labels[..., along // 2 :: along, across // 2 :: across]
    # Labels up to 65535 are exact in float32; integer interpolation does not exist.
    return F.interpolate(labels[:, None].float(), tuple(size), mode="nearest-exact")[:, 0].long()


def flat_features(features: Tensor) -> Tensor:
    """(B, D, h, w) to (B·h·w, D)."""
    return features.permute(0, 2, 3, 1).flatten(0, 2)


class ClassMeans:
    """Mean embedding of every channel over the step's images, by the labels visible at the step.

    Every process adds the images it has scanned; ``gather`` sums them up.
    """

    def __init__(self, context: StepContext) -> None:
        self.context = context
        # The last row is for unlabelled pixels of data without a background class.
        self.rows = context.classes + 1
        like = context.model.mean.double()
        self.total = like.new_zeros((self.rows, context.model.embedding_width))
        self.count = like.new_zeros(self.rows)

    def add(self, scanned: Scanned) -> None:
        """Take in a batch."""
        embedding = scanned.output.embedding
        labels = to_stride(scanned.labels, embedding.shape[-2:]).flatten()
        labels = labels.where(labels != UNLABELLED, self.rows - 1)
        valid = labels != IGNORE
        self.total.index_add_(0, labels[valid], flat_features(embedding)[valid].double())
        self.count += torch.bincount(labels[valid], minlength=self.rows)

    def gather(self) -> None:
        """Take in what the other processes have seen."""
        self.total, self.count = global_sum(self.total), global_sum(self.count)

    def classes(self) -> Tensor:
        """Return the means (K, D); NaN for a class without a pixel."""
        return (self.total / self.count[:, None]).to(self.context.model.mean.dtype)[:-1]

    def unlabelled(self) -> Tensor:
        """Return the mean of background, or of unlabelled pixels where there is none (D,); NaN without a pixel."""
        row = 0 if self.context.background else -1
        return (self.total[row] / self.count[row]).to(self.context.model.mean.dtype)
