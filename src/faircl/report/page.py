"""One self-contained HTML file per run, readable offline."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from faircl.files import write_text
from faircl.metrics import forgetting
from faircl.report import plots
from faircl.report.pictures import run_strips
from faircl.report.run_tables import class_table, step_table
from faircl.runs.run import Run, load_run
from faircl.tables import show


def write_run_page(run_dir: Path) -> Path:
    """Write ``report.html`` into a run folder and return its path."""
    run = load_run(run_dir)
    several = len(run.steps) > 1
    figures = [
        (
            "Every class after the last step, the most frequent first. Hatched bars are the rarest third.",
            plots.class_iou_bars(run.final),
        )
    ]
    if several:
        figures.append(("Mean IoU of old, new and all classes.", plots.miou_over_steps(run.steps)))
    if run.training:
        figures.append(("Training loss and its weighted terms.", plots.loss_curves(run.training)))
    if any("bound" in record.measures for record in run.training):
        figures.append(
            (
                "How far features have moved since the step before, and the bound that Proposition 1 rests on: the "
                "distance to the class's prototype now, and then. Means over pixels of a class with a prototype.",
                plots.bound_curves(run.training),
            )
        )
    return _write(
        Path(run_dir) / "report.html",
        "run.html.j2",
        title=f"{run.method} on {run.task}",
        run=run,
        summary=run_summary(run),
        steps=step_table(run),
        classes=class_table(run),
        figures=[(caption, Markup(svg)) for caption, svg in figures],  # made by plots.py, which escapes names
        strips=run_strips(run),
    )


def run_summary(run: Run) -> str:
    """Return the result of a run in a few sentences."""
    final, groups = run.final, run.final.groups
    made = f"adopted from {run.adopted}" if run.adopted else f"trained in {_count(len(run.steps), 'step')}"
    known = f"{run.method} with {run.model}, {made}, segments {_count(len(final.classes), 'class', 'classes')}"
    if run.adopted and not any(c.pixels for c in final.classes):
        return f"{known}. It was not evaluated: no labelled images were given."
    text = [f"On {run.task}, {known} with a mean IoU of {_percent(groups['all'].miou)}"]
    if not math.isnan(groups["old"].miou) and not math.isnan(groups["new"].miou):
        text[0] += f": {_percent(groups['old'].miou)} on the old classes, {_percent(groups['new'].miou)} on the new"
    if final.worst and final.best and final.worst is not final.best:
        text.append(
            f"The best class is {final.best.name} with {_percent(final.best.iou)}, the worst {final.worst.name} with "
            f"{_percent(final.worst.iou)}: a gap of {show(final.gap, 1)} points"
        )
    if not math.isnan(final.rarest_third):
        text.append(
            f"The rarest third of the classes reaches {_percent(final.rarest_third)}, "
            f"the most frequent third {_percent(final.frequent_third)}"
        )
    lost = forgetting(run.steps).mean
    if not math.isnan(lost):
        verb = "lost" if lost >= 0 else "gained"
        text.append(f"Since their best step the old classes have {verb} {show(abs(lost), 1)} points on average")
    if len(run.steps) > 1 and not math.isnan(run.average):
        text.append(f"Averaged over the steps, the mean IoU is {_percent(run.average)}")
    on = " on the validation images" if final.images == "validation" else ""
    text.append(f"Scored by the convention {final.convention}{on}")
    if run.leaked > 0:
        text.append(
            f"Note that {_percent(100 * run.leaked)} of the last step's {final.images} images have been trained on"
        )
    return ". ".join(text) + "."


def _percent(value: float) -> str:
    return f"{show(value, 1)}\N{NO-BREAK SPACE}%"


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def _write(path: Path, template: str, **values: Any) -> Path:
    """Render a template into a file, which is written whole or not at all."""
    # autoescape for every template: class names, labels and configurations are user input.
    environment = Environment(
        loader=PackageLoader("faircl.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    write_text(path, environment.get_template(template).render(**values))
    return path
