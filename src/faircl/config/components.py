"""Settings that every method and every network has; without torch, so that configurations are read quickly."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Init = Literal["random", "background", "prototype"]


class ModelConfig(BaseModel):
    """Hyper-parameters that every network has."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    name: str


class MethodConfig(BaseModel):
    """Hyper-parameters that every method has."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    name: str
    init: Init = Field(
        "background",
        description="start of new classes' classifier at later steps: random, background (MiB) or prototype",
    )
