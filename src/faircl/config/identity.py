"""Which settings make two runs the same run, or repeats of the same experiment."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from pydantic import BaseModel

from faircl.config.components import MethodConfig, ModelConfig
from faircl.config.describe import differences
from faircl.config.run import RunConfig
from faircl.effects import Effect, effect_of
from faircl.errors import UserError
from faircl.readers.base import FileConfig
from faircl.registry import METHODS, MODELS, READERS, Registry

REPEATS = frozenset({Effect.NONE, Effect.ROUNDING, Effect.EVALUATION, Effect.REPEAT})
"""Effects of settings in which repeats of one experiment may differ."""


def differing_settings(one: Mapping[str, Any], other: Mapping[str, Any], ignored: Collection[Effect]) -> list[str]:
    """Return the settings, as in ``optim.lr``, in which two configurations (plain trees) differ.

    Settings with an ignored effect are left out. Of a setting with ``Effect.PRESENCE`` it counts whether it is set.
    """
    return differences(_relevant(one, RunConfig, ignored), _relevant(other, RunConfig, ignored))


def _relevant(tree: Mapping[str, Any], model: type[BaseModel], ignored: Collection[Effect]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for key, value in tree.items():
        field = model.model_fields.get(key)
        effect = None if field is None else effect_of(field)
        if effect in ignored:
            continue
        if effect is Effect.PRESENCE:
            value = value is not None
        section = _section(key, value) if model is RunConfig else None
        kept[key] = value if section is None else _relevant(value, section, ignored)
    return kept


_PARTS: dict[str, tuple[Registry, type[BaseModel]]] = {
    "data": (READERS, FileConfig),
    "model": (MODELS, ModelConfig),
    "method": (METHODS, MethodConfig),
}
"""Sections whose class depends on a name: their table, and the class for a name that is not installed here."""


def _section(key: str, value: Any) -> type[BaseModel] | None:
    """Return the class of a section of a run's configuration; None for a plain value."""
    if not isinstance(value, Mapping) or key not in RunConfig.model_fields:
        return None
    if key in _PARTS:
        table, fallback = _PARTS[key]
        try:
            config: type[BaseModel] = table.get(str(value.get("name"))).Config
        except UserError:
            return fallback
        return config
    annotation = RunConfig.model_fields[key].annotation
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None
