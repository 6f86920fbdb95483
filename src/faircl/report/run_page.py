"""The page of a run: one HTML file with everything in it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from markupsafe import Markup

from faircl.files import ELSEWHERE
from faircl.report import plots, run_rows
from faircl.report.distribution import DistributionRow, distribution, readable
from faircl.report.gallery_files import GalleryFiles, gallery_files
from faircl.report.measure_rows import measure_rows, reliability_rows, transfer_rows
from faircl.report.numbers import counted, enumerated, percent
from faircl.report.rendering import Script, inert_json, write_page
from faircl.report.run_tables import class_table, step_table
from faircl.report.run_view import RunView
from faircl.report.scales import FLOW, LEVELS, NEW, OLD, confusion_levels, heat_levels
from faircl.report.story import told

Figures = list[tuple[str, Markup]]


def write_view(view: RunView, path: Path, advice: str = ELSEWHERE) -> Path:
    """Write the page of a run to a file; ``advice`` is for a failed write."""
    gallery = gallery_files(view.run, [one.number for one in view.steps])
    values = {
        **_top(view, gallery),
        **_charts(view, gallery),
        **_confusion(view),
        **_figures(view),
        **_distribution(view),
        "gallery": gallery,
        "picture_data": [inert_json(gallery.masks_json(picture)) for picture in gallery.pictures],
    }
    values["sections"] = _sections(view, gallery, values)
    values["data"] = inert_json(_data(view, gallery, values))
    return write_page(path, "run.html.j2", advice, **values)


def missing(view: RunView, gallery: GalleryFiles) -> list[str]:
    """Return what the page cannot show, and how to get it."""
    said = []
    if view.without_record and view.evaluated:
        steps = enumerated([f"step {number}" for number in view.without_record], 6)
        why = view.unread or (f"The evaluation of {steps} left no record image by image, as one of an earlier faircl.",)
        said.append(
            f"{' '.join(why)} Intervals, confusions and where lost pixels went are missing for {steps}. To have them, "
            "write masks of labelled images with 'faircl predict' and give them to 'faircl audit'."
        )
    if gallery.unread:
        more = f" ({counted(len(gallery.unread) - 1, 'more image')} likewise)" if len(gallery.unread) > 1 else ""
        said.append(f"Left out of the gallery: {gallery.unread[0]}{more}")
    elif not gallery.pictures:
        said.append("No image was kept, so there is no gallery; the setting eval.gallery says how many are.")
    if view.final.number + 1 < view.planned:
        shown = f"This page shows {view.final.number + 1} of {view.planned} steps"
        last = view.final.number == view.run.final.step
        said.append(f"{shown}: {'the run has not finished the others' if last else 'later ones are left out'}.")
    return said


def _top(view: RunView, gallery: GalleryFiles) -> dict[str, Any]:
    audit = view.final.audit
    level = audit.confidence if audit else 0.95
    return {
        "title": f"{view.run.method} on {view.run.task}",
        "view": view,
        "cards": run_rows.headline(view),
        "sentences": told(view),
        "missing": missing(view, gallery),
        "confidence": f"{percent(100 * level, 0)} interval",
        "script": Script("report.js", "gallery.js"),
        "OLD": OLD,
        "NEW": NEW,
        "FLOW": FLOW,
        "heat": heat_levels(),
        "light": confusion_levels("#ffffff", "#083d6b"),
        "dark": confusion_levels("#14171b", "#a6d6f7"),
    }


def _charts(view: RunView, gallery: GalleryFiles) -> dict[str, Any]:
    shares = {c.id: readable(view.share(c.id)) if view.pixels[c.id] else "–" for c in view.classes}
    return {
        "heads": run_rows.step_heads(view),
        "bars": run_rows.bars(view),
        "with_intervals": any(one.audit for one in view.steps),
        "shares": shares,
        "paint": {paint.id: paint for paint in gallery.paints},
        "same_colours": [f"{paint.name} (like {paint.same_as})" for paint in gallery.paints if paint.hatched],
        "heat_map": run_rows.heat_map(view) if len(view.steps) > 1 else None,
        "measures": [*measure_rows(view.final.metrics, view.final.audit), *transfer_rows(view.metrics)],
        "sizes": [one for one in view.final.audit.sizes if one.objects] if view.final.audit else [],
        "bins": reliability_rows(view.final.record) if view.final.record else [],
        "steps_table": step_table(view.metrics, view.run),
        "class_table": class_table(view.metrics, view.run, view.final.audit),
    }


def _confusion(view: RunView) -> dict[str, Any]:
    found = run_rows.confusions(view)
    return {
        "confusion": found,
        "matrix": run_rows.matrix(found, len(view.steps) - 1) if found else None,
        "flow": run_rows.flow_rows(view),
        "flow_names": run_rows.PARTS,
    }


def _figures(view: RunView) -> dict[str, Figures]:
    steps: Figures = []
    training: Figures = []
    records = [one for one in view.run.training if one.step <= view.final.number]
    # Markup: the plots escape names themselves.
    if len(view.steps) > 1:
        steps.append(("Mean IoU of old, new and all classes.", Markup(plots.miou_over_steps(view.metrics))))
    if records:
        training.append(("Training loss and its weighted terms.", Markup(plots.loss_curves(records))))
    if any("bound" in one.measures for one in records):
        about = (
            "How far features have moved since the step before, and the bound that Proposition 1 rests on: the "
            "distance to the class's prototype now, and then. Means over pixels of a class with a prototype."
        )
        training.append((about, Markup(plots.bound_curves(records))))
    return {"step_figures": steps, "training_figures": training}


def _distribution(view: RunView) -> dict[str, Any]:
    rows: list[DistributionRow] = distribution(view)
    return {
        "distribution": rows,
        "has_evaluated": any(row.evaluated.text for row in rows),
        "has_training": any(row.training.text for row in rows),
    }


def _sections(view: RunView, gallery: GalleryFiles, values: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the sections that have something to show, in order: their template and their heading."""
    evaluated = not all(math.isnan(c.iou) for c in view.classes)
    shown = {
        "classes": ("Classes", evaluated),
        "steps": ("Steps", evaluated),
        "confusion": ("Confusions", values["confusion"] is not None),
        "gallery": ("Gallery", bool(gallery.pictures)),
        "measures": ("Measures", True),
        "distribution": ("Class distribution", values["has_evaluated"] or values["has_training"]),
        "training": ("Training", bool(values["training_figures"])),
        "made": ("How it was made", True),
    }
    return [(id, name) for id, (name, here) in shown.items() if here]


def _data(view: RunView, gallery: GalleryFiles, values: dict[str, Any]) -> dict[str, Any]:
    """Return what the script needs to change the page."""
    return {
        "heads": values["heads"],
        "bars": values["bars"],
        "intervals": values["with_intervals"],
        "confusion": values["confusion"],
        "flow": values["flow"] if values["confusion"] else [],
        "parts": run_rows.PARTS,
        "levels": LEVELS,
        "gallery": {
            "paints": [
                {"name": p.name, "colour": p.colour, "background": p.background, "hatched": p.hatched}
                for p in gallery.paints
            ],
            "steps": [one.number for one in view.steps],
            "depth": gallery.depth,
            "names": [picture.id for picture in gallery.pictures],
            "reasons": [picture.reasons for picture in gallery.pictures],
        },
    }
