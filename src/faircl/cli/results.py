"""Results of runs as JSON for scripts and as tables for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from faircl.config.describe import method_words
from faircl.metrics import StepMetrics
from faircl.runs.folder import RunFolder
from faircl.scenario import short_task


def run_json(folder: RunFolder) -> dict[str, Any]:
    """Return a run's saved evaluations."""
    return _about(folder) | {"steps": [_without_kind(record) for record in folder.records("eval")]}


def evaluated_json(folder: RunFolder, steps: Sequence[StepMetrics]) -> dict[str, Any]:
    """Return evaluations that were made just now."""
    shares = folder.scenario().get("shares", [])
    # A joint run's only step is shown under the task's last number.
    leaked = [shares[min(metrics.step, len(shares) - 1)]["leaked"] if shares else 0.0 for metrics in steps]
    return _about(folder) | {
        "steps": [metrics.to_json() | {"leaked": share} for metrics, share in zip(steps, leaked, strict=True)]
    }


def steps_table(folder: RunFolder) -> Table:
    """Return a run's saved evaluations as a table, a row per step."""
    return steps_table_of(folder, folder.records("eval"))


def steps_table_of(folder: RunFolder, steps: Sequence[dict[str, Any]]) -> Table:
    """Return evaluations in their JSON form as a table."""
    config, task = folder.config(), short_task(folder.scenario()["task"])
    saved = folder.scenario()
    by_domain = saved.get("protocol", "classes") != "classes"
    what = f"protocol {saved['protocol']}" if by_domain else saved["setting"]
    title = Text(f"{method_words(config.model_dump(mode='json'))}, task {task}, {what}, seed {config.seed}")
    columns = ("step", "old", "new", "all", "STD", "gap", "error gap", "rarest third", "worst class")
    # Results of old runs do not say; there was one convention then.
    by = ", ".join(dict.fromkeys(s.get("convention", "full") for s in steps))
    table = Table(*columns, title=title, caption=f"IoU in percent, convention {by}", header_style="bold")
    for s in steps:
        numbers = [*s["miou"].values(), s["std"], s["gap"], s["error_gap"], s["rarest_third"]]
        table.add_row(str(s["step"]), *map(show, numbers), Text(worst(s)))
    return table


def worst(step: dict[str, Any]) -> str:
    """Return the worst class with its IoU, or a dash where no class is present."""
    if step["worst"]["name"] is None:
        return "–"
    return f"{step['worst']['name']} {show(step['worst']['iou'])}"


def show(value: float | None) -> str:
    """Return a number with one decimal, or a dash for none."""
    return "–" if value is None else f"{value:.1f}"


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
