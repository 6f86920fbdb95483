"""The result of a run in plain sentences, each by a fixed rule from the metrics and records."""

from __future__ import annotations

import math
from itertools import pairwise

from faircl.fairness.intervals import Interval
from faircl.fairness.lost_pixels import KINDS, NONE, LostPixels
from faircl.metrics import ClassMetrics, forgetting
from faircl.report.numbers import counted, enumerated, number, percent, points
from faircl.report.run_view import RunView
from faircl.report.worst_class import served_worst

DROP = 1.0  # points: a smaller loss at a step is not mentioned


def told(view: RunView) -> list[str]:
    """Return the sentences, the most important first; fewer where less is known."""
    if not view.evaluated:
        return [f"{_made(view)}.", "It was not evaluated: no labelled images were given."]
    found = [_accuracy(view), _worst(view), _wrong_old(view), _forgotten(view), _thirds(view), _average(view)]
    return [f"{text}." for text in (*found, *_notes(view)) if text]


def _made(view: RunView) -> str:
    run = view.run
    of = counted(len(view.steps), "step")
    if view.final.number + 1 < view.planned:
        of = f"{len(view.steps)} of {view.planned} steps"
    made = f"adopted from {run.adopted}" if run.adopted else f"trained in {of}"
    known = counted(len(view.final.metrics.classes), "class", "classes")
    return f"{run.method} with {run.model}, {made}, segments {known}"


def _accuracy(view: RunView) -> str:
    final, audit = view.final.metrics, view.final.audit
    groups = final.groups
    text = f"{_made(view)} with a mean IoU of {percent(groups['all'].miou)}"
    if audit is not None:
        images = counted(audit.images, f"{final.images} image")
        text += f" ({spoken(audit.miou_interval, audit.confidence)}on {images})"
    if view.comparable:
        text += f" and a standard deviation of {points(groups['all'].std)} between the classes"
    if not math.isnan(groups["old"].miou) and not math.isnan(groups["new"].miou):
        text += f": {percent(groups['old'].miou)} on the old classes, {percent(groups['new'].miou)} on the new"
    return text


def _worst(view: RunView) -> str:
    """Name the class served worst and those like it: its IoU, the step that cost it most, and where its pixels went."""
    worst = view.final.metrics.worst
    if worst is None or not view.comparable:
        return ""
    clauses = [f"{served_worst(worst, view.classes)}: {number(worst.iou, 0)} of 100", largest_drop(view, worst)]
    if (flow := view.final.flows.get(worst.id)) is not None:
        clauses.append(destination(flow))
    return "; ".join(clause for clause in clauses if clause)


def largest_drop(view: RunView, of: ClassMetrics) -> str:
    """Say at which step a class lost most: "it lost 9 points when sign was learned"; empty below a point."""
    ious = [(one.number, one.iou(of.id)) for one in view.steps]
    drops = [(a - b, step) for (_, a), (step, b) in pairwise(ious) if not math.isnan(a - b)]
    drop, step = max(drops, default=(0.0, 0))
    if drop < DROP:
        return ""
    names = view.learned_at(step)
    when = f"when {enumerated(names)} {'was' if len(names) == 1 else 'were'} learned" if names else f"at step {step}"
    return f"it lost {number(drop, 0)} {'point' if round(drop) == 1 else 'points'} {when}"


def destination(flow: LostPixels) -> str:
    """Say where the pixels of a class went; empty where fewer than one in a hundred was lost."""
    lost = 100 - flow.shares["itself"]
    if lost < 1 or not flow.receivers:
        return ""
    to = [("no class" if one.id == NONE else one.name, one.share) for one in flow.receivers]
    name, share = to[0]
    if share > 50:
        return f"most of its pixels, {percent(share, 0)}, went to {name}"
    if share > lost / 2:
        return f"most of its lost pixels went to {name}, {percent(share, 0)} of all"
    return "its lost pixels went to " + enumerated([f"{name} ({percent(share, 0)})" for name, share in to])


def _wrong_old(view: RunView) -> str:
    """Where the wrong pixels of the classes learned before the last step went, all together."""
    if view.final.record is None or len(view.steps) < 2:
        return ""
    old = [c.id for c in view.final.record.classes if c.learned_at < view.final.number and not c.background]
    flows = [view.final.flows[id] for id in old if id in view.final.flows]
    wrong = {kind: sum(flow.pixels * flow.shares[kind] for flow in flows) for kind in KINDS[1:]}
    total = sum(wrong.values())
    if not total:
        return ""
    to = {"background": wrong["background"], "classes learned before or with them": wrong["old"] + wrong["same"]}
    to |= {"classes learned later": wrong["newer"], "no class": wrong["none"]}
    shares = sorted(((100 * part / total, kind) for kind, part in to.items()), reverse=True)
    parts = [f"{percent(share, 0)} went to {kind}" for share, kind in shares if share >= 1]
    return f"Of the wrong pixels of the old classes, {enumerated(parts, len(parts))}"


def _forgotten(view: RunView) -> str:
    mean = forgetting(view.metrics).mean
    if math.isnan(mean):
        return ""
    names = {c.id: c.name for c in view.classes}
    lost, id = max((value, id) for id, value in view.lost.items() if not math.isnan(value))
    text = "Compared with their best earlier step, the old classes have "
    text += f"{'lost' if mean >= 0 else 'gained'} {points(abs(mean))} on average"
    return f"{text}; {names[id]} lost most, {points(lost)}" if lost >= DROP else text


def _thirds(view: RunView) -> str:
    final = view.final.metrics
    third = [c for c in final.classes[int(final.background) :] if c.pixels]
    if math.isnan(final.rarest_third) or len(third) < 2:
        return ""
    return (
        f"The rarest third of the classes reaches {percent(final.rarest_third)}, "
        f"the most frequent third {percent(final.frequent_third)}"
    )


def _average(view: RunView) -> str:
    whole = len(view.steps) > 1 and [one.number for one in view.steps] == list(range(len(view.steps)))
    values = [one.groups["all"].miou for one in view.metrics]
    if not whole or any(math.isnan(value) for value in values):
        return ""
    return f"Averaged over the steps, the mean IoU is {percent(math.fsum(values) / len(values))}"


def _notes(view: RunView) -> list[str]:
    run, final = view.run, view.final.metrics
    on = " on the validation images" if final.images == "validation" else ""
    notes = [f"Scored by the convention {final.convention}{on}"]
    if run.leaked > 0 and final.step == run.final.step:
        leaked = percent(100 * run.leaked)
        notes.append(f"Note that {leaked} of the last step's {final.images} images have been trained on")
    return notes


def spoken(interval: Interval | None, confidence: float) -> str:
    """Return "95 % interval 58.0 to 64.1 ", with a space at its end; empty where there is none."""
    if interval is None:
        return ""
    return f"{percent(100 * confidence, 0)} interval {number(interval.low, 1)} to {number(interval.high, 1)} "
