"""A method around another one: it changes what happens between steps; the inner method computes the losses."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, SerializeAsAny, ValidationError, model_validator
from torch import Tensor

from faircl.config.components import Init
from faircl.loading.batch import Batch
from faircl.methods.balance import Balance
from faircl.methods.base import Method, MethodConfig, ScannedBatch, StepContext, Terms
from faircl.models.segmenter import Segmenter, SegOutput
from faircl.registry import METHODS
from faircl.validation import InvalidSettings

INNER = "mib"
"""The inner method where none is named."""


def _parse(value: Any) -> Any:
    """Read the inner method's settings."""
    if isinstance(value, dict) and "name" not in value:
        value = {"name": INNER, **value}
    if not isinstance(value, str | dict | MethodConfig):
        raise ValueError(f"expected the name of a method or {{name: …, …}}, found {value!r}")
    try:
        return METHODS.parse_config(value)
    except ValidationError as error:
        name = str(value["name"] if isinstance(value, dict) else value)
        raise InvalidSettings(error, METHODS.get(name).Config) from None


class WrapperConfig(MethodConfig):
    """Hyper-parameters of every method around another one."""

    init: Init = Field("background", description="not used: the inner method's init counts")
    method: SerializeAsAny[Annotated[MethodConfig, BeforeValidator(_parse)]] = Field(
        default_factory=lambda: METHODS.parse_config(INNER),
        description="the inner method with its own settings, {name: mib, …}; it may be another wrapper",
    )

    @model_validator(mode="after")
    def _sensible(self) -> Self:
        if METHODS.get(self.method.name).joint:
            raise ValueError(
                f"{self.name} acts between steps, but method {self.method.name} has only one; choose another method"
            )
        inside: MethodConfig = self.method
        while isinstance(inside, WrapperConfig) and inside.name != self.name:
            inside = inside.method
        if inside.name == self.name:
            raise ValueError(f"{self.name} is inside {self.name}; name it once")
        return self


class Wrapper(Method):
    """Forwards every call to ``inner``; a wrapper overrides what it changes and calls ``super()``.

    The inner method grows the classifier and scans images in its own ``begin_step``, so its ``init`` is used and the
    wrapper's is not. Its state is saved with the prefix ``inner.``.
    """

    Config = WrapperConfig

    def __init__(self, config: WrapperConfig, model: Segmenter) -> None:
        super().__init__(config, model)
        self.inner: Method = METHODS.get(config.method.name)(config.method, model)
        self.needs = self.inner.needs

    def set_balance(self, balance: Balance) -> None:
        """Balance the inner method's loss."""
        self.inner.set_balance(balance)

    def step0_key(self) -> dict[str, object]:
        """Return the inner key, marked: the first step is the inner method's, but its state has other names."""
        return {"wrapped": self.inner.step0_key()}

    # Steps

    def needs_teacher(self, context: StepContext) -> bool:
        """Whether the inner method needs the old network."""
        return self.inner.needs_teacher(context)

    def needs_scan(self, context: StepContext) -> bool:
        """Whether the inner method needs a scan; its own ``begin_step`` runs it."""
        return self.inner.needs_scan(context)

    def scan_batch(self, scanned: ScannedBatch, context: StepContext) -> None:
        """Forward scanned images to the inner method."""
        self.inner.scan_batch(scanned, context)

    def soft_label_bytes(self, images: int, visits: int, cells: int) -> int:
        """Return the bytes of the inner method's soft labels."""
        return self.inner.soft_label_bytes(images, visits, cells)

    def begin_step(self, context: StepContext) -> None:
        """Begin the inner method's step, which grows the classifier."""
        self.inner.begin_step(context)

    def end_step(self, context: StepContext) -> None:
        """End the inner method's step."""
        self.inner.end_step(context)

    # Iterations

    def targets(self, batch: Batch, out: SegOutput, old: SegOutput | None) -> Tensor:
        """Return the inner method's targets."""
        return self.inner.targets(batch, out, old)

    def losses(self, batch: Batch, out: SegOutput, old: SegOutput | None, targets: Tensor) -> Terms:
        """Return the inner method's terms."""
        return self.inner.losses(batch, out, old, targets)

    def fair_segmentation(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the inner method's segmentation loss of plain labels."""
        return self.inner.fair_segmentation(logits, targets)

    def measures(self, batch: Batch, out: SegOutput, old: SegOutput | None, targets: Tensor) -> Terms:
        """Return the inner method's measures."""
        return self.inner.measures(batch, out, old, targets)

    def observe(self, batch: Batch, out: SegOutput, targets: Tensor, iteration: int) -> None:
        """Forward a micro-batch to the inner method."""
        self.inner.observe(batch, out, targets, iteration)

    def after_update(self, iteration: int) -> None:
        """Forward an update to the inner method."""
        self.inner.after_update(iteration)
