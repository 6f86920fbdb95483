"""Hyper-parameters of FairCL."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from faircl.config.components import Init, MethodConfig
from faircl.losses.consistency import ConsistencyForm

Unlabelled = Literal["soft", "assigned", "teacher", "online", "unbiased", "paper", "ignore", "background"]
LEFT_OUT = ("soft", "paper", "ignore")
"""Treatments that give unlabelled pixels no label in L_seg: its labels then show no background either."""


class FairCLConfig(MethodConfig):
    """Hyper-parameters of FairCL. A weight of zero switches its term off."""

    name: str = "faircl"
    init: Init = Field(
        "prototype",
        description="start of new classes' classifier at later steps: random, background (MiB) or prototype",
    )
    lambda_soft: float = Field(
        2.0, ge=0, description="weight of unlabelled pixels, against labelled ones, in L_seg under unlabelled: soft"
    )
    lambda_replay: float = Field(1.0, ge=0, description="weight of prototype replay at later steps")
    lambda_cluster: float = Field(0.0, ge=0, description="weight of L_cluster")
    lambda_class: float = Field(1.0, ge=0, description="weight of L_class")
    lambda_cons: float = Field(0.0, ge=0, description="weight of L_cons")
    lambda_iou: float = Field(
        1.0, ge=0, description="weight of L_iou, minus the mean logarithm of the IoU of a batch's classes"
    )

    unlabelled: Unlabelled = Field(
        "soft",
        description="unlabelled pixels at later steps: soft (the class distribution that the model before the step "
        "gives once to every fixed window), assigned (labelled by it once), teacher (labelled by it at every "
        "iteration), online (by the current network), unbiased (background stands for all old classes), paper (ignored "
        "by L_seg, closest prototype in L_cluster), ignore, background",
    )
    protect: float = Field(
        3.0,
        ge=0,
        description="τ, protection of old classes that the model before the step sees in the pixels of new ones, under "
        "unlabelled: soft",
    )
    windows: int = Field(4, ge=1, description="fixed windows per image at later steps under unlabelled: soft")
    soft_classes: int = Field(4, ge=1, description="classes kept per cell of a window under unlabelled: soft")
    replay: int = Field(200, ge=1, description="features kept per class when its step ends, for prototype replay")
    replay_batch: int = Field(32, ge=1, description="features replayed per class and update")
    replay_power: float = Field(0.5, ge=0, description="exponent of a class's weight p^power in prototype replay")
    average: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="share of the network before a step that backbone and decoder keep after it; half of it, or "
        "nothing, where new classes would pay for it",
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
    quota: int = Field(20, ge=1, description="features added per class and batch, at most")
    unknown_cluster: bool = Field(
        False,
        description="keep one more prototype beside the classes', for unknown classes: it takes unlabelled pixels that "
        "are closer to it than to their class's prototype, or farther than Δ from that; acts in L_cluster alone",
    )

    fairness: Literal["importance", "adjust", "kl", "literal"] = Field("importance", description="reading of L_class")
    gamma: float = Field(0.5, ge=0, description="γ, exponent of the importance weight (q/p)^γ")
    clip: tuple[float, float] = Field((0.2, 5.0), description="bounds of the importance weight")
    background_offset: float = Field(
        0.0,
        ge=0,
        description="β, share of the shift from background to classes, which importance weights give the prediction, "
        "that is taken back in training; without effect under other readings, or where data has no background class",
    )
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
        if self.unknown_cluster and self.lambda_cluster == 0:
            raise ValueError(
                "unknown_cluster acts in L_cluster, which lambda_cluster 0 switches off; set lambda_cluster above 0 or "
                "unknown_cluster to false"
            )
        if self.bound and not self.uses_prototypes():
            raise ValueError(
                "bound needs prototypes, and without lambda_cluster and lambda_replay nothing keeps them; set "
                "lambda_cluster to a tiny value, such as 1e-9"
            )
        if self.lambda_replay > 0 and (self.embedding != "decoder" or self.normalise):
            raise ValueError(
                "prototype replay shows features to the classifier, which reads the decoder's embedding as it is; set "
                "lambda_replay to 0, or embedding to decoder and normalise to false"
            )
        if self.window % 2 == 0:
            raise ValueError(f"window must be odd, found {self.window}")
        if not 0 < self.clip[0] <= self.clip[1]:
            raise ValueError(f"clip must be 0 < low ≤ high, found {self.clip}")
        return self

    def uses_prototypes(self) -> bool:
        """Whether prototypes and their queues are kept: for L_cluster, for replay, or to assign labels by."""
        assigns = self.assign == "prototype" and self.unlabelled in ("assigned", "teacher", "online")
        return self.lambda_cluster > 0 or self.lambda_replay > 0 or assigns


class FairCLPaperConfig(FairCLConfig):
    """Hyper-parameters of FairCL with the paper's own terms alone: labels assigned once, no replay."""

    name: str = "faircl-paper"
    lambda_replay: float = Field(0.0, ge=0, description="weight of prototype replay at later steps")
    lambda_cluster: float = Field(0.02, ge=0, description="weight of L_cluster")
    lambda_cons: float = Field(1.0, ge=0, description="weight of L_cons")
    lambda_iou: float = Field(0.0, ge=0, description="weight of L_iou")
    quota: int = Field(100, ge=1, description="features added per class and batch, at most")
    unlabelled: Unlabelled = Field("assigned", description="unlabelled pixels at later steps, as in faircl")
