"""Results of runs as JSON and as tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from faircl.config.describe import method_words
from faircl.metrics import StepMetrics
from faircl.runs.folder import RunFolder
from faircl.scenario import short_task
from faircl.tables import Column, Table, Value


def run_json(folder: RunFolder) -> dict[str, Any]:
    """Return a run's saved evaluations."""
    return _about(folder) | {"steps": [_without_kind(record) for record in folder.records("eval")]}


def evaluated_json(folder: RunFolder, steps: Sequence[StepMetrics]) -> dict[str, Any]:
    """Return evaluations that were made just now."""
    shares = folder.scenario().get("shares", [])
    return _about(folder) | {"steps": [metrics.to_json() | {"leaked": _leaked(metrics, shares)} for metrics in steps]}


def _leaked(metrics: StepMetrics, shares: Sequence[dict[str, float]]) -> float | None:
    """Return the share of a step's test images that have been trained on; that of validation images is not saved."""
    if metrics.images != "test":
        return None
    # A joint run's only step is shown under the task's last number.
    return shares[min(metrics.step, len(shares) - 1)]["leaked"] if shares else 0.0


def steps_table(folder: RunFolder) -> Table:
    """Return a run's saved evaluations as a table, a row per step."""
    return steps_table_of(folder, folder.records("eval"))


def steps_table_of(folder: RunFolder, steps: Sequence[dict[str, Any]]) -> Table:
    """Return evaluations in their JSON form as a table."""
    config, saved = folder.config(), folder.scenario()
    by_domain = saved.get("protocol", "classes") != "classes"
    what = f"protocol {saved['protocol']}" if by_domain else saved["setting"]
    method = method_words(config.model_dump(mode="json"))
    # Published tables print the first step's classes and all added ones; these are old and new at the second step only.
    last = StepMetrics.from_json(steps[-1]) if steps else None
    published = last.published_groups if last and last.several_additions else {}
    names = ("old", "new", *published.values(), "all", "STD", "gap", "error gap", "rarest third")
    columns = [Column("step"), *(Column(name, 1) for name in names), *WORST]
    rows = []
    for s in steps:
        mious = [s["miou"]["old"], s["miou"]["new"], *(s[group]["miou"] for group in published), s["miou"]["all"]]
        rows.append([s["step"], *mious, s["std"], s["gap"], s["error_gap"], s["rarest_third"], *worst(s)])
    return Table(
        columns,
        rows,
        title=f"{method}, task {short_task(saved['task'])}, {what}, seed {config.seed}",
        caption=caption_of(steps) + (f"; {published['added']} as far as learned" if published else ""),
        boxed=True,
    )


WORST = (Column("worst class", wrap=False), Column("its IoU", 1))


def worst(step: dict[str, Any]) -> list[Value]:
    """Return the name and the IoU of the worst class, both missing where no class is present."""
    return [step["worst"]["name"], step["worst"]["iou"]]


def caption_of(steps: Sequence[dict[str, Any]]) -> str:
    """Return the unit of the numbers and the conventions and images by which they were scored."""
    # Runs made before there were several conventions do not name theirs.
    by = ", ".join(dict.fromkeys(s.get("convention", "full") for s in steps))
    on = ", ".join(dict.fromkeys(s.get("images", "test") for s in steps))
    return f"IoU in percent, convention {by}{'' if on == 'test' else f', {on} images'}"


def _about(folder: RunFolder) -> dict[str, Any]:
    config = folder.config()
    saved = folder.scenario()
    return {
        "run": str(folder.path),
        "method": config.method.name,
        "model": config.model.name,
        "task": saved["task"],
        "setting": saved["setting"] if saved.get("protocol", "classes") == "classes" else None,
        "protocol": saved.get("protocol", "classes"),
        "seed": config.seed,
        "scenario_sha256": saved["sha256"],
    }


def _without_kind(record: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key != "kind"}
