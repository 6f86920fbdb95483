"""The sections of a run's configuration that do not depend on a name: scenario, optimiser, training, evaluation."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StrictInt, field_validator, model_validator

from faircl.effects import Effect


class Section(BaseModel):
    """Base of all sections: no key but those declared, none changed later."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


BalancedLoss = Literal[
    "plain", "weighted", "class_balanced", "focal", "balanced_softmax", "logit_adjustment", "seesaw", "tilted"
]
LoggerName = Literal["tensorboard", "wandb", "mlflow"]
_Share = Annotated[float, Field(ge=0, lt=1)]


class ScenarioConfig(Section):
    """Which classes are learned when."""

    task: str | list[list[StrictInt | str]] | None = Field(
        None, description="'15-1', '6-2-3', 'offline', or class lists"
    )
    setting: Literal["overlapped", "disjoint", "sequential"] = Field("overlapped", description="images of a step")
    order: str | list[StrictInt | str] | None = Field(
        None, description="order of the classes, or of the domains: a list, 'random:SEED', or the data's own"
    )
    protocol: Literal["classes", "clean", "plop"] | None = Field(
        None,
        description="what a step brings: new classes (classes), or the same classes in new domains, each domain split "
        "once into training and test images (clean) or as in PLOP's tables, which test on training images (plop); "
        "unset: classes, unless the task's name is published by domain",
    )
    split_seed: int = Field(0, ge=0, description="seed of the split of every domain under protocol clean")


class PartRates(Section):
    """Learning-rate factors by part of the network."""

    backbone: float = Field(1.0, ge=0)
    decoder: float = Field(1.0, ge=0)
    old_classifier: float = Field(1.0, ge=0)
    new_classifier: float = Field(1.0, ge=0)


class OptimConfig(Section):
    """Optimiser and schedule; a new one starts at every step."""

    name: Literal["sgd", "adamw"] = "sgd"
    lr: float = Field(0.01, gt=0, description="learning rate of the first step")
    later_lr: float | None = Field(None, gt=0, description="learning rate of later steps; unset: the same")
    parts: PartRates = PartRates()
    later_parts: PartRates | None = Field(None, description="the same factors at later steps; unset: the same")
    momentum: float = Field(0.9, ge=0, lt=1, description="momentum of SGD")
    nesterov: bool = True
    betas: tuple[_Share, _Share] = Field((0.9, 0.999), description="moments of AdamW")
    weight_decay: float = Field(1e-4, ge=0)
    schedule: Literal["poly", "cosine", "constant"] = "poly"
    power: float = Field(0.9, gt=0, description="exponent of the poly schedule")
    warmup: int = Field(0, ge=0, description="iterations of linear warm-up")
    clip: float = Field(0.0, ge=0, description="largest gradient norm; 0: no clipping")
    accumulate: int = Field(1, ge=1, description="batches per update")

    @model_validator(mode="after")
    def _some_trained(self) -> Self:
        first, later = self.parts, self.later_parts
        if not (first.backbone or first.decoder or first.new_classifier):
            raise ValueError("nothing would be trained at the first step; set one of the factors of parts above 0")
        if later is not None and not any(later.model_dump().values()):
            raise ValueError("nothing would be trained at later steps; set one of the factors of later_parts above 0")
        return self

    def part_rates(self, step: int) -> PartRates:
        """Return the learning-rate factors of a step."""
        return self.parts if step == 0 or self.later_parts is None else self.later_parts


class TrainConfig(Section):
    """Length, batches, augmentation and arithmetic of training."""

    epochs: float = Field(30, gt=0, le=1e6, description="passes over the first step's images")
    later_epochs: float | None = Field(None, gt=0, le=1e6, description="passes at later steps; unset: the same")
    batch: int = Field(16, ge=1, description="images per batch, over all processes")
    crop: int = Field(512, ge=8, description="side of a training window")
    scale: tuple[float, float] = Field((0.5, 2.0), description="zoom range of a training window")
    flip: bool = Field(True, description="mirror half of the windows")
    jitter: float = Field(0.0, ge=0, lt=1, description="strength of colour jitter")
    precision: Literal["fp32", "bf16", "fp16", "fp64"] = Field(
        "fp32", description="arithmetic; bf16 and fp16 are mixed with fp32, fp64 is for exact comparisons and slow"
    )
    accelerator: Annotated[Literal["auto", "cpu", "cuda"], Effect.ROUNDING] = "auto"
    workers: Annotated[int, Effect.NONE] = Field(0, ge=0, description="processes that read and augment")
    augment: Literal["workers", "device"] = Field(
        "workers", description="where windows are resampled: by the workers, or on the device, to one level of colour"
    )
    cache: Annotated[Literal["none", "memory", "disk", "gpu"], Effect.NONE] = Field(
        "none",
        description="where a step's decoded images are kept: nowhere, in memory, in files of the cache folder (disk), "
        "or on the training device (gpu, with augment: device)",
    )
    threads: Annotated[int, Effect.ROUNDING] = Field(0, ge=0, description="CPU threads; 0: torch's choice")
    frozen_norm: Literal["never", "later", "always"] = Field(
        "never", description="when BatchNorm keeps its running statistics"
    )
    checkpointing: Annotated[bool, Effect.NONE] = Field(
        False, description="compute the backbone's activations twice instead of keeping them: less memory, more time"
    )
    compile: bool = Field(
        False, description="compile the backbone's blocks by torch.compile: minutes at first, other rounding"
    )
    graphs: Annotated[bool, Effect.NONE] = Field(
        True, description="replay the network from CUDA graphs on a single GPU: less work for the host, same numbers"
    )
    sync_norm: Literal["auto", "always", "never"] = Field(
        "auto", description="BatchNorm over the batches of all GPUs; auto: where there are several"
    )
    deterministic: bool = Field(False, description="refuse operations that are not bitwise repeatable")
    log_every: Annotated[int, Effect.NONE] = Field(10, ge=1, description="iterations between records of the loss")
    checkpoint_minutes: Annotated[float, Effect.NONE] = Field(
        5.0, gt=0, description="minutes between checkpoints within a step, from which --resume continues"
    )
    validate_every: float = Field(
        0.0, ge=0, le=1e6, description="epochs between validations within a step; 0: only after its last update"
    )
    keep: Literal["last", "best"] = Field(
        "last", description="weights that a step ends with: the last, or those with the best validation score"
    )
    patience: int = Field(
        0, ge=0, description="validations without a better score that end a step; 0: a step is trained to its end"
    )
    loggers: Annotated[tuple[LoggerName, ...], Effect.NONE] = Field(
        (), description="services that get the records too: tensorboard, wandb, mlflow (each an extra of faircl)"
    )

    @field_validator("loggers", mode="before")
    @classmethod
    def _each_once(cls, names: Any) -> Any:
        names = [names] if isinstance(names, str) else names
        return (
            list(dict.fromkeys(names)) if isinstance(names, list) and all(isinstance(n, str) for n in names) else names
        )

    @field_validator("scale")
    @classmethod
    def _ordered(cls, scale: tuple[float, float]) -> tuple[float, float]:
        if not 0 < scale[0] <= scale[1]:
            raise ValueError(f"zoom must be 0 < low ≤ high, found {list(scale)}")
        return scale

    @model_validator(mode="after")
    def _cut_on_device(self) -> Self:
        if self.cache == "gpu" and self.augment != "device":
            raise ValueError("cache gpu cuts windows on the device; set augment to device as well")
        return self

    @model_validator(mode="after")
    def _validated(self) -> Self:
        if self.validate_every == 0 and (self.keep == "best" or self.patience > 0):
            raise ValueError(
                "train.keep=best and train.patience choose between validations; set their interval too, as in "
                "train.validate_every=2"
            )
        return self

    @model_validator(mode="after")
    def _one_way_through_blocks(self) -> Self:
        if self.compile and self.checkpointing:
            raise ValueError("compile and checkpointing both run the backbone's blocks their own way; set one of them")
        return self


class EvalConfig(Section):
    """Evaluation after every step."""

    images: Annotated[Literal["test", "validation"], Effect.EVALUATION] = Field(
        "test",
        description="what a step is evaluated on: the test images, or, to choose settings without them, the "
        "validation images ('faircl eval RUN --images test' scores the saved steps later)",
    )
    convention: Annotated[Literal["full", "plop", "mib"], Effect.EVALUATION] = Field(
        "full",
        description="what is scored: every pixel at the image's own size (full), or as published tables do after PLOP "
        "or after MiB",
    )
    size: Annotated[int, Effect.EVALUATION] = Field(
        512, ge=8, description="side of the centre crop that plop and mib score"
    )
    batch: Annotated[int, Effect.NONE] = Field(16, ge=1, description="images of one size evaluated together")
    examples: Annotated[int, Effect.EVALUATION] = Field(
        4, ge=0, description="evaluated images kept with their predictions for the report, while a run trains"
    )
    gallery: Annotated[int, Effect.NONE] = Field(
        12,
        ge=0,
        description="images that the report of a finished run shows: the worst, and those of the worst classes",
    )


class BalanceConfig(Section):
    """What is done for rare classes under any method; class counts are those of the labels that a step shows."""

    loss: BalancedLoss = Field(
        "plain",
        description="segmentation loss: plain, weighted (by inverse frequency), class_balanced (by effective number of "
        "images), focal, balanced_softmax, logit_adjustment, seesaw, tilted",
    )
    power: float = Field(1.0, ge=0, description="weighted: exponent of the weight (q/p)^power, q uniform")
    clip: tuple[float, float] = Field((0.1, 10.0), description="weighted: bounds of the weight before normalisation")
    beta: float = Field(0.999, ge=0, lt=1, description="class_balanced: β of the effective number (1 − β^n) / (1 − β)")
    gamma: float = Field(2.0, ge=0, description="focal: γ, exponent of (1 − p)")
    tau: float = Field(1.0, ge=0, description="logit_adjustment: τ, strength of the class prior")
    mitigation: float = Field(0.8, ge=0, description="seesaw: exponent of the ratio of class counts")
    compensation: float = Field(2.0, ge=0, description="seesaw: exponent of the ratio of predicted probabilities")
    tilt: float = Field(1.0, gt=0, description="tilted: t, from the mean over classes (→ 0) to the worst class (→ ∞)")
    sampling: Literal["uniform", "rare"] = Field(
        "uniform", description="training images: each once per epoch (uniform), or drawn by their rare classes (rare)"
    )
    temperature: float = Field(0.01, gt=0, description="rare: T of P(class) ∝ exp((1 − frequency) / T)")

    @field_validator("clip")
    @classmethod
    def _ordered(cls, clip: tuple[float, float]) -> tuple[float, float]:
        if not 0 < clip[0] <= clip[1]:
            raise ValueError(f"clip must be 0 < low ≤ high, found {list(clip)}")
        return clip


class MemoryConfig(Section):
    """Images of earlier steps that are kept and trained on again."""

    images: int = Field(0, ge=0, description="images kept after a step, as many of each class; 0: none")
    share: float = Field(
        0.5,
        gt=0,
        lt=1,
        description="share of every batch of later steps that comes from them, in the place of the step's own images",
    )
    labels: Literal["step", "all"] = Field(
        "step",
        description="labels of a kept image: of the classes that its own steps labelled, or of all classes seen so far",
    )
