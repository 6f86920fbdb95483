"""Which runs may be compared, and which are repeats of one experiment."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from faircl.config.identity import REPEATS, differing_settings
from faircl.effects import Effect
from faircl.runs.run import Run

_SAME = {"labels_sha256": "data", "task": "task", "setting": "setting", "protocol": "protocol"}
"""What scenarios must have in common, by its key in scenario.json.

Not the sha256 of the whole scenario: joint training has steps of its own, and is there to be compared with.
"""


def comparison_obstacles(runs: Sequence[Run]) -> list[str]:
    """Say why numbers of runs must not be put side by side: a run given twice, other data, task, images or step."""
    found = []
    for one, other in combinations(runs, 2):
        if one.folder.resolve() == other.folder.resolve():
            found.append(f"{one.folder} is given twice")
    first = runs[0]
    for key, word in _SAME.items():
        default = "classes" if key == "protocol" else None
        expected = first.scenario_tree.get(key, default)
        for run in runs:
            if (value := run.scenario_tree.get(key, default)) != expected:
                values = "" if word == "data" else f" ({expected} and {value})"
                found.append(f"{first.folder} and {run.folder} differ in {word}{values}")
                break
    for run in runs:
        if run.final.images != first.final.images:
            found.append(
                f"{first.folder} and {run.folder} were evaluated on other images ({first.final.images} and "
                f"{run.final.images} images)"
            )
            break
    for run in runs:
        if run.final.step != first.final.step:
            steps = f"{first.final.step} and {run.final.step}"
            found.append(f"{first.folder} and {run.folder} were evaluated last after different steps ({steps})")
            break
    return found


def comparison_warnings(runs: Sequence[Run]) -> list[str]:
    """Say what makes runs less comparable: convention, network, unfinished steps, leaks."""
    found = []
    if len({run.final.convention for run in runs}) > 1:
        found.append("the runs were scored by different conventions; 'faircl eval --convention' scores again")
    if len({run.model for run in runs}) > 1:
        found.append("the runs have different networks")
    for run in runs:
        wanted = len(run.scenario_tree.get("steps", ()))
        if len(run.steps) < wanted:
            found.append(f"{run.folder} has finished {len(run.steps)} of its {wanted} steps")
    if any(run.leaked > 0 for run in runs):
        found.append("runs were tested on images they have been trained on")
    return found


def repeat_warnings(runs: Sequence[tuple[str, Run]]) -> list[str]:
    """Say which labels have runs that differ in more than seed, evaluation, places and speed, or not even in these."""
    found = []
    for label in dict(runs):
        own = [run for other, run in runs if other == label]
        first, *others = (run.config_tree for run in own)
        if keys := sorted({key for other in others for key in differing_settings(first, other, REPEATS)}):
            listed = ", ".join(keys[:3]) + (" and more" if len(keys) > 3 else "")
            found.append(f"the runs of row {label} differ in {listed}; give them labels of their own")
        for one, other in combinations(own, 2):
            if not differing_settings(one.config_tree, other.config_tree, {Effect.NONE}):
                found.append(
                    f"{one.folder} and {other.folder} of row {label} have the same settings and the same seed, so they "
                    "do not count as two"
                )
    return found
