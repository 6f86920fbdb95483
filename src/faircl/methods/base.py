"""The method contract: what a continual method is given, and what it must return.

A method turns a batch and the network's output into named loss terms. It never calls backward, never steps an
optimiser, never moves a network, writes a file or logs; the engine does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch import Tensor, nn

from faircl.config.components import MethodConfig as MethodConfig
from faircl.labels import IGNORE, UNLABELLED
from faircl.loading.assigned_labels import AssignedLabels
from faircl.loading.batch import Batch
from faircl.loading.soft_labels import SoftLabels
from faircl.losses import upsampled_cross_entropy
from faircl.losses.binary import upsampled_binary_cross_entropy
from faircl.methods.balance import Balance
from faircl.methods.class_means import ClassMeans
from faircl.methods.needs import Needs as Needs
from faircl.models.segmenter import Segmenter, SegOutput
from faircl.seeding import seeded

Terms = dict[str, Tensor]


class ScannedBatch(NamedTuple):
    """Whole training images of a step, or its fixed windows, and the network's output for them.

    Shapes: labels (B, H, W) int64; output at network stride; ids, the B images' ids; windows, the numbers of the B
    fixed windows, None for whole images.
    """

    ids: list[str]
    labels: Tensor
    output: SegOutput
    windows: list[int] | None = None


@dataclass
class StepContext:
    """What a method is told about a step; in ``begin_step`` it may set ``windows``, ``assigned`` and ``soft``."""

    step: int
    old_classes: int
    """Channels before the step, background included."""
    classes: int
    """Channels after the step, K."""
    background: bool
    """Whether channel 0 is a background class."""
    unlabelled: int
    """Label of unlabelled pixels: BACKGROUND or UNLABELLED."""
    seed: int
    model: Segmenter
    """The network; it has the weights of the step before until ``begin_step`` grows its classifier."""
    label_pixels: Tensor
    """Pixels of every label that is visible at this step, (K,)."""
    label_images: Tensor
    """Images that show each of these labels, (K,)."""
    pixels: int
    """All pixels of the step's images that are not ignored."""
    scan: Callable[..., Iterator[ScannedBatch]]
    """``scan()`` runs ``model`` over this process's share of the step's training images, whole, without augmentation,
    in evaluation mode and with its weights at the time of the call.

    ``scan(windows)`` takes that many fixed windows of each image instead, not mirrored, and only those that training
    will show; windows of a replay memory are included, with all labels IGNORE. ``scan(windows, most)`` takes ``most``
    at most, evenly spaced, for all processes together, and none of a replay memory.
    """
    domain: bool = False
    """Whether this is a domain step: no class is new and no pixel is unlabelled."""
    all_labelled: bool = False
    """Whether all classes so far are labelled, as in the sequential setting."""
    earlier_steps: int = 0
    """Steps that the model had learned before the first one here; random numbers count them."""
    windows: int = 0
    """Fixed windows per image to train on, set by the method; 0: a new window at every visit."""
    assigned: AssignedLabels | None = None
    """Labels that the method has assigned to unlabelled pixels of whole images; batches contain them."""
    soft: SoftLabels | None = None
    """Soft labels of the fixed windows, set by the method; batches contain them."""

    @property
    def seed_step(self) -> int:
        """The number of the step in random seeds."""
        return self.earlier_steps + self.step

    @property
    def hides_classes(self) -> bool:
        """Whether unlabelled pixels may show old classes: at later steps, unless all classes so far are labelled."""
        labelled = self.all_labelled or (self.background and self.unlabelled == UNLABELLED)
        return self.step > 0 and not self.domain and not labelled


class Method(nn.Module):
    """Base of all methods.

    The state is its buffers and the attributes that ``saved_numbers`` lists. It is saved after every step and in
    checkpoints within a step. A run that is resumed within a step repeats ``begin_step`` from the state of the step
    before, with a scan that yields fixed windows again but no whole images, and then loads state and network: what a
    scan of whole images gives and what updates change must be part of the state, all else may be any attribute that
    ``begin_step`` sets.
    """

    Config: ClassVar[type[MethodConfig]] = MethodConfig
    name: ClassVar[str]
    summary: ClassVar[str]
    paper: ClassVar[str]
    needs: Needs = Needs()
    """What the engine must provide; set on the instance where it depends on the configuration."""
    joint: ClassVar[bool] = False
    """Whether all classes are learned in a single step."""
    saved_numbers: ClassVar[tuple[str, ...]] = ()
    """Attributes that are part of the state: each a bool, an int or a float."""

    def __init__(self, config: MethodConfig, model: Segmenter) -> None:
        super().__init__()
        self.base_config = config
        self.balance: Balance | None = None

    def set_balance(self, balance: Balance) -> None:
        """Use a balanced segmentation loss; called once, before the first step."""
        self.balance = balance

    def step0_key(self) -> dict[str, object]:
        """Return the method's settings that the first step depends on; runs with equal keys may share that step."""
        return {"method": self.base_config.model_dump(mode="json")}

    # Steps

    def needs_teacher(self, context: StepContext) -> bool:
        """Whether the engine must run the frozen model of the step before on every batch."""
        return False

    def needs_scan(self, context: StepContext) -> bool:
        """Whether ``scan_batch`` must be called with the step's images before the classifier grows."""
        return False

    def scan_batch(self, scanned: ScannedBatch, context: StepContext) -> None:
        """Process a batch of whole training images or fixed windows with the old network's output for them."""

    def soft_label_bytes(self, images: int, visits: int, cells: int) -> int:
        """Return the bytes of the soft labels of a step.

        ``images`` are those of the step and of its replay memory, ``visits`` the windows trained on in all its epochs,
        ``cells`` those of a window at network stride.
        """
        return 0

    def begin_step(self, context: StepContext) -> None:
        """Scan the step's images with the old network where that is needed, then grow the classifier."""
        if self.balance is not None:
            self.balance.begin_step(context)
        new = context.step > 0 and context.classes > context.old_classes
        means = ClassMeans(context) if new and self.base_config.init == "prototype" else None
        if means is not None or self.needs_scan(context):
            for scanned in context.scan(context.windows):
                self.scan_batch(scanned, context)
                if means is not None:
                    means.add(scanned)
        if means is not None:
            means.gather()
        classifier = context.model.classifier
        if context.classes > context.old_classes:
            with seeded(context.seed, "grow", context.seed_step):
                classifier.grow(context.classes - context.old_classes, context.model.mean.device)
        if means is not None:
            classifier.init_from_prototypes(
                means.classes()[context.old_classes :], means.unlabelled(), context.background
            )
        elif new and self.base_config.init == "background" and context.background:
            classifier.init_from_background()

    def end_step(self, context: StepContext) -> None:
        """Merge, fuse or freeze what the step has learned."""

    # Iterations

    def targets(self, batch: Batch, out: SegOutput, old: SegOutput | None) -> Tensor:
        """Return the labels to train on, (B, H, W) int64 with IGNORE; no gradient flows here."""
        return batch.labels.masked_fill(batch.labels == UNLABELLED, IGNORE)

    def losses(self, batch: Batch, out: SegOutput, old: SegOutput | None, targets: Tensor) -> Terms:
        """Return named, weighted terms, the same names on all processes; the engine minimises their sum."""
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
        """Return ``upsampled_cross_entropy``, balanced as configured: the loss of methods that train a softmax."""
        loss = upsampled_cross_entropy if self.balance is None else self.balance.cross_entropy
        return loss(
            logits, targets, class_weight=class_weight, offset=offset, pixel_weight=pixel_weight, grouped=grouped
        )

    def binary_cross_entropy(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the binary cross-entropy, balanced as configured: the loss of methods that train sigmoids."""
        loss = upsampled_binary_cross_entropy if self.balance is None else self.balance.binary_cross_entropy
        return loss(logits, targets)

    def fair_segmentation(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the segmentation loss of plain labels with what acts on classes: weights, offsets, balanced losses.

        What a method does about unlabelled pixels is not in it; ``faircl gradients`` compares it with the plain loss.
        """
        loss = self.binary_cross_entropy if self.needs.sigmoid else self.cross_entropy
        return loss(logits, targets)

    def measures(self, batch: Batch, out: SegOutput, old: SegOutput | None, targets: Tensor) -> Terms:
        """Return named numbers to record beside the terms, not to minimise; no gradient flows here.

        Called when a record is due, before ``observe``. Names are the same on all processes; values are averaged over
        batches and processes as terms are, so a mean over pixels must go through ``global_mean``.
        """
        return {}

    def observe(self, batch: Batch, out: SegOutput, targets: Tensor, iteration: int) -> None:
        """Update statistics from a micro-batch after its backward pass; ``iteration`` counts updates from 1."""

    def after_update(self, iteration: int) -> None:
        """Act after an optimiser step; ``iteration`` counts the step's updates from 1."""


class TeacherMethod(Method):
    """Base of methods that run the frozen model of the step before on every batch, from the second step on."""

    needs = Needs("a frozen copy of the old network, run on every batch")

    def needs_teacher(self, context: StepContext) -> bool:
        """Ask for the old network from the second step on."""
        return context.step > 0
