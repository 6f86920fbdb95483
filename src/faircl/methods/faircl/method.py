"""FairCL (NeurIPS 2023): prototypes against forgetting, class distribution for fairness, structural consistency.

L = L_seg + λ_replay·L_replay + λ_cluster·L_cluster + λ_class·L_class + λ_cons·L_cons + λ_iou·L_iou
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from faircl.labels import BACKGROUND, IGNORE, UNLABELLED
from faircl.loading.batch import Batch, SoftTargets
from faircl.losses import cluster_loss, consistency_loss
from faircl.losses.replay import replay_loss
from faircl.methods.assignment import Assignment, assign_by_prototype, assign_by_softmax
from faircl.methods.base import Method, Needs, ScannedBatch, StepContext, Terms
from faircl.methods.faircl.bound import both_sides
from faircl.methods.faircl.class_distribution import ClassDistribution
from faircl.methods.faircl.class_term import class_distance, predicted_term, weight_and_offset
from faircl.methods.faircl.config import LEFT_OUT, FairCLConfig, FairCLPaperConfig
from faircl.methods.faircl.feature_memory import FeatureMemory
from faircl.methods.faircl.iou_term import iou_term
from faircl.methods.faircl.soft_term import with_soft_labels
from faircl.methods.faircl.step_labels import StepLabels
from faircl.methods.faircl.unknown_cluster import UnknownCluster
from faircl.methods.faircl.weight_average import WeightAverage
from faircl.methods.feature_grid import to_stride, valid_pixels
from faircl.models.segmenter import Segmenter, SegOutput
from faircl.precision import at_least_float32
from faircl.prototypes import PrototypeBank, sample_keys

REFERENCE_WIDTH = 256  # the embedding width that the paper's margin of 10 was set at


class FairCL(Method):
    """The paper's method. Where its text can be read in several ways, a hyper-parameter selects the reading.

    To add a loss, give FairCLConfig a weight, write a function in faircl/losses that returns a scalar, and add their
    product to the terms in ``losses``. If it reads ``out.stages`` or ``old``, extend ``needs`` or ``needs_teacher``; if
    its weight has no effect at the first step, list it in ``step0_key``. Copy ``out.embedding`` to keep it after an
    update: under CUDA graphs the next forward pass overwrites its memory.

    A domain step adds no class, and every pixel has its label. Prototypes keep moving, with ``domain_momentum``, or
    stay fixed (``domain_prototypes``); p is counted over all domains so far; no pixel is assigned a class.

    State: the prototype bank, that of p_u with ``unknown_cluster``, the class distributions, the features for replay.
    Of the current step: ``protection``, a logit offset (K,) or empty; ``old_classes``, the channels before it;
    ``unlabelled_label``, BACKGROUND or UNLABELLED; ``updates`` so far; ``domain``, whether it is a domain step;
    ``hides_classes``, whether unlabelled pixels may show old classes. Soft labels are not state: they come with the
    batches, and a resumed step computes them again.
    """

    protection: Tensor

    Config = FairCLConfig
    name = "faircl"
    summary = "soft labels of fixed windows, prototype replay, class weights and IoU for fairness; one pass"
    paper = "FairCL, NeurIPS 2023"
    needs = Needs("one scan of the step's windows by the old network; features of every class")
    saved_numbers = ("old_classes", "unlabelled_label", "updates", "domain", "hides_classes")

    def __init__(self, config: FairCLConfig, model: Segmenter) -> None:
        super().__init__(config, model)
        self.config = config
        self.needs = replace(self.needs, stages=self.needs.stages or config.embedding == "backbone")
        width = model.embedding_width if config.embedding == "decoder" else model.stage_widths[-1]
        self.margin = config.margin * ((width / REFERENCE_WIDTH) ** 0.5 if config.scale_margin else 1.0)
        algorithm = width, config.queue, config.period, config.momentum
        self.bank = PrototypeBank(*algorithm)
        self.unknown: UnknownCluster | None = None
        if config.unknown_cluster:
            self.unknown = UnknownCluster(*algorithm, margin=self.margin, order=config.distance_order)
        self.distribution = ClassDistribution()
        self.memory = FeatureMemory(config.replay, width)
        self.old_classes, self.unlabelled_label, self.updates, self.domain = 0, UNLABELLED, 0, False
        self.hides_classes = self._background = False
        self._average: WeightAverage | None = None
        self.register_buffer("protection", torch.zeros(0))

    def step0_key(self) -> dict[str, object]:
        """Return the settings that act at the first step: all but those of unlabelled pixels, replay and ``bound``."""
        later = {"unlabelled", "assign", "reject", "cap_assigned", "init", "domain_prototypes", "domain_momentum"}
        later |= {"lambda_soft", "protect", "windows", "soft_classes", "average"}
        later |= {"lambda_replay", "replay_batch", "replay_power", "bound"}
        key = self.config.model_dump(mode="json", exclude=later)
        return {"method": key, "bank": self.config.uses_prototypes(), "memory": self.config.lambda_replay > 0}

    # The loss

    def losses(self, batch: Batch, out: SegOutput, old: SegOutput | None, targets: Tensor) -> Terms:
        """Return the terms whose weight is not 0.

        L_class is a term of its own under ``fairness: kl`` and ``literal``; ``importance`` and ``adjust`` change L_seg.
        """
        c = self.config
        terms = {"seg": self._segmentation(batch, out, targets)}
        if c.lambda_replay > 0 and self.old_classes > 0 and not self.domain:
            terms["replay"] = c.lambda_replay * self._replay()
        if c.lambda_cluster > 0:
            terms["cluster"] = c.lambda_cluster * self._cluster(batch, out, targets)
        if c.lambda_class > 0 and c.fairness in ("kl", "literal"):
            terms["class"] = c.lambda_class * self._class(batch, out, targets)
        if c.lambda_iou > 0:
            terms["iou"] = c.lambda_iou * self._iou(batch, out, targets)
        if c.lambda_cons > 0:
            terms["cons"] = c.lambda_cons * self._consistency(batch, out)
        return terms

    def _segmentation(self, batch: Batch, out: SegOutput, targets: Tensor) -> Tensor:
        """L_seg: cross-entropy with the class weights (K,) and logit offsets (K,) of L_class and ``protect``."""
        c, left_out = self.config, self.hides_classes and self.config.unlabelled in LEFT_OUT
        weight, offset = weight_and_offset(c, self.distribution.normalised(), self._background and not left_out)
        if len(self.protection) > 0:
            offset = self.protection if offset is None else offset + self.protection
        pixel_weight = None
        if weight is not None and c.cap_assigned and self.hides_classes:
            # w_y · 1/max(w_y, 1) = min(w_y, 1) at assigned pixels.
            assigned = (batch.labels == self.unlabelled_label) & (targets != IGNORE)
            pixel_weight = torch.where(assigned, 1 / weight.clamp_min(1)[targets.where(assigned, 0)], 1.0)
        # Under ``unbiased`` the probability of the background label is the sum over background and old classes.
        grouped = self.old_classes if c.unlabelled == "unbiased" and self.unlabelled_label != UNLABELLED else 0
        loss = self.cross_entropy(
            out.logits, targets, class_weight=weight, offset=offset, pixel_weight=pixel_weight, grouped=grouped
        )
        if not self._has_soft_labels():
            return loss
        unlabelled = batch.labels == self.unlabelled_label
        return with_soft_labels(
            loss, out.logits, batch.labels, unlabelled, self._soft_labels(batch), weight, c.lambda_soft
        )

    def fair_segmentation(self, logits: Tensor, targets: Tensor) -> Tensor:
        """L_seg of plain labels together with λ_class·L_class, whichever its reading; without ``background_offset``."""
        weight, offset = weight_and_offset(self.config, self.distribution.normalised())
        loss = self.cross_entropy(logits, targets, class_weight=weight, offset=offset)
        return loss + predicted_term(self.config, logits, targets)

    def _has_soft_labels(self) -> bool:
        """Whether the scan of this step makes soft labels, of fixed windows; its batches then have them."""
        return self.config.unlabelled == "soft" and self.hides_classes

    def _soft_labels(self, batch: Batch) -> SoftTargets:
        assert batch.soft is not None, "begin_step makes soft labels for every later step"
        return batch.soft

    def _replay(self) -> Tensor:
        """L_replay: the classifier's loss on stored features of old classes and queued ones of this step's classes."""
        c = self.config
        features, valid = self.memory.draw(self.bank, self.updates, c.replay_batch)
        share = self.distribution.normalised().clamp_min(torch.finfo(self.distribution.share.dtype).tiny)
        return replay_loss(self._classify(features), valid, share**c.replay_power)

    def _iou(self, batch: Batch, out: SegOutput, targets: Tensor) -> Tensor:
        """L_iou; pixels that stand for background and old classes together (``unbiased``) do not count."""
        unlabelled = batch.labels == self.unlabelled_label
        if self.hides_classes and self.config.unlabelled == "unbiased":
            targets = targets.masked_fill(unlabelled, IGNORE)
        soft = self._soft_labels(batch) if self._has_soft_labels() else None
        return iou_term(out.logits, targets, unlabelled, soft, self.protection if len(self.protection) > 0 else None)

    def _cluster(self, batch: Batch, out: SegOutput, targets: Tensor) -> Tensor:
        """L_cluster (Eqn 8-9); 0 in the first M iterations of a step (Algorithm 1)."""
        if self.updates < self.config.period:
            return out.embedding.new_zeros(())
        features, labels = self._clustered(batch, out, targets)
        c = self.config
        loss = cluster_loss(features, labels, *self._prototypes(), self.margin, c.distance_order)
        return c.pull * loss.pull + c.push * loss.push

    def _prototypes(self) -> tuple[Tensor, Tensor]:
        """Return the prototypes of L_cluster and which of them have a value; p_u, where it is kept, is the last."""
        return (self.bank.prototypes, self.bank.ready) if self.unknown is None else self.unknown.beside(self.bank)

    def _class(self, batch: Batch, out: SegOutput, targets: Tensor) -> Tensor:
        """L_class of the predicted class distribution p̂, ``kl`` or ``literal``; 0 for a batch without a valid pixel."""
        counted = self._counted(batch, targets)
        histogram, seen = self.distribution.histogram(out.logits, counted, self.config.histogram_momentum)
        return class_distance(self.config, histogram) * seen

    def _counted(self, batch: Batch, targets: Tensor) -> Tensor:
        """Return labels (B, H, W) that are IGNORE at pixels left out of p̂; pixels with a soft label are counted."""
        return batch.labels if self._has_soft_labels() else targets

    def _consistency(self, batch: Batch, out: SegOutput) -> Tensor:
        """L_cons (Eqn 14-15)."""
        c = self.config
        valid = valid_pixels(batch, out.logits.shape[-2:])
        return consistency_loss(batch.image, out.logits, valid, c.sigma_x, c.sigma_y, c.window, c.consistency)

    # Labels and features

    def targets(self, batch: Batch, out: SegOutput, old: SegOutput | None) -> Tensor:
        """Return labels (B, H, W) in which unlabelled pixels are treated as ``unlabelled`` says.

        They keep their label under ``background`` and ``unbiased``, and at steps that hide no class; they are IGNORE
        under ``soft``, ``paper`` and ``ignore``; they get one of the old classes under ``assigned`` (from the scan),
        ``teacher`` (from the old network) and ``online`` (from the network itself).
        """
        treatment = self.config.unlabelled
        if not self.hides_classes or treatment in ("background", "unbiased"):
            return super().targets(batch, out, old)
        unlabelled = batch.labels == self.unlabelled_label
        if treatment in LEFT_OUT:
            return batch.labels.masked_fill(unlabelled, IGNORE)
        if treatment == "assigned":
            assert batch.assigned is not None, "begin_step assigns labels for every later step"
            given = batch.assigned
        else:
            source = old if treatment == "teacher" else out
            assert source is not None, "the engine runs the teacher that needs_teacher asks for"
            given = self._assignment(source, batch.labels.shape[-2:]).labels
        return torch.where(unlabelled, given, batch.labels)

    def _assignment(self, output: SegOutput, size: torch.Size, doubt: bool = False) -> Assignment:
        """Assign every pixel of ``size`` (H, W) to p_0 or an old class, by classifier or closest prototype."""
        known = self.old_classes
        if self.config.assign == "softmax" and self.config.unlabelled != "paper":
            return assign_by_softmax(output.logits[:, :known], size, doubt=doubt)
        prototypes, ready = self.bank.prototypes[:known], self.bank.ready[:known]
        order = self.config.distance_order
        return assign_by_prototype(self.features_of(output), prototypes, ready, size, order=order, doubt=doubt)

    def _clustered(self, batch: Batch, out: SegOutput, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return features (B, D, h, w) and labels (B, h, w) at network stride, for L_cluster and the queues.

        Three treatments leave unlabelled pixels without a class in ``targets``; here they get one: under ``soft`` the
        likeliest class of the soft label, under ``unbiased`` and ``paper`` that of ``_assignment``. With
        ``unknown_cluster`` some unlabelled pixels then change to the label K of the unknown cluster.
        """
        features = self.features_of(out)
        size, treatment = features.shape[-2:], self.config.unlabelled
        labels, unlabelled = to_stride(targets, size), to_stride(batch.labels, size) == self.unlabelled_label
        if self.hides_classes and treatment in ("soft", "unbiased", "paper"):
            given = self._soft_labels(batch).likeliest() if treatment == "soft" else self._assignment(out, size).labels
            labels = labels.where(~unlabelled, to_stride(given, size))
        if self.unknown is not None:
            labels = self.unknown.mark(features, labels, unlabelled, self.bank, self.hides_classes)
        return features, labels

    def features_of(self, out: SegOutput) -> Tensor:
        """Return the features f (B, D, h, w) that are clustered."""
        features = out.embedding if self.config.embedding == "decoder" else out.stages[-1]
        if not self.config.normalise:
            return features
        return F.normalize(at_least_float32(features), dim=1)

    # Steps

    def needs_teacher(self, context: StepContext) -> bool:
        """Whether ``unlabelled: teacher`` or ``bound`` needs the old network at this step."""
        labels = context.hides_classes and self.config.unlabelled == "teacher"
        return labels or (context.step > 0 and self.config.bound)

    def needs_scan(self, context: StepContext) -> bool:
        """Whether ``unlabelled: soft`` or ``assigned`` needs a scan by the old network at this step."""
        return context.hides_classes and self.config.unlabelled in ("soft", "assigned")

    def soft_label_bytes(self, images: int, visits: int, cells: int) -> int:
        """Return the bytes of a step's soft labels: a byte for a class, one for its share."""
        c = self.config
        return 2 * c.soft_classes * cells * min(c.windows * images, visits) if c.unlabelled == "soft" else 0

    def begin_step(self, context: StepContext) -> None:
        """Label unlabelled pixels with the old network, then grow classifier, bank and class distributions."""
        self.old_classes, self.unlabelled_label = context.old_classes, context.unlabelled
        self.updates, self.domain, self.hides_classes = 0, context.domain, context.hides_classes
        self._background, self._classify = context.background, context.model.classifier.classify
        averages = self.config.average > 0 and context.step > 0 and not context.domain
        self._average = WeightAverage(context.model, self.config.average) if averages else None
        context.windows = self.config.windows if self._has_soft_labels() else 0
        self._labels = StepLabels(self.config, context, partial(self._assignment, doubt=self.config.reject > 0))
        super().begin_step(context)  # runs the scan, which calls scan_batch, and grows the classifier
        label_pixels = context.label_pixels.double()
        if self.needs_scan(context):
            # The masks of the step label old classes as background; the scan counts the background without them.
            background = self._labels.store()
            if context.unlabelled == BACKGROUND:
                label_pixels[BACKGROUND] = background
            self.protection = self._labels.protection().to(self.protection)
        for bank in self._banks():
            if context.domain:
                bank.begin_domain_step(self.config.domain_prototypes == "anchor", self.config.domain_momentum)
            else:  # with an unknown cluster p_u, the background's prototype is frozen after step 0 like any other
                bank.begin_step(context.classes, context.background and self.unknown is None)
        self.distribution.begin_step(context, label_pixels, self.needs_scan(context))

    def _banks(self) -> tuple[PrototypeBank, ...]:
        return (self.bank,) if self.unknown is None else (self.bank, self.unknown)

    def scan_batch(self, scanned: ScannedBatch, context: StepContext) -> None:
        """Label every unlabelled pixel of the step's images, or of their fixed windows."""
        if self.needs_scan(context):
            self._labels.add(scanned)

    def end_step(self, context: StepContext) -> None:
        """Average the weights; store features of the step's classes for replay, finish prototypes, free the queues."""
        if self._average is not None:
            self._average.apply(context)
            self._average = None
        if self.config.lambda_replay > 0:
            self.memory.keep(self.bank)
        for bank in self._banks():
            bank.finish_step()
        self.protection = self.protection.new_zeros(0)
        context.soft = None  # may hold gigabytes

    # After a backward pass

    def measures(self, batch: Batch, out: SegOutput, old: SegOutput | None, targets: Tensor) -> Terms:
        """Return both sides of Proposition 1, with the features, labels and prototypes of L_cluster."""
        if not self.config.bound or old is None:
            return {}
        features, labels = self._clustered(batch, out, targets)
        order = self.config.distance_order
        return both_sides(features, self.features_of(old), labels, *self._prototypes(), order).means()

    @torch.no_grad()
    def observe(self, batch: Batch, out: SegOutput, targets: Tensor, iteration: int) -> None:
        """Add the batch's predictions to the running p̂ and its features to the queues S_c."""
        if self.config.fairness in ("kl", "literal") and self.config.histogram_momentum > 0:
            counted = self._counted(batch, targets)
            self.distribution.observe(out.logits, counted, self.config.histogram_momentum)
        if self.config.uses_prototypes():
            features, labels = self._clustered(batch, out, targets)
            keys = sample_keys(batch.draws, features.shape[-2], features.shape[-1])
            self.bank.push(features, labels.flatten(), keys, self.config.quota)
            if self.unknown is not None:
                self.unknown.push_marked(features, labels.flatten(), self.bank, keys, self.config.quota)

    def after_update(self, iteration: int) -> None:
        """Update the prototypes (Algorithm 1), which happens every M iterations."""
        self.updates = iteration
        if self.config.uses_prototypes():
            for bank in self._banks():
                bank.update(iteration)


class FairCLPaper(FairCL):
    """FairCL with the terms of the paper only; its defaults are the readings that worked best."""

    Config = FairCLPaperConfig
    name = "faircl-paper"
    summary = "the paper's three losses in their best reading, labels assigned once; one pass"
    needs = Needs("one scan of the step's images by the old network; a prototype per class")
