"""Recipes: YAML files of settings, packaged or a user's own, each laid over its ``base``."""

from __future__ import annotations

import os
from copy import deepcopy
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from faircl.config.overrides import merge
from faircl.config.renamed import with_new_keys
from faircl.config.yaml_text import read_yaml, yaml_problem
from faircl.errors import UserError, did_you_mean

NOTES = ("about", "status", "published")
"""What a recipe says about itself; not settings."""


def recipe_names() -> list[str]:
    """Return the names of the packaged recipes; files with a leading underscore are bases, not meant to be run."""
    return [name for name in _packaged() if not name.startswith("_")]


def recipe_tree(source: str) -> dict[str, Any]:
    """Return a recipe, by name or by path of a YAML file: its settings over those of its base, and its own notes."""
    return _read_tree(source, chain=())


def unknown_recipe(name: str) -> UserError:
    """Return the error for a recipe that does not exist; there are too many to list them."""
    if "/" in name or "\\" in name:
        return UserError(f"There is no file {name}; expected a YAML file, or a recipe ('faircl recipes' lists them).")
    return UserError(f"Unknown recipe '{name}'.{did_you_mean(name, recipe_names())} 'faircl recipes' lists them all.")


@cache
def _packaged() -> list[str]:
    files = resources.files("faircl.recipes").iterdir()
    return sorted(file.name.removesuffix(".yaml") for file in files if file.name.endswith(".yaml"))


def _read_tree(source: str, chain: tuple[str, ...]) -> dict[str, Any]:
    """Read YAML and lay it over its ``base``; ``chain`` holds the recipes that led here."""
    if source in chain:
        raise UserError(f"Recipes refer to each other in a circle: {' -> '.join((*chain, source))}.")
    try:
        tree = deepcopy(_parsed(_source_text(source)))
    except yaml.YAMLError as error:
        raise UserError(f"{source} is not valid YAML: {yaml_problem(error)}.") from None
    if not isinstance(tree, dict):
        raise UserError(f"{source} holds no settings; expected keys such as data, scenario, model and method.")
    base = tree.pop("base", None)
    if base is None:
        return with_new_keys(tree)
    under = _read_tree(_beside(str(base), source), (*chain, source))
    # The notes of a base are about the base alone.
    under = {key: value for key, value in under.items() if key not in NOTES}
    return merge(under, with_new_keys(tree, under))


def _beside(base: str, source: str) -> str:
    """Return where a base is: a recipe by name, or a file relative to the file that names it."""
    path = Path(os.path.normpath(Path(source).parent / base))
    return base if base in _packaged() or not (path.suffix in (".yaml", ".yml") or path.is_file()) else str(path)


@cache
def _parsed(text: str) -> Any:
    """Parse YAML once: many recipes have the same bases."""
    return read_yaml(text)


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
