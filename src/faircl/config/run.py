"""The configuration of a run: one typed tree.

Every key is documented on its field; ``faircl config show`` prints them resolved. An unknown key is an error that
names the closest known one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import yaml
from pydantic import BeforeValidator, Field, SerializeAsAny, ValidationError

from faircl.config.components import MethodConfig, ModelConfig
from faircl.config.overrides import merge, parse_override
from faircl.config.recipes import NOTES, recipe_tree
from faircl.config.renamed import with_new_keys
from faircl.config.schema import (
    BalanceConfig,
    EvalConfig,
    MemoryConfig,
    OptimConfig,
    ScenarioConfig,
    Section,
    TrainConfig,
)
from faircl.effects import Effect
from faircl.errors import UserError, listed, unknown_name
from faircl.readers.base import ReaderConfig
from faircl.registry import METHODS, MODELS, READERS, Registry
from faircl.scenario.conventions import CONVENTIONS, EVALUATED_IMAGES, ConventionName, EvaluatedImages
from faircl.validation import explain


class RunConfig(Section):
    """Everything that defines a run."""

    seed: Annotated[int, Effect.REPEAT] = Field(0, ge=0)
    data: SerializeAsAny[Annotated[ReaderConfig, BeforeValidator(READERS.parse_config)]]
    scenario: ScenarioConfig = ScenarioConfig()
    model: SerializeAsAny[Annotated[ModelConfig, BeforeValidator(MODELS.parse_config)]]
    method: SerializeAsAny[Annotated[MethodConfig, BeforeValidator(METHODS.parse_config)]]
    optim: OptimConfig = OptimConfig()
    train: TrainConfig = TrainConfig()
    eval: EvalConfig = EvalConfig()
    balance: BalanceConfig = BalanceConfig()
    memory: MemoryConfig = MemoryConfig()

    def to_yaml(self) -> str:
        """Return the resolved configuration as YAML."""
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


_TORCH_PARTS = {"model": MODELS, "method": METHODS}


def load_config(source: str, overrides: Iterable[str] = ()) -> RunConfig:
    """Read a recipe by name or a YAML file by path, apply ``a.b=c`` overrides and validate."""
    return resolve(recipe_tree(source), overrides)


def resolve(tree: dict[str, Any], overrides: Iterable[str] = ()) -> RunConfig:
    """Apply ``a.b=c`` overrides to a tree of plain values and validate it."""
    return parse_config(apply_overrides(tree, overrides))


def apply_overrides(tree: dict[str, Any], overrides: Iterable[str]) -> dict[str, Any]:
    """Lay ``a.b=c`` overrides over a tree of plain values."""
    changes: dict[str, Any] = {}
    for override in overrides:
        changes = merge(changes, with_new_keys(parse_override(override), merge(tree, changes)))
    return merge(tree, changes)


def parse_config(tree: Mapping[str, Any]) -> RunConfig:
    """Validate a tree of plain values; every mistake becomes one sentence that names the key."""
    tree = _settings(tree)
    plain = parse_without_torch(tree)
    parts = {section: _part(section, table, tree[section]) for section, table in _TORCH_PARTS.items()}
    return _validated({name: getattr(plain, name) for name in plain.model_fields_set} | parts)


def parse_without_torch(tree: Mapping[str, Any]) -> RunConfig:
    """Validate all but the settings of model and method, which have their names alone in the result.

    These settings are declared beside networks and losses, so that validating them imports torch, which takes seconds.
    """
    tree = _settings(tree)
    for section, table in {"data": READERS, **_TORCH_PARTS}.items():
        if section not in tree:
            raise UserError(f"The configuration has no {section}; expected one of: {listed(table.names())}.")
        name = table.name_in(tree[section])
        if section == "data":
            tree[section] = _part(section, table, tree[section])
        elif name is not None:
            tree[section] = (ModelConfig if section == "model" else MethodConfig)(name=name)
    return _validated(tree)


def _settings(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a tree without notes and old keys."""
    return with_new_keys({key: value for key, value in tree.items() if key not in NOTES})


def _validated(tree: Mapping[str, Any]) -> RunConfig:
    try:
        config = RunConfig.model_validate(tree)
    except ValidationError as error:
        raise UserError(explain(error, RunConfig)) from None
    if config.train.validate_every > 0 and config.data.validation is None:
        raise UserError(
            f"train.validate_every is {config.train.validate_every:g}, but there are no validation images; set "
            "data.validation to a split, or to a share of the training images, as in data.validation=0.1."
        )
    if config.eval.images == "validation" and config.data.validation is None:
        raise UserError(
            "eval.images is validation, but there are no validation images; set data.validation to a split, or to a "
            "share of the training images, as in data.validation=0.1."
        )
    return config


def parse_data(tree: dict[str, Any], overrides: Iterable[str] = ()) -> tuple[ReaderConfig, ScenarioConfig]:
    """Apply overrides to the data and scenario of a tree and validate these two alone."""
    for override in overrides:
        tree = merge(tree, with_new_keys(parse_override(override), tree))
    for section in ("data", "scenario"):
        if not isinstance(tree.get(section), dict):
            raise UserError(f"Setting {section} is {tree.get(section)!r}; expected {section}.KEY=VALUE.")
    if unknown := sorted(tree.keys() - {"data", "scenario"}):
        raise UserError(f"Setting {unknown[0]} has no meaning here; expected data.KEY=VALUE or scenario.KEY=VALUE.")
    data: ReaderConfig = _part("data", READERS, tree["data"])
    try:
        return data, ScenarioConfig.model_validate(tree["scenario"])
    except ValidationError as error:
        raise UserError(explain(error, ScenarioConfig, ("scenario",))) from None


def parse_convention(name: str) -> ConventionName:
    """Return the name of an evaluation convention; any other name is an error that lists them."""
    if name not in CONVENTIONS:
        raise unknown_name("evaluation convention", name, CONVENTIONS)
    return name


def parse_images(name: str) -> EvaluatedImages:
    """Return which images to evaluate, test or validation; any other name is an error."""
    if name not in EVALUATED_IMAGES:
        raise unknown_name("kind of images to evaluate", name, EVALUATED_IMAGES)
    return name


def _part(section: str, table: Registry, value: Any) -> Any:
    try:
        return table.parse_config(value)
    except ValidationError as error:
        name = str(value["name"] if isinstance(value, dict) else value)
        raise UserError(explain(error, table.get(name).Config, (section,))) from None
