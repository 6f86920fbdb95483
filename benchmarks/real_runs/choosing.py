"""Choosing rows by their validation images, and comparing two rows seed by seed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from faircl.errors import UserError
from real_runs.results import Result, only

MEASURES = ("old", "new", "all", "average", "std", "worst")
"""After the last step: mean IoU of old, new and all classes, its average over steps, STD, IoU of the worst class."""


class Paired(NamedTuple):
    """Difference of two rows: mean over the seeds that both have, its standard error, and their number.

    With the differences d_s of N seeds the error is √(Σ(d_s − d̄)² / (N − 1)) / √N, NaN for one seed.
    """

    mean: float
    error: float
    seeds: int


def measure(result: Result, name: str) -> float:
    """Return one of MEASURES of a run; NaN where it has none."""
    value = result["average"] if name == "average" else result["steps"][-1][name]
    return math.nan if value is None else float(value)


def mean(values: Sequence[float]) -> float:
    """Return the mean; NaN where a value is, or where there are none."""
    return math.fsum(values) / len(values) if values else math.nan


def spread(values: Sequence[float]) -> float:
    """Return the sample standard deviation √(Σ(x − x̄)² / (N − 1)); NaN for less than two values."""
    if len(values) < 2:
        return math.nan
    centre = mean(values)
    return math.sqrt(math.fsum((value - centre) ** 2 for value in values) / (len(values) - 1))


def best_label(results: Sequence[Result]) -> str:
    """Return the label with the highest mIoU over all classes, a mean over the seeds it has; of equals the first.

    A single label is no choice: its results may be of test images.
    """
    labels = dict.fromkeys(result["label"] for result in results)
    if len(labels) == 1:
        return next(iter(labels))
    _check_validation(results)
    scores = {label: mean([measure(result, "all") for result in only(results, label=label)]) for label in labels}
    return max(scores, key=lambda label: scores[label])


def chosen_variants(results: Sequence[Result], benchmark: str) -> dict[str, str]:
    """Return the best label of every family on a benchmark, in the order of the results; ablations are not chosen."""
    own = [result for result in only(results, benchmark=benchmark) if result["role"] != "ablation"]
    families = dict.fromkeys(result["family"] for result in own)
    return {family: best_label(only(own, family=family)) for family in families}


def baselines(results: Sequence[Result], benchmark: str) -> list[str]:
    """Return the labels of all baselines on a benchmark; with a single one there is nothing to choose."""
    return list(dict.fromkeys(result["label"] for result in only(results, benchmark=benchmark, role="baseline")))


def best_baseline(results: Sequence[Result], benchmark: str) -> str | None:
    """Return the best label of all baselines on a benchmark; None where there is none."""
    own = only(results, benchmark=benchmark, role="baseline")
    return best_label(own) if own else None


def paired(one: Sequence[Result], other: Sequence[Result], name: str) -> Paired:
    """Compare two rows of one benchmark in one of MEASURES, seed by seed: the first minus the second."""
    by_seed = [{result["seed"]: measure(result, name) for result in row} for row in (one, other)]
    differences = [by_seed[0][seed] - by_seed[1][seed] for seed in sorted(by_seed[0].keys() & by_seed[1].keys())]
    count = len(differences)
    return Paired(mean(differences), spread(differences) / math.sqrt(count) if count else math.nan, count)


def _check_validation(results: Sequence[Result]) -> None:
    if tested := [result["run"] for result in results if result["images"] != "validation"]:
        raise UserError(f"Rows are chosen by validation images, but {tested[0]} was evaluated on test images.")
