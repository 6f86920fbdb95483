"""Which runs may be compared, and which are repeats of one experiment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from faircl.config.identity import REPEATS, differing_settings
from faircl.runs.run import Run


def comparison_warnings(runs: Sequence[Run]) -> list[str]:
    """Say what keeps runs from being comparable: data, task, convention, network, unfinished steps, leaks."""
    found = []
    if len({_scenario(run) for run in runs}) > 1:
        found.append("the runs differ in data, task, setting or protocol")
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
    """Say which labels have runs that differ in more than seed, evaluation, places and speed."""
    found = []
    for label in dict(runs):
        first, *others = (run.config_tree for other, run in runs if other == label)
        if keys := sorted({key for other in others for key in differing_settings(first, other, REPEATS)}):
            listed = ", ".join(keys[:3]) + (" and more" if len(keys) > 3 else "")
            found.append(f"the runs of row {label} differ in {listed}; give them labels of their own")
    return found


def _scenario(run: Run) -> tuple[Any, ...]:
    # Not the sha256 of the whole scenario: joint training has steps of its own, and is there to be compared with.
    keys = ("labels_sha256", "task", "setting")
    return (*(run.scenario_tree.get(key) for key in keys), run.scenario_tree.get("protocol", "classes"))
