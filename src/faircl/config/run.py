"""The configuration of a run: one typed tree, YAML in and out, ``--set a.b=c``.

Every key is documented on its field; ``faircl config show`` prints them resolved. An unknown key is an error that
names the closest known one.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from copy import deepcopy
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    SerializeAsAny,
    ValidationError,
)
from pydantic.fields import FieldInfo

from faircl.config.components import MethodConfig, ModelConfig
from faircl.config.schema import (
    BalanceConfig,
    EvalConfig,
    MemoryConfig,
    OptimConfig,
    ScenarioConfig,
    Section,
    TrainConfig,
)
from faircl.errors import UserError, did_you_mean, unknown_name
from faircl.readers.base import ReaderConfig
from faircl.registry import METHODS, MODELS, READERS, Registry
from faircl.scenario.conventions import CONVENTIONS, ConventionName

_PARTS = ("data", "model", "method")
"""Sections whose settings depend on the name in them."""
_NOTES = ("about", "status", "published")
"""What a recipe says of itself; not settings."""


class RunConfig(Section):
    """Everything that defines a run."""

    seed: int = Field(0, ge=0)
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


def recipe_names() -> list[str]:
    """Names of the packaged recipes; those with a leading underscore are bases, not meant to be run."""
    return [name for name in _packaged() if not name.startswith("_")]


def unknown_recipe(name: str) -> UserError:
    """Error for a recipe that is not there; they are too many to be listed."""
    if "/" in name or "\\" in name:
        return UserError(f"There is no file {name}; expected a YAML file, or a recipe ('faircl recipes' lists them).")
    return UserError(f"Unknown recipe '{name}'.{did_you_mean(name, recipe_names())} 'faircl recipes' lists them all.")


def recipe_tree(name: str) -> dict[str, Any]:
    """Return a recipe as plain values: its settings over those of its base, and its own notes."""
    return _read_tree(name, chain=())


@cache
def _packaged() -> list[str]:
    files = resources.files("faircl.recipes").iterdir()
    return sorted(file.name.removesuffix(".yaml") for file in files if file.name.endswith(".yaml"))


def load_config(source: str, overrides: Iterable[str] = ()) -> RunConfig:
    """Read a recipe by name or a YAML file by path, apply ``a.b=c`` overrides and validate."""
    return resolve(_read_tree(source, chain=()), overrides)


def resolve(tree: dict[str, Any], overrides: Iterable[str] = ()) -> RunConfig:
    """Apply ``a.b=c`` overrides to a tree of plain values and validate it."""
    changes: dict[str, Any] = {}
    for override in overrides:
        changes = _merge(changes, _change(override))
    return parse_config(_merge(tree, changes))


def parse_data(tree: dict[str, Any], overrides: Iterable[str] = ()) -> tuple[ReaderConfig, ScenarioConfig]:
    """Apply overrides to the data and scenario of a tree and validate these two alone."""
    for override in overrides:
        tree = _merge(tree, _change(override))
    for section in ("data", "scenario"):
        if not isinstance(tree.get(section), dict):
            raise UserError(f"Setting {section} is {tree.get(section)!r}; expected {section}.KEY=VALUE.")
    if unknown := sorted(tree.keys() - {"data", "scenario"}):
        raise UserError(f"Setting {unknown[0]} has no meaning here; expected data.KEY=VALUE or scenario.KEY=VALUE.")
    data: ReaderConfig = _part("data", READERS, tree["data"])
    try:
        return data, ScenarioConfig.model_validate(tree["scenario"])
    except ValidationError as error:
        raise _readable(error, ("scenario",), ScenarioConfig) from None


def parse_convention(name: str) -> ConventionName:
    """Return an evaluation convention's name; an error that lists them for any other."""
    if name not in CONVENTIONS:
        raise unknown_name("evaluation convention", name, CONVENTIONS)
    return name


def _part(section: str, table: Registry, value: Any) -> Any:
    try:
        return table.parse_config(value)
    except ValidationError as error:
        raise _readable(error, (section,), table.get(_name_of(value)).Config) from None


def parse_config(tree: Mapping[str, Any]) -> RunConfig:
    """Validate a tree of plain values; every mistake becomes one sentence that names the key."""
    tree = {key: value for key, value in dict(tree).items() if key not in _NOTES}
    for section, table in (("data", READERS), ("model", MODELS), ("method", METHODS)):
        if section not in tree:
            raise UserError(f"The configuration has no {section}; expected one of: {', '.join(table.names())}.")
        tree[section] = _part(section, table, tree[section])
    try:
        return RunConfig.model_validate(tree)
    except ValidationError as error:
        raise _readable(error, (), RunConfig) from None


def _name_of(part: Any) -> str:
    return str(part["name"] if isinstance(part, dict) else part)


def _read_tree(source: str, chain: tuple[str, ...]) -> dict[str, Any]:
    """Read YAML with its ``base`` recipes beneath it."""
    if source in chain:
        raise UserError(f"Recipes refer to each other in a circle: {' -> '.join((*chain, source))}.")
    try:
        tree = deepcopy(_parsed(_source_text(source)))
    except yaml.YAMLError as error:
        raise UserError(f"{source} is not valid YAML: {_yaml_problem(error)}.") from None
    if not isinstance(tree, dict):
        raise UserError(f"{source} holds no settings; expected keys such as data, scenario, model and method.")
    base = tree.pop("base", None)
    if base is None:
        return tree
    beneath = _read_tree(_beside(str(base), source), (*chain, source))
    # What a base says of itself does not hold for what is laid over it.
    return _merge({key: value for key, value in beneath.items() if key not in _NOTES}, tree)


def _beside(base: str, source: str) -> str:
    """Return where a base is: a recipe by name, or a file found from the file that names it."""
    path = Path(os.path.normpath(Path(source).parent / base))
    return base if base in _packaged() or not (path.suffix in (".yaml", ".yml") or path.is_file()) else str(path)


def _yaml_problem(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return " ".join(str(error).split())
    return f"{getattr(error, 'problem', None) or 'mistake'} at line {mark.line + 1}, column {mark.column + 1}"


@cache
def _parsed(text: str) -> Any:
    """Read YAML once: many recipes stand on the same bases."""
    return yaml.safe_load(text)


def _source_text(source: str) -> str:
    if source in _packaged():
        return (resources.files("faircl.recipes") / f"{source}.yaml").read_text(encoding="utf-8")
    path = Path(source)
    if path.suffix not in (".yaml", ".yml") and not path.is_file():
        raise unknown_recipe(source)
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"Cannot read {source}: {error}; expected a YAML file or one of the recipes.") from None


def _merge(under: dict[str, Any], over: dict[str, Any], parts: tuple[str, ...] = _PARTS) -> dict[str, Any]:
    """Lay one tree over another; data, model or method of another name replace the one beneath whole."""
    merged = dict(under)
    for key, value in over.items():
        beneath = merged.get(key)
        if key in parts:  # a bare name is short for {"name": …}
            beneath, value = ({"name": part} if isinstance(part, str) else part for part in (beneath, value))
        if isinstance(value, dict) and isinstance(beneath, dict) and not (key in parts and _renamed(beneath, value)):
            merged[key] = _merge(beneath, value, ("method",) if key == "method" else ())
        else:
            merged[key] = value
    return merged


def _renamed(beneath: dict[str, Any], value: dict[str, Any]) -> bool:
    return "name" in beneath and value.get("name", beneath["name"]) != beneath["name"]


def _change(override: str) -> dict[str, Any]:
    """Return ``a.b=c`` as a tree."""
    path, equals, text = override.partition("=")
    keys = path.strip().split(".")
    if not equals or not all(keys):
        raise UserError(f"Cannot read --set {override}: expected key=value, as in --set optim.lr=0.02.")
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        raise UserError(
            f"Cannot read the value of --set {override}: expected YAML, as in 0.1, true or [a, b]."
        ) from None
    for key in reversed(keys):
        value = {key: value}
    change: dict[str, Any] = value
    return change


def _readable(error: ValidationError, prefix: tuple[str, ...], model: type[BaseModel]) -> UserError:
    """Turn pydantic's first complaint into a sentence; unknown keys get the closest known one."""
    first = error.errors(include_url=False)[0]
    where = (*prefix, *(str(part) for part in first["loc"]))
    if first["type"] == "extra_forbidden":
        known = _known_keys(model, first["loc"][:-1])
        key = str(first["loc"][-1])
        place = f" in {'.'.join(where[:-1])}" if where[:-1] else ""
        return UserError(f"Unknown setting '{key}'{place}.{did_you_mean(key, known)} Known: {', '.join(known)}.")
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] in ("model_type", "model_attributes_type", "dict_type"):
        key = next(iter(_known_keys(model, first["loc"])), "key")
        message = f"expected settings of its own, as in {'.'.join(where)}.{key}=…"
    found = "" if first["type"] in ("missing", "value_error") else f", found {first['input']!r}"
    depth, field = _deepest_field(model, first["loc"])
    if field is not None and len(first["loc"]) > depth and isinstance(first["loc"][depth], str):
        # A union: pydantic complains about its first member alone, and adds that member's name to the place.
        where, message = where[: len(prefix) + depth], f"expected {field.description}"
    return UserError(f"Setting {'.'.join(where) or 'file'}: {message[0].lower() + message[1:]}{found}.")


def _known_keys(model: type[BaseModel], path: tuple[int | str, ...]) -> list[str]:
    for part in path:
        annotation = model.model_fields[str(part)].annotation
        if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
            return []
        model = annotation
    return list(model.model_fields)


def _deepest_field(model: type[BaseModel], path: tuple[int | str, ...]) -> tuple[int, FieldInfo | None]:
    """Walk down a place as far as it names settings; return how far that is and the last setting."""
    field = None
    for depth, part in enumerate(path):
        found = model.model_fields.get(str(part))
        if found is None:
            return depth, field
        field = found
        if not (isinstance(found.annotation, type) and issubclass(found.annotation, BaseModel)):
            return depth + 1, field
        model = found.annotation
    return len(path), field
