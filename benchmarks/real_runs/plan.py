"""A plan: which settings are trained on which benchmarks with which seeds.

seeds: [0, 1, 2]                       # of every row that has none of its own
benchmarks: [camvid-6-5, ccp-16-10]    # likewise: recipes, or YAML files
images: validation                     # what runs are evaluated on; test only for rows that were chosen before
settings: [train.log_every=50]         # of all rows, before their own
rows:
  - label: faircl
    role: ours
  - label: mib
    settings: [method=mib]
  - label: mib, weighted
    settings: [method=mib, balance.loss=weighted]
    family: mib                        # one of several variants, of which validation chooses one
  - label: joint
    settings: [method=joint, train.epochs=45]
    role: bound
    seeds: [0]
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

import yaml

from faircl.config.recipes import recipe_tree
from faircl.config.run import RunConfig, resolve
from faircl.config.yaml_text import read_yaml
from faircl.errors import UserError

Images = Literal["validation", "test"]
Role = Literal["ours", "baseline", "bound", "ablation"]
"""The method in question, what it is compared with, what it cannot pass or must pass, and changes of it."""

_PLAN = {"seeds", "benchmarks", "images", "settings", "rows"}
_ROW = {"label", "family", "role", "seeds", "benchmarks", "settings"}


@dataclass(frozen=True)
class Job:
    """One run: a row of the plan on one benchmark with one seed.

    ``settings`` are those of the row, ``shared`` those of the whole plan; ``config`` has all.
    """

    benchmark: str
    label: str
    seed: int
    config: RunConfig = field(repr=False)
    settings: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    family: str = ""
    role: Role = "baseline"

    @cached_property
    def name(self) -> str:
        """Name of the run's folder; it ends with a digest of all settings, so that other settings are another run."""
        tree = self.config.model_dump(mode="json")
        for section, key in (("data", "root"), ("model", "weights")):  # files may move
            if tree[section].get(key):
                tree[section][key] = Path(tree[section][key]).name
        digest = hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()[:8]
        return "-".join((self.benchmark, _slug(self.label), str(self.seed), digest))


@dataclass(frozen=True)
class Place:
    """Where data and weights are: folders by the first word of a recipe's name, and a file of weights."""

    roots: Mapping[str, Path]
    weights: Path | None = None

    def settings(self, recipe: str) -> tuple[str, ...]:
        """Return the settings of a recipe's data and weights; none if no folder is known for it."""
        root = self.root(recipe)
        if root is None:
            return ()
        weights = () if self.weights is None else (f"model.weights={json.dumps(str(self.weights.resolve()))}",)
        return (f"data.root={json.dumps(str(root.resolve()))}", *weights)

    def root(self, recipe: str) -> Path | None:
        """Return the folder of a recipe's data."""
        return self.roots.get(Path(recipe).stem.partition("-")[0])


def read_plan(path: Path, place: Place) -> list[Job]:
    """Return the jobs of a plan; a UserError where it has a mistake, or a setting that no run can have."""
    try:
        tree = read_yaml(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise UserError(f"Cannot read the plan {path}: {' '.join(str(error).split())}.") from None
    if not isinstance(tree, dict) or not isinstance(tree.get("rows"), list):
        raise UserError(f"{path} is no plan; expected a mapping with a list of rows.")
    _check_keys(tree, _PLAN, str(path))
    jobs = [job for number, row in enumerate(tree["rows"]) for job in _row_jobs(row, number, tree, path, place)]
    names = [job.name for job in jobs]
    if twice := {name for name in names if names.count(name) > 1}:
        raise UserError(f"{path} has the run {min(twice)} twice; give every row a label of its own.")
    return jobs


def _row_jobs(row: Any, number: int, plan: Mapping[str, Any], path: Path, place: Place) -> list[Job]:
    where = f"row {number} of {path}"
    if not isinstance(row, dict) or not isinstance(row.get("label"), str):
        raise UserError(f"{where[0].upper()}{where[1:]} has no label; expected a mapping with a label.")
    _check_keys(row, _ROW, where)
    role = row.get("role", "baseline")
    if role not in get_args(Role):
        raise UserError(f"The role of {where} is {role!r}; expected one of: {', '.join(get_args(Role))}.")
    images = plan.get("images", "validation")
    if images not in get_args(Images):
        raise UserError(f"The images of {path} are {images!r}; expected one of: {', '.join(get_args(Images))}.")
    shared, settings = tuple(plan.get("settings", ())), tuple(row.get("settings", ()))
    found = []
    for recipe in _listed(row, plan, "benchmarks", where):
        tree = recipe_tree(recipe)
        for seed in _listed(row, plan, "seeds", where):
            overrides = (*place.settings(recipe), *shared, *settings, f"eval.images={images}", f"seed={seed}")
            config = resolve(tree, overrides)
            if getattr(config.data, "root", "") is None:
                raise UserError(f"The folder of {recipe}'s data is not given; add --{recipe.partition('-')[0]} FOLDER.")
            config = config.model_copy(update={"data": config.data.absolute()})  # as a run is begun
            family = row.get("family", row["label"])
            found.append(Job(Path(recipe).stem, row["label"], seed, config, settings, shared, family, role))
    return found


def _listed(row: Mapping[str, Any], plan: Mapping[str, Any], key: str, where: str) -> Sequence[Any]:
    values = row.get(key, plan.get(key))
    if not isinstance(values, list) or not values:
        raise UserError(f"There are no {key} for {where}; list some in the row or for the whole plan.")
    return values


def _check_keys(tree: Mapping[str, Any], known: set[str], where: str) -> None:
    if unknown := sorted(map(str, tree.keys() - known)):
        raise UserError(f"Unknown key '{unknown[0]}' in {where}; known: {', '.join(sorted(known))}.")


def _slug(label: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", label.lower()).strip("-")
