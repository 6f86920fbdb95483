"""Rows of the charts in a run's page: bars of every step, heat map, confusion matrix, flow, distribution, headline."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from faircl.fairness.lost_pixels import NONE
from faircl.metrics import forgetting
from faircl.report.confusion import confusion_shares, most_confused
from faircl.report.numbers import between, counted, number, percent, signed
from faircl.report.run_view import RunView, StepView
from faircl.report.scales import LEVELS
from faircl.report.worst_class import equally_bad
from faircl.tables import MISSING

MANY = 40
"""Classes of which a chart shows all; with more it scrolls, or shows a choice."""
CHOSEN = 25  # classes in a choice of the confusion matrix
PARTS = ("kept", "background", "older", "newer", "no-class")
"""CSS classes of a flow: kept, to background, to a class learned before or with it, to one learned later, to none."""
VISIBLE = 0.5  # percent: a smaller share is left out of the confusion matrix


class Card(NamedTuple):
    """A number of the headline: what it is, its value, its interval, and a note."""

    name: str
    value: str
    interval: str
    note: str


def headline(view: RunView) -> list[Card]:
    """Return the numbers at the top: a spread stands beside its mean, the worst class has its own class's interval.

    There is none where nothing was evaluated.
    """
    if not view.evaluated:
        return []
    final, audit = view.final.metrics, view.final.audit
    cards = [
        Card(
            "Mean IoU",
            percent(final.groups["all"].miou),
            between(audit.miou_interval if audit else None),
            f"over {counted(len(view.scored), 'class', 'classes')}",
        ),
        Card(
            "STD between classes",
            number(final.groups["all"].std, 1),
            between(audit.std_interval if audit else None),
            f"points; read it beside the mean of {number(final.groups['all'].miou, 1)}",
        ),
    ]
    if final.worst is not None and view.comparable:
        own = view.final.audited.get(final.worst.id)
        equals = len(equally_bad(final.worst, final.classes))
        note = "IoU of the worst class" + (f" and of {counted(equals, 'other')}" if equals else "")
        if own is not None:
            of = "the interval is that of this class, not of the minimum"
            note += f"; {of if own.interval else 'it has no interval: too few images show it, or all are alike'}"
        interval = between(own.interval if own else None)
        cards.append(Card(f"Worst: {final.worst.name}", percent(final.worst.iou), interval, note))
    lost = forgetting(view.metrics).mean
    if not math.isnan(lost):
        note = "points that old classes lost against their best earlier step"
        note += "; below zero, they gained" if lost < 0 else ""
        cards.append(Card("Forgetting", number(lost, 1), "", note))
    return cards


def bars(view: RunView) -> list[list[dict[str, Any]]]:
    """For every step and class, by frequency, what its bar shows: width, whisker, texts, old, new or unknown yet."""
    before: list[StepView | None] = [None, *view.steps[:-1]]
    return [
        [_bar(view, one, earlier, c.id) for c in view.classes] for one, earlier in zip(view.steps, before, strict=True)
    ]


def step_heads(view: RunView) -> list[dict[str, str]]:
    """For every step what the charts say about it."""
    heads = []
    for one in view.steps:
        names = view.learned_at(one.number)
        groups = one.metrics.groups["all"]
        learned = f"learned: {', '.join(names[:6])}{' …' if len(names) > 6 else ''}" if names else "no new class"
        heads.append(
            {
                "title": f"after step {one.number}",
                "text": f"mean IoU {number(groups.miou, 1)}, STD {number(groups.std, 1)}; {learned}",
            }
        )
    return heads


def _bar(view: RunView, one: StepView, earlier: StepView | None, id: int) -> dict[str, Any]:
    known = one.classes.get(id)
    if known is None:
        return {"kind": "later", "iou": None, "low": None, "high": None, "text": "", "interval": "", "change": ""}
    audited = one.audited.get(id)
    interval = audited.interval if audited else None
    change = known.iou - earlier.iou(id) if earlier else math.nan
    return {
        "kind": "new" if known.learned_at == one.number and len(view.steps) > 1 else "old",
        "iou": None if math.isnan(known.iou) else round(known.iou, 2),
        "low": round(interval.low, 2) if interval else None,
        "high": round(interval.high, 2) if interval else None,
        "text": number(known.iou, 1),
        "interval": between(interval),
        "change": "" if math.isnan(change) else signed(change),
    }


class HeatGroup(NamedTuple):
    """Classes that one step learned: a heading, and for every class its name and cells (text, level, learned here)."""

    title: str
    rows: list[tuple[str, list[tuple[str, int | None, bool]]]]


def heat_map(view: RunView) -> list[HeatGroup]:
    """IoU of every class after every step, in groups by the step that learned it."""
    groups = []
    for step in sorted({c.learned_at for c in view.classes}):
        rows = []
        for c in (c for c in view.final.metrics.classes if c.learned_at == step):
            known = [(one.number, one.iou(c.id), c.id in one.classes) for one in view.steps]
            cells = [
                (number(iou, 0) if learned else "", level(iou) if learned else None, at == step)
                for at, iou, learned in known
            ]
            rows.append((c.name, cells))
        groups.append(HeatGroup(f"learned at step {step}", rows))
    return groups


def level(value: float) -> int | None:
    """Return the shade of 0 to 100 percent; None for NaN."""
    return None if math.isnan(value) else round(min(max(value, 0.0), 100.0) / 100 * (LEVELS - 1))


def confusions(view: RunView) -> dict[str, Any] | None:
    """Confusion shares of every step with a record, and which classes to show; None without a record of the last one.

    ``steps`` maps a position among the steps to rows of [predicted, share in tenths of a percent, …], by true class;
    positions are those among the classes of the last step in the order of learning, one more for no class.
    """
    if view.final.record is None:
        return None
    order = {c.id: k for k, c in enumerate(view.final.record.classes)}
    steps: dict[int, list[list[int] | None]] = {}
    for place, one in enumerate(view.steps):
        if one.record is None or not {c.id for c in one.record.classes} <= set(order):
            continue
        moved = np.array([*(order[c.id] for c in one.record.classes), len(order)])
        rows: list[list[int] | None] = [None] * len(order)
        shares = np.rint(10 * confusion_shares(one.record)).astype(np.int64)
        for c, row in zip(one.record.classes, shares, strict=True):
            (to,) = row.nonzero()
            rows[order[c.id]] = np.stack([moved[to], row[to]], axis=1).ravel().tolist()
        steps[place] = rows
    names = [c.name for c in view.final.record.classes]
    return {"names": names, "steps": steps, "choices": _choices(view, order)}


class Matrix(NamedTuple):
    """A confusion matrix as it is shown: names and positions of the columns, and rows of (text, level, own class)."""

    names: list[str]
    columns: list[int]
    rows: list[tuple[str, list[tuple[str, int | None, bool]]]]


def matrix(found: dict[str, Any], place: int) -> Matrix:
    """Return the matrix of the first choice of ``confusions`` after a step, by its position."""
    names, shown = [*found["names"], "no class"], list(found["choices"][0]["show"])
    shares = np.zeros((len(names) - 1, len(names)))
    for truth, row in enumerate(found["steps"][place]):
        shares[truth, row[::2]] = np.array(row[1::2]) / 10
    columns = [*shown, len(names) - 1] if (shares[shown, -1] >= VISIBLE).any() else shown
    rows = [(names[truth], [_cell(shares[truth, k], truth == k) for k in columns]) for truth in shown]
    return Matrix(names, columns, rows)


def _cell(share: float, own: bool) -> tuple[str, int | None, bool]:
    """Return text, level and whether it is on the diagonal; levels go by the root, so that small shares are seen."""
    if share < VISIBLE:
        return "", None, own
    return f"{math.floor(share + 0.5)}", math.floor(math.sqrt(share / 100) * (LEVELS - 1) + 0.5), own


def _choices(view: RunView, order: dict[int, int]) -> list[dict[str, Any]]:
    """Return sets of classes to show a confusion matrix of, the first by default."""
    assert view.final.record is not None
    shares = confusion_shares(view.final.record)
    ranked = [order[c.id] for c in view.classes if c.pixels]
    new = [order[c.id] for c in view.classes if c.learned_at == view.final.number]
    found = [("all classes", list(range(len(order))))] if len(order) <= MANY else []
    found.append((f"the {CHOSEN} most confused", most_confused(shares, CHOSEN)))
    if len(order) > CHOSEN:
        found.append((f"the {CHOSEN} rarest", sorted(ranked[-CHOSEN:])))
        found.append((f"the {CHOSEN} most frequent", sorted(ranked[:CHOSEN])))
    if 1 < len(new) < len(order) and len(view.steps) > 1:
        found.append(("those of the last step", sorted(new)[:MANY]))
    named = shares[:, :-1] + shares[:, :-1].T
    for k in np.argsort([c.name.casefold() for c in view.final.record.classes], kind="stable").tolist():
        near = np.argsort(-np.where(np.arange(len(order)) == k, np.inf, named[k]), kind="stable")[:9]
        found.append((f"{view.final.record.classes[k].name} and its neighbours", sorted(near.tolist())))
    smallest = 2 if len(order) > 1 else 1
    return [{"label": label, "show": chosen} for label, chosen in found if len(chosen) >= smallest]


def flow_rows(view: RunView) -> list[list[dict[str, Any]] | None]:
    """For every step the flow of every class, by frequency: shares of ``PARTS`` and the destinations in words."""
    return [[_flow(one, c.id) for c in view.classes] if one.record is not None else None for one in view.steps]


def _flow(one: StepView, id: int) -> dict[str, Any]:
    flow = one.flows.get(id)
    if flow is None:
        return {"parts": [], "kept": MISSING, "text": "no pixel of it" if id in one.classes else "not learned yet"}
    to = [("no class" if r.id == NONE else r.name, r.share) for r in flow.receivers if r.share >= 0.05]
    shares = flow.shares
    parts = [shares["itself"], shares["background"], shares["old"] + shares["same"], shares["newer"], shares["none"]]
    return {
        "parts": [round(part, 2) for part in parts],
        "kept": number(shares["itself"], 1),
        "text": ", ".join(f"{name} {number(share, 1)}" for name, share in to) or "nothing lost",
    }
