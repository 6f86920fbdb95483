"""Laying trees of settings over each other: a file over its base, ``--set a.b=c`` over a recipe."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from faircl.config.yaml_text import read_yaml, yaml_problem
from faircl.errors import UserError

PARTS = ("data", "model", "method")
"""Sections whose settings depend on the name in them."""


def merge(under: dict[str, Any], over: dict[str, Any], parts: tuple[str, ...] = PARTS) -> dict[str, Any]:
    """Lay one tree over another; data, model or method of another name replace the one beneath whole."""
    merged = dict(under)
    for key, value in over.items():
        beneath = merged.get(key)
        if key in parts:  # a bare name is short for {"name": …}
            beneath, value = ({"name": part} if isinstance(part, str) else part for part in (beneath, value))
        if isinstance(value, dict) and isinstance(beneath, dict) and not (key in parts and _other(beneath, value)):
            merged[key] = merge(beneath, value, ("method",) if key == "method" else ())
        else:
            merged[key] = value
    return merged


def parse_override(override: str) -> dict[str, Any]:
    """Return ``a.b=c`` as a tree; the value is YAML."""
    path, equals, text = override.partition("=")
    keys = path.strip().split(".")
    if not equals or not all(keys):
        raise UserError(f"Cannot read --set {override}: expected key=value, as in --set optim.lr=0.02.")
    try:
        value = read_yaml(text)
    except yaml.YAMLError as error:
        raise UserError(
            f"Cannot read the value of --set {override}: {yaml_problem(error)}; expected YAML, as in 0.1, true or "
            "[a, b]."
        ) from None
    for key in reversed(keys):
        value = {key: value}
    tree: dict[str, Any] = value
    return tree


def given_settings(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the settings of a tree by their dotted keys; a bare name of data, model or method is its ``name``.

    >>> given_settings({"method": "mib", "optim": {"lr": 0.1}})
    {'method.name': 'mib', 'optim.lr': 0.1}
    """
    found: dict[str, Any] = {}
    for key, value in tree.items():
        if not prefix and key in PARTS and isinstance(value, str):
            value = {"name": value}
        if isinstance(value, Mapping):
            found |= given_settings(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def _other(beneath: dict[str, Any], value: dict[str, Any]) -> bool:
    """Whether two parts have different names."""
    return "name" in beneath and value.get("name", beneath["name"]) != beneath["name"]
