"""FairCL (NeurIPS 2023): prototypes against forgetting, class distribution for fairness, structural consistency.

L = L_seg + λ_cluster·L_cluster + λ_class·L_class + λ_cons·L_cons
"""

from __future__ import annotations

from typing import Literal, Self

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor

from faircl import kernels
from faircl.config.components import Init
from faircl.distributed import global_sum
from faircl.labels import BACKGROUND, IGNORE, UNLABELLED
from faircl.loading.assigned_labels import AssignedLabels
from faircl.loading.batch import Batch
from faircl.losses import (
    class_histogram,
    cluster_loss,
    consistency_loss,
    importance_weights,
    kl_from_uniform,
    literal_class_loss,
    logit_offset,
)
from faircl.losses.consistency import ConsistencyForm
from faircl.methods.assignment import Assignment, RejectingAssigner, assign_by_prototype, assign_by_softmax
from faircl.methods.base import Method, MethodConfig, Scanned, StepContext, Terms, to_stride
from faircl.methods.faircl.bound import both_sides
from faircl.models.inlet import Inlet, with_inlet
from faircl.models.segmenter import Segmenter, SegOutput
from faircl.prototypes import PrototypeBank, sample_keys

Unlabelled = Literal["assigned", "teacher", "online", "unbiased", "ignore", "background"]
REFERENCE_WIDTH = 256  # the embedding width the paper's margin of 10 was set at


class FairCLConfig(MethodConfig):
    """Hyper-parameters of FairCL. A weight of zero switches its term off."""

    name: str = "faircl"
    init: Init = Field(
        "prototype",
        description="start of new classes' classifier at later steps: random, background (MiB) or prototype",
    )
    lambda_cluster: float = Field(0.02, ge=0, description="weight of L_cluster")
    lambda_class: float = Field(1.0, ge=0, description="weight of L_class")
    lambda_cons: float = Field(1.0, ge=0, description="weight of L_cons")

    unlabelled: Unlabelled = Field(
        "assigned",
        description="unlabelled pixels at later steps: assigned (labelled once by the model before the step), teacher "
        "(labelled by it at every iteration), online (by the current network), unbiased (background stands for all "
        "old classes), ignore, background",
    )
    assign: Literal["prototype", "softmax"] = Field(
        "softmax", description="assign unlabelled pixels to the closest prototype (the paper) or by the classifier"
    )
    reject: float = Field(0.0, ge=0, lt=1, description="share of each class's assigned pixels dropped as doubtful")

    embedding: Literal["decoder", "backbone"] = Field("decoder", description="features clustered")
    normalise: bool = Field(False, description="cluster unit-length features; needs a margin of at most 2")
    margin: float = Field(10.0, gt=0, description="Δ, hinge margin between a feature and another class's prototype")
    scale_margin: bool = Field(True, description="use Δ·√(D/256) for an embedding of width D")
    distance_order: float = Field(2.0, ge=1, description="order of the norm ℓ; 2 is Euclidean")
    pull: float = Field(1.0, ge=0, description="weight of the pull to the own prototype within L_cluster")
    push: float = Field(1.0, ge=0, description="weight of the push from other prototypes within L_cluster")
    momentum: float = Field(0.99, ge=0, le=1, description="η, momentum of a prototype")
    domain_prototypes: Literal["momentum", "anchor"] = Field(
        "momentum",
        description="prototypes on domain steps, which add no class: momentum (they go on moving, by domain_momentum) "
        "or anchor (they stay, and draw the new domain's features to the old clusters)",
    )
    domain_momentum: float = Field(0.999, ge=0, le=1, description="η on domain steps")
    period: int = Field(5, ge=1, description="M, iterations before the first mean and between updates")
    queue: int = Field(500, ge=1, description="L, features kept per class")
    quota: int = Field(100, ge=1, description="features added per class and batch, at most")

    fairness: Literal["importance", "adjust", "kl", "literal"] = Field("importance", description="reading of L_class")
    gamma: float = Field(0.5, ge=0, description="γ, exponent of the importance weight (q/p)^γ")
    clip: tuple[float, float] = Field((0.2, 5.0), description="bounds of the importance weight")
    cap_assigned: bool = Field(False, description="cap the importance weight at 1 on assigned pixels")
    histogram_momentum: float = Field(0.0, ge=0, lt=1, description="momentum of p̂ across batches for kl and literal")

    consistency: ConsistencyForm = Field("smooth", description="reading of L_cons; literal is anti-smoothing")
    sigma_x: float = Field(0.1, gt=0, description="σ1, colour scale of L_cons, RGB in [0, 1]")
    sigma_y: float = Field(0.5, gt=0, description="σ2, prediction scale of L_cons")
    window: int = Field(3, ge=3, description="side of L_cons's neighbourhood, odd")

    bound: bool = Field(
        False,
        description="record both sides of Proposition 1 while training; runs the old network on every batch",
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.normalise and (self.margin > 2 or self.scale_margin):
            raise ValueError("unit vectors are at most 2 apart: with normalise set margin ≤ 2 and scale_margin false")
        if self.reject > 0 and self.unlabelled != "assigned":
            raise ValueError(f"reject needs unlabelled: assigned, found {self.unlabelled}")
        if self.fairness == "importance" and self.lambda_class > 1:
            raise ValueError(
                "with fairness importance, lambda_class blends from plain (0) to weighted (1) cross-entropy, found "
                f"{self.lambda_class}; raise gamma to weigh rare classes more"
            )
        if self.bound and not self.uses_prototypes():
            raise ValueError(
                "bound needs prototypes, and without lambda_cluster nothing keeps them; set lambda_cluster to a tiny "
                "value, such as 1e-9"
            )
        if self.window % 2 == 0:
            raise ValueError(f"window must be odd, found {self.window}")
        if not 0 < self.clip[0] <= self.clip[1]:
            raise ValueError(f"clip must be 0 < low ≤ high, found {self.clip}")
        return self

    def uses_prototypes(self) -> bool:
        """Whether prototypes are kept: for L_cluster, or to assign labels by."""
        assigns = self.assign == "prototype" and self.unlabelled in ("assigned", "teacher", "online")
        return self.lambda_cluster > 0 or assigns


class FairCL(Method):
    """The paper's method; every reading of it is a hyper-parameter.

    State: the prototype bank; ``share`` (K,), the class distribution p, each class as the step that labelled it saw
    it; ``counted``, the pixels that p was taken from; ``predicted`` (K,), the running histogram p̂; ``facts``, the
    step's old classes, its label of unlabelled pixels, its updates so far and whether it is a domain step; these
    are also plain numbers, so that reading them never waits for a device.

    On domain steps no class is added and none is hidden: (1) prototypes go on from where they are, slowly, or stay as
    anchors; without a background class there is no p_0 to move; (2) p is taken over all domains so far; (3) every pixel
    has its label, so nothing is assigned and no teacher is run.
    """

    Config = FairCLConfig
    name = "faircl"
    summary = "prototype clustering, fairness from the class distribution, structural consistency; one pass"
    paper = "FairCL, NeurIPS 2023"
    needs = "one look at the step's images by the old network; a prototype per class"
    takes_short_logits = True

    share: Tensor
    counted: Tensor
    predicted: Tensor
    facts: Tensor

    def __init__(self, config: FairCLConfig, model: Segmenter) -> None:
        super().__init__(config, model)
        self.config = config
        self.uses_stages = config.embedding == "backbone" or type(self) is not FairCL
        width = model.embedding_width if config.embedding == "decoder" else model.stage_widths[-1]
        self.margin = config.margin * ((width / REFERENCE_WIDTH) ** 0.5 if config.scale_margin else 1.0)
        self.bank = PrototypeBank(width, config.queue, config.period, config.momentum)
        self.register_buffer("share", torch.zeros(0))
        self.register_buffer("predicted", torch.zeros(0))
        self.register_buffer("counted", torch.zeros((), dtype=torch.int64))
        self.register_buffer("facts", torch.tensor([0, UNLABELLED, 0, 0]))
        self.restored()

    def restored(self) -> None:
        """Read the step's facts back."""
        self.old_classes, self.unlabelled_label, self.done, self.domain = self.facts.tolist()
        self.bank.restored()

    # Steps

    def needs_teacher(self, context: StepContext) -> bool:
        """Ask for the old network under the treatment ``teacher``, where pixels are unlabelled, and for ``bound``."""
        labels = not context.domain and self.config.unlabelled == "teacher"
        return context.step > 0 and (labels or self.config.bound)

    def step0_key(self) -> dict[str, object]:
        """Treatments of unlabelled pixels and measures do not touch the first step."""
        later = {"unlabelled", "assign", "reject", "cap_assigned", "init", "domain_prototypes", "domain_momentum"}
        key = self.config.model_dump(mode="json", exclude=later | {"bound"})
        return {"method": key, "bank": self.config.uses_prototypes()}

    def begin_step(self, context: StepContext) -> None:
        """Assign labels with the old model, then grow the classifier, the bank and the class distribution."""
        self.facts.copy_(torch.tensor([context.old_classes, context.unlabelled, 0, int(context.domain)]))
        self.restored()
        self._assigner = RejectingAssigner(context.old_classes, self.config.reject)
        super().begin_step(context)
        pixels = context.label_pixels.double()
        if self.wants_scan(context):
            context.assigned = AssignedLabels()
            kept = self._assigner.store(context.assigned)
            if context.unlabelled == BACKGROUND:
                # What no old class claimed is background; the step's mask alone calls old classes background too.
                pixels[BACKGROUND] = int(kept[BACKGROUND])
        if context.domain:
            self.bank.begin_domain_step(self.config.domain_prototypes == "anchor", self.config.domain_momentum)
            self._join_share(context, pixels)
        else:
            self.bank.begin_step(context.classes, context.background)
            self._grow_share(context, pixels)
        self.predicted = torch.full_like(self.share, 1 / len(self.share))

    def wants_scan(self, context: StepContext) -> bool:
        """Only the treatment ``assigned`` looks at the step's images beforehand, and only where they hide something."""
        return context.step > 0 and not context.domain and self.config.unlabelled == "assigned"

    def see(self, scanned: Scanned, context: StepContext) -> None:
        """Label every unlabelled pixel of the step's images, once."""
        if self.wants_scan(context):
            size = scanned.labels.shape[-2:]
            assignment = self._assignment(scanned.output, size, doubt=self.config.reject > 0)
            self._assigner.add(scanned.ids, assignment, scanned.labels == context.unlabelled)

    def _grow_share(self, context: StepContext, pixels: Tensor) -> None:
        """Give new classes this step's pixel share; old ones keep theirs, the background follows what is known of it.

        Only a step that tells background from old classes (the first, one with assigned labels, or one that hides
        no class) can renew the background's share.
        """
        seen = (pixels / max(context.pixels, 1)).to(self.share)
        share = torch.cat([self.share, seen[context.old_classes :]])
        hidden = context.step > 0 and context.unlabelled == BACKGROUND
        if context.background and (not hidden or self.config.unlabelled == "assigned"):
            share[BACKGROUND] = seen[BACKGROUND]
        self.share = share
        self.counted.fill_(context.pixels)

    def _join_share(self, context: StepContext, pixels: Tensor) -> None:
        """Take p over all domains so far: p ← (n·p + n_t·p_t) / (n + n_t), n counting pixels.

        One city may lack a class altogether; the network will still meet it.
        """
        before = int(self.counted)
        total = max(before + context.pixels, 1)
        self.share = ((self.share.double() * before + pixels.to(self.share.device)) / total).to(self.share)
        self.counted.fill_(before + context.pixels)

    def end_step(self, context: StepContext) -> None:
        """Leave every class that was seen with a prototype."""
        self.bank.finish_step()

    # Iterations

    def targets(self, batch: Batch, out: SegOutput, old: SegOutput | None) -> Tensor:
        """Replace unlabelled pixels as ``unlabelled`` says; at the first step they are background."""
        treatment = self.config.unlabelled
        if self.old_classes == 0 or self.domain or treatment in ("background", "unbiased"):
            return super().targets(batch, out, old)
        unlabelled = batch.labels == self.unlabelled_label  # a step has no other
        if treatment == "ignore":
            return batch.labels.masked_fill(unlabelled, IGNORE)
        return torch.where(unlabelled, self._replacement(batch, out, old), batch.labels)

    def _replacement(self, batch: Batch, out: SegOutput, old: SegOutput | None) -> Tensor:
        if self.config.unlabelled == "assigned":
            assert batch.assigned is not None, "begin_step assigns labels for every later step"
            return batch.assigned
        source = old if self.config.unlabelled == "teacher" else out
        assert source is not None, "the engine runs the teacher that needs_teacher asks for"
        return self._assignment(source, batch.labels.shape[-2:]).labels

    def _assignment(self, output: SegOutput, size: torch.Size, doubt: bool = False) -> Assignment:
        """Assign pixels to the old channels, p_0 among them."""
        known = self.old_classes
        if self.config.assign == "softmax":
            return assign_by_softmax(output.logits[:, :known], size, doubt=doubt)
        prototypes, ready = self.bank.prototypes[:known], self.bank.ready[:known]
        order = self.config.distance_order
        return assign_by_prototype(self._features(output), prototypes, ready, size, order=order, doubt=doubt)

    def losses(self, batch: Batch, out: SegOutput, old: SegOutput | None, targets: Tensor) -> Terms:
        """Return the terms whose weight is not zero."""
        c = self.config
        scored, inlet = self._scored(out)
        terms = {"seg": self._seg(batch, out._replace(logits=scored), targets)}
        if c.lambda_cluster > 0:
            terms["cluster"] = c.lambda_cluster * self._cluster(batch, out, targets)
        if c.lambda_class > 0 and c.fairness in ("kl", "literal"):
            terms["class"] = c.lambda_class * self._predicted_fairness(out, targets)
        if c.lambda_cons > 0:
            valid = to_stride(batch.labels, out.logits.shape[-2:]) != IGNORE
            terms["cons"] = c.lambda_cons * consistency_loss(
                batch.image, out.logits, valid, c.sigma_x, c.sigma_y, c.window, c.consistency, inlet
            )
        return terms

    def _scored(self, out: SegOutput) -> tuple[Tensor, Inlet | None]:
        """Return logits for cross-entropy alone, and where L_cons may add to their gradient."""
        fits = self.config.lambda_cons > 0 and out.logits.requires_grad and kernels.usable(out.logits)
        # A cross-entropy of somebody else's may hand one gradient to several maps.
        own = type(self)._seg is FairCL._seg and type(self).cross_entropy is Method.cross_entropy
        return with_inlet(out.logits) if fits and own else (out.logits, None)

    def _seg(self, batch: Batch, out: SegOutput, targets: Tensor) -> Tensor:
        """Cross-entropy, carrying the two readings of L_class that act inside it.

        ``importance``: λ·(w_y − 1)·CE added to CE is CE weighted by 1 + λ·(w_y − 1).
        """
        c = self.config
        weight = offset = pixel_weight = None
        share = self.share / self.share.sum()
        if c.lambda_class > 0 and c.fairness == "importance":
            weight = 1 + c.lambda_class * (importance_weights(share, c.gamma, c.clip) - 1)
            if c.cap_assigned and self.old_classes > 0:
                assigned = (batch.labels == self.unlabelled_label) & (targets != IGNORE)
                over = weight.clamp_min(1)[targets.where(assigned, 0)]
                pixel_weight = torch.where(assigned, 1 / over, 1.0)
        elif c.lambda_class > 0 and c.fairness == "adjust":
            offset = logit_offset(share, c.lambda_class)
        grouped = self.old_classes if c.unlabelled == "unbiased" and self.unlabelled_label != UNLABELLED else 0
        return self.cross_entropy(
            out.logits, targets, class_weight=weight, offset=offset, pixel_weight=pixel_weight, grouped=grouped
        )

    def _cluster(self, batch: Batch, out: SegOutput, targets: Tensor) -> Tensor:
        """Algorithm 1: no loss before M iterations of the step."""
        if self.done < self.config.period:
            return out.embedding.new_zeros(())
        features, labels = self._clustered(batch, out, targets)
        c, bank = self.config, self.bank
        inlet = out.inlet if features is out.embedding else None
        loss = cluster_loss(features, labels, bank.prototypes, bank.ready, self.margin, c.distance_order, inlet)
        return c.pull * loss.pull + c.push * loss.push

    def _clustered(self, batch: Batch, out: SegOutput, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Features (B, D, h, w) and labels (B, h, w) at network stride.

        Under ``unbiased`` the segmentation loss needs no label for unlabelled pixels, but a cluster does: one of p_0
        and the old classes, chosen as ``assign`` says.
        """
        features = self._features(out)
        labels = to_stride(targets, features.shape[-2:])
        if self.config.unlabelled == "unbiased" and self.old_classes > 0 and not self.domain:
            closest = self._assignment(out, features.shape[-2:]).labels
            labels = labels.where(to_stride(batch.labels, features.shape[-2:]) != self.unlabelled_label, closest)
        return features, labels

    def _features(self, out: SegOutput) -> Tensor:
        features = out.embedding if self.config.embedding == "decoder" else out.stages[-1]
        if not self.config.normalise:
            return features
        return F.normalize(features.to(torch.promote_types(features.dtype, torch.float32)), dim=1)

    def _predicted_fairness(self, out: SegOutput, targets: Tensor) -> Tensor:
        histogram, seen = self._histogram(out, targets)
        loss = (kl_from_uniform if self.config.fairness == "kl" else literal_class_loss)(histogram)
        return loss * seen

    def _histogram(self, out: SegOutput, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return p̂ = m·(running p̂) + (1 − m)·(the batch's), and whether the batch has a valid pixel."""
        valid = to_stride(targets, out.logits.shape[-2:]) != IGNORE
        m = self.config.histogram_momentum
        histogram = m * self.predicted + (1 - m) * class_histogram(out.logits, valid)
        return histogram, global_sum(valid.sum()) > 0

    def measures(self, batch: Batch, out: SegOutput, old: SegOutput | None, targets: Tensor) -> Terms:
        """Both sides of Proposition 1, in the features and by the labels and prototypes of L_cluster."""
        if not self.config.bound or old is None:
            return {}
        features, labels = self._clustered(batch, out, targets)
        bank, order = self.bank, self.config.distance_order
        return both_sides(features, self._features(old), labels, bank.prototypes, bank.ready, order).means()

    @torch.no_grad()
    def observe(self, batch: Batch, out: SegOutput, targets: Tensor, iteration: int) -> None:
        """Add the batch's features to the queues S_c, its predictions to the running histogram."""
        if self.config.fairness in ("kl", "literal") and self.config.histogram_momentum > 0:
            histogram, seen = self._histogram(out, targets)
            self.predicted = torch.where(seen, histogram, self.predicted)
        if self.config.uses_prototypes():
            features, labels = self._clustered(batch, out, targets)
            keys = sample_keys(batch.draws, features.shape[-2], features.shape[-1])
            self.bank.push(features, labels.flatten(), keys, self.config.quota)

    def after_update(self, iteration: int) -> None:
        """Move the prototypes every M iterations."""
        self.done = iteration
        self.facts[2].fill_(iteration)  # by assignment some versions of torch copy it from the host, and wait
        if self.config.uses_prototypes():
            self.bank.update(iteration)
