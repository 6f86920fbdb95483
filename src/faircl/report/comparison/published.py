"""Published numbers of the benchmark that runs were made on: same data, task, setting and kind of network."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from faircl.config.published import PublishedTable, tables
from faircl.config.recipes import recipe_names, recipe_tree
from faircl.runs.run import Run
from faircl.scenario import short_task

Compares = Literal["methods", "terms", "groups"]
_NAME = re.compile(r"(?P<data>[a-z]+)-(?P<task>\d+-\d+)(?:-(?P<rest>.+))?$")
_REST = {"ablation": "terms", "groups": "groups", "margin": "", "groups-first": ""}
"""What tables compare whose rows are no methods; other endings name the paper that a table of methods is from."""

_SETTING = {"cityscapes": {"protocol": "plop"}}
"""What scenarios of published tables are made with; all others in the setting overlapped, by classes."""


@dataclass(frozen=True)
class PublishedRow:
    """A row of a published table, a claim of its authors: numbers by the measure that they are of, in percent."""

    name: str
    source: str
    numbers: Mapping[str, float | None]


def published_rows(run: Run, compares: Compares = "methods") -> tuple[PublishedRow, ...]:
    """Return the rows that are published for a run's data, task, setting and kind of network.

    The paper's tables come first; of those of other papers only methods follow that have no row yet.
    """
    found: dict[str, PublishedRow] = {}
    groups = {column: group for group, column in run.final.published_groups.items()}
    for table in tables().values():
        if not _same_benchmark(table, run.scenario_tree, _part(run, "data"), compares):
            continue
        for name in table.rows:
            if name not in found and _network(table.name, name) == _part(run, "model"):
                numbers = {_measure(column, groups): value for column, value in table.row(name).items()}
                found[name] = PublishedRow(name, table.source, numbers)
    return tuple(found.values())


def _same_benchmark(table: PublishedTable, scenario: Mapping[str, Any], data: str, compares: str) -> bool:
    match = _NAME.match(table.name)
    if match is None or _REST.get(match["rest"] or "", "methods") != compares:
        return False
    made = {"setting": "overlapped", "protocol": "classes"} | _SETTING.get(match["data"], {})
    own = {"protocol": "classes"} | {key: scenario[key] for key in made if scenario.get(key)}
    if made["protocol"] != "classes":
        made.pop("setting")
    same = all(own.get(key) == value for key, value in made.items())
    return same and (data, short_task(str(scenario.get("task")))) == (match["data"], match["task"])


def _part(run: Run, part: str) -> str:
    value = run.config_tree.get(part)
    return str(value.get("name", "")) if isinstance(value, dict) else str(value or "")


def _measure(column: str, groups: Mapping[str, str]) -> str:
    """Return the measure that a column of a published table prints, by the name that rows have for it."""
    name, std = (column.removesuffix(" STD"), "_std") if column.endswith(" STD") else (column, "")
    measure = {"avg": "average"}.get(name, groups.get(name, name))
    return "std" if (measure, std) == ("all", "_std") else measure + std


def _network(table: str, row: str) -> str:
    """Return the network of a published row: that of its recipe, otherwise what its name says."""
    return _networks().get((table, row), "segformer" if "SegFormer" in row else "deeplabv3")


@cache
def _networks() -> dict[tuple[str, str], str]:
    trees = (recipe_tree(name) for name in recipe_names())
    return {
        (table, row): str(tree["model"]["name"])
        for tree in trees
        for table, row in (tree.get("published") or {}).items()
    }
