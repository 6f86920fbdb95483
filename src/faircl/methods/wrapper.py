"""A method around another one: it changes what happens between steps and leaves the losses to the method inside."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, SerializeAsAny, ValidationError, model_validator
from torch import Tensor

from faircl.config.components import Init
from faircl.errors import did_you_mean
from faircl.loading.batch import Batch
from faircl.methods.balance import Balance
from faircl.methods.base import Method, MethodConfig, Scanned, StepContext, Terms
from faircl.models.segmenter import Segmenter, SegOutput
from faircl.registry import METHODS

INNER = "mib"
"""The method inside where none is named."""


def _parse(value: Any) -> Any:
    """Read the inner method's settings; a mistake there is told in one sentence, whatever the depth."""
    if isinstance(value, dict) and "name" not in value:
        value = {"name": INNER, **value}
    if not isinstance(value, str | dict | MethodConfig):
        raise ValueError(f"expected the name of a method or {{name: …, …}}, found {value!r}")
    try:
        return METHODS.parse_config(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            name = value["name"] if isinstance(value, dict) else getattr(value, "name", value)
            known = METHODS.get(str(name)).Config.model_fields
            text = f"unknown setting '{where}'.{did_you_mean(where, known)} Known: {', '.join(known)}"
            raise ValueError(text) from None
        message = first["msg"].removeprefix("Value error, ")
        raise ValueError(f"{where}: {message}" if where else message) from None


class WrapperConfig(MethodConfig):
    """Hyper-parameters of every method around another one."""

    init: Init = Field("background", description="not used: the start that the inner method sets counts")
    method: SerializeAsAny[Annotated[MethodConfig, BeforeValidator(_parse)]] = Field(
        default_factory=lambda: METHODS.parse_config(INNER),
        description="the method inside, with its own settings, {name: mib, …}; it may be another wrapper",
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
    """Passes everything on to ``inner``; a wrapper overrides what it changes and calls ``super()``.

    The inner method grows the classifier and scans the images it wants to see, in its own ``begin_step``; so its
    ``init`` counts and the wrapper's has no meaning. Its buffers are saved with the prefix ``inner.``.
    """

    Config = WrapperConfig

    def __init__(self, config: WrapperConfig, model: Segmenter) -> None:
        super().__init__(config, model)
        self.inner: Method = METHODS.get(config.method.name)(config.method, model)

    # Every other method knows these as a class; a wrapper only knows them once it has its inner method.
    @property
    def needs_attentions(self) -> bool:  # type: ignore[override]
        """Whether the inner method wants attentions."""
        return self.inner.needs_attentions

    @property
    def needs_memory(self) -> bool:  # type: ignore[override]
        """Whether the inner method wants a memory."""
        return self.inner.needs_memory

    @property
    def takes_short_logits(self) -> bool:  # type: ignore[override]
        """Whether the inner method takes logits of 16 bits."""
        return self.inner.takes_short_logits

    @property
    def uses_stages(self) -> bool:  # type: ignore[override]
        """Whether the inner method reads the stages."""
        return self.inner.uses_stages

    @property
    def uses_saliency(self) -> bool:  # type: ignore[override]
        """Whether the inner method wants saliency maps."""
        return self.inner.uses_saliency

    @property
    def sigmoid(self) -> bool:  # type: ignore[override]
        """Whether the inner method trains sigmoids."""
        return self.inner.sigmoid

    def set_balance(self, balance: Balance) -> None:
        """Balance the inner method's loss."""
        self.inner.set_balance(balance)

    def restored(self) -> None:
        """Nothing: whoever loads buffers tells every method, inner ones too."""

    def needs_teacher(self, context: StepContext) -> bool:
        """Whether the inner method wants the old network."""
        return self.inner.needs_teacher(context)

    def step0_key(self) -> dict[str, object]:
        """Return the inner key, marked: the first step is the inner method's, but its state has other names."""
        return {"wrapped": self.inner.step0_key()}

    def begin_step(self, context: StepContext) -> None:
        """Begin the inner method's step, which grows the classifier."""
        self.inner.begin_step(context)

    def wants_scan(self, context: StepContext) -> bool:
        """Whether the inner method wants to see the step's images; its own ``begin_step`` asks."""
        return self.inner.wants_scan(context)

    def see(self, scanned: Scanned, context: StepContext) -> None:
        """Show images to the inner method."""
        self.inner.see(scanned, context)

    def targets(self, batch: Batch, out: SegOutput, old: SegOutput | None) -> Tensor:
        """Return the inner method's labels."""
        return self.inner.targets(batch, out, old)

    def losses(self, batch: Batch, out: SegOutput, old: SegOutput | None, targets: Tensor) -> Terms:
        """Return the inner method's terms."""
        return self.inner.losses(batch, out, old, targets)

    def measures(self, batch: Batch, out: SegOutput, old: SegOutput | None, targets: Tensor) -> Terms:
        """Return the inner method's numbers."""
        return self.inner.measures(batch, out, old, targets)

    def observe(self, batch: Batch, out: SegOutput, targets: Tensor, iteration: int) -> None:
        """Show a micro-batch to the inner method."""
        self.inner.observe(batch, out, targets, iteration)

    def after_update(self, iteration: int) -> None:
        """Tell the inner method of an update."""
        self.inner.after_update(iteration)

    def end_step(self, context: StepContext) -> None:
        """End the inner method's step."""
        self.inner.end_step(context)
