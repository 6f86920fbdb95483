"""The configuration of an adopted run: FairCL, the network, and the settings that networks of its kind train with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from faircl.config.overrides import merge, parse_override
from faircl.config.recipes import recipe_tree
from faircl.config.run import RunConfig, apply_overrides, parse_config
from faircl.errors import UserError
from faircl.registry import MODELS

_RECIPES = {
    "segformer": "folder-segformer",
    "deeplabv3": "folder-deeplab",
    "deeplabv3plus": "folder-deeplab",
    "timm": "folder-segformer",
    "vit": "folder-dinov2",
}
"""Recipe whose optimiser and batches a network is trained on with; all others have those of ``folder``."""

_METHODS = ("faircl", "faircl-paper")


def model_settings(name: str | None, overrides: Iterable[str]) -> dict[str, Any] | None:
    """Return what the user says of the network, by name and by ``model.…`` settings; None if nothing."""
    given: dict[str, Any] = {} if name is None else {"model": {"name": name}}
    for override in overrides:
        tree = parse_override(override)
        if "model" in tree:
            given = merge(given, {"model": tree["model"]})
    settings = given.get("model")
    if settings is None:
        return None
    if "name" not in settings:
        raise UserError("Settings of model are given, but not the network that they belong to; add --model NAME.")
    MODELS.get(settings["name"])  # an unknown name is an error that lists all
    return dict(settings)


def run_config(
    model: Mapping[str, Any], data: Mapping[str, Any] | None, background: bool, overrides: Iterable[str]
) -> RunConfig:
    """Return the configuration of a run whose network is described by ``model``.

    Without ``data`` its reader is ``folder`` without a root: it names no data, and ``faircl eval --root`` may do so.
    """
    data = data or {"name": "folder", "background": "first" if background else "none"}
    tree = dict(recipe_tree(_RECIPES.get(str(model["name"]), "folder")))
    weights = {"weights": "none"} if "weights" in MODELS.get(str(model["name"])).Config.model_fields else {}
    tree |= {"model": {**weights, **model}, "method": {"name": "faircl"}, "data": dict(data)}
    config = parse_config(apply_overrides(merge(tree, {"scenario": {"task": "offline"}}), overrides))
    if config.method.name not in _METHODS:
        raise UserError(
            f"An adopted run is of method {' or '.join(_METHODS)}, which can take a network up; found "
            f"{config.method.name}: leave it out."
        )
    return config
