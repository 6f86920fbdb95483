"""Configurations from Python: a recipe or a YAML file, with settings as a mapping."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faircl.errors import UserError

if TYPE_CHECKING:
    from faircl.config.run import RunConfig

Settings = Mapping[str, Any] | Iterable[str] | None
"""Settings to change: ``{"optim.lr": 0.02}``, or ``["optim.lr=0.02"]`` as on the command line."""


def load_config(source: str | Path | RunConfig, settings: Settings = None) -> RunConfig:
    """Read a configuration, change some of its settings and validate it.

    ``source`` is the name of a recipe (`list_recipes`), the path of a YAML file, or a configuration. Keys of
    ``settings`` are dotted: ``{"optim.lr": 0.02, "method": "mib", "data.root": "/data/mine"}``.
    """
    from faircl.config.run import RunConfig, parse_config

    overrides = as_overrides(settings)
    if isinstance(source, RunConfig) and not overrides:
        return source
    return parse_config(settings_tree(source, overrides))


def settings_tree(source: str | Path | RunConfig, overrides: Iterable[str]) -> dict[str, Any]:
    """Return a configuration as plain values, with some settings changed; it is not validated."""
    from faircl.config.recipes import recipe_tree
    from faircl.config.run import RunConfig, apply_overrides

    if isinstance(source, RunConfig):
        return apply_overrides(source.model_dump(mode="json"), overrides)
    if not isinstance(source, str | Path):
        raise UserError(
            f"A configuration is the name of a recipe, the path of a YAML file or a RunConfig; found {source!r}."
        )
    return apply_overrides(recipe_tree(str(source)), overrides)


def as_overrides(settings: Settings) -> list[str]:
    """Return settings in the form of the command line, ``a.b=value`` with the value as YAML."""
    if settings is None:
        return []
    if isinstance(settings, str):
        raise UserError(f"Settings are a mapping such as {{'optim.lr': 0.02}}; found the string {settings!r}.")
    if isinstance(settings, Mapping):
        return [_override(key, value) for key, value in settings.items()]
    if not isinstance(settings, Iterable):
        raise UserError(f"Settings are a mapping such as {{'optim.lr': 0.02}}; found {settings!r}.")
    texts = list(settings)
    if wrong := [text for text in texts if not isinstance(text, str)]:
        raise UserError(f"A list of settings holds strings such as 'optim.lr=0.02'; found {wrong[0]!r}.")
    return texts


def _override(key: Any, value: Any) -> str:
    import yaml

    if not isinstance(key, str) or "=" in key:
        raise UserError(f"The name of a setting is a string such as 'optim.lr'; found {key!r}.")
    try:
        text = yaml.safe_dump(_plain(value), default_flow_style=True, allow_unicode=True)
    except yaml.YAMLError:
        raise UserError(
            f"Setting {key} is {value!r}; expected a number, string, path, bool, None, list or dict."
        ) from None
    return f"{key}={text.removesuffix('...' + chr(10)).strip()}"


def _plain(value: Any) -> Any:
    """Return paths as strings and tuples as lists, which YAML has."""
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
