"""Names of class increments, as the field writes them.

``"15-1"`` is 15 classes first, then one at a time until none is left; ``"6-2-3"`` lists every step's size;
``"offline"`` is a single step. A list of lists names the classes of each step by name or raw id.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from faircl.data.sample import Classes
from faircl.errors import UserError, did_you_mean
from faircl.seeding import generator

Task = str | list[list[int | str]]
Order = str | list[int | str] | None


def short_task(task: str) -> str:
    """Return a task as a heading has room for it: class lists by their lengths, "6-5 listed".

    >>> short_task('[["sky", "tree"], ["car"]]')
    '2-1 listed'
    """
    if not task.startswith("["):
        return task
    try:
        return "-".join(str(len(step)) for step in json.loads(task)) + " listed"
    except (ValueError, TypeError):
        return task


def split_classes(task: Task, order: Order, classes: Classes) -> tuple[tuple[int, ...], ...]:
    """Return the raw ids learned at each step, background excluded."""
    if not classes.foreground:
        raise UserError("The data has no class besides background; name the classes to learn, one per line.")
    if isinstance(task, str):
        ids = _ordered(order, classes)
        bounds = _bounds(step_sizes(task, len(ids)))
        return tuple(tuple(ids[a:b]) for a, b in bounds)
    if order is not None:
        raise UserError("scenario.order was given together with explicit class lists; give the lists in that order.")
    steps = tuple(tuple(class_id(entry, classes) for entry in step) for step in task)
    _check_lists(steps, classes)
    return steps


def step_sizes(task: str, classes: int) -> list[int]:
    """Return the number of classes of each step of a named task over so many foreground classes."""
    if task == "offline":
        return [classes]
    if not re.fullmatch(r"\d+(-\d+)+", task):
        raise UserError(
            f"Unknown task '{task}': expected a name like '15-1' (15 classes, then one at a time), '6-2-3' (sizes of "
            "all steps), 'offline', or a list of class lists."
        )
    first, *rest = (int(part) for part in task.split("-"))
    if first == 0 or 0 in rest:
        raise UserError(f"Task '{task}' has a step without classes; every number must be at least 1.")
    sizes = [first, *rest]
    if len(rest) == 1 and sum(sizes) <= classes:
        repeats, over = divmod(classes - first, rest[0])
        if over:
            raise UserError(
                f"Task '{task}' does not divide {classes} classes: after the first {first}, steps of {rest[0]} leave "
                f"{over} over; name every step's size, as in '{first}-{rest[0]}-{over}', or list the classes."
            )
        sizes = [first, *rest * repeats]
    if sum(sizes) != classes:
        more = "more" if sum(sizes) > classes else "fewer"
        raise UserError(
            f"Task '{task}' has {more} classes than the data: it needs {sum(sizes)}, the data has {classes} to "
            "learn; choose a task that fits or list the classes of each step."
        )
    return sizes


def class_id(entry: int | str, classes: Classes) -> int:
    """Return the raw id of a class given by name or id."""
    if isinstance(entry, str) and entry in classes.names:
        entry = classes.names.index(entry)
    if isinstance(entry, str):
        raise UserError(
            f"Unknown class '{entry}'.{did_you_mean(entry, classes.names)} Known: {', '.join(classes.names)}."
        )
    if entry not in classes.foreground:
        raise UserError(
            f"Class id {entry} cannot be learned: ids run from {classes.foreground[0]} to {classes.foreground[-1]}."
        )
    return entry


def _ordered(order: Order, classes: Classes) -> list[int]:
    if order is None:
        return list(classes.foreground)
    if isinstance(order, str):
        match = re.fullmatch(r"random:(\d+)", order)
        if not match:
            raise UserError(f"Unknown class order '{order}': expected a list of classes, or 'random:SEED'.")
        return [int(i) for i in generator(int(match[1]), "class order").permutation(classes.foreground)]
    ids = [class_id(entry, classes) for entry in order]
    if sorted(ids) != list(classes.foreground):
        raise UserError(
            f"scenario.order names {len(set(ids))} different classes in {len(ids)} entries; expected each of the "
            f"{len(classes.foreground)} classes exactly once."
        )
    return ids


def _check_lists(steps: Sequence[Sequence[int]], classes: Classes) -> None:
    flat = [i for step in steps for i in step]
    twice = sorted({classes.names[i] for i in flat if flat.count(i) > 1})
    if twice:
        raise UserError(f"Classes listed in more than one place of the task: {', '.join(twice)}; list each once.")
    if not steps or not all(steps):
        raise UserError("The task's class lists must hold at least one step, and every step at least one class.")


def _bounds(sizes: Sequence[int]) -> list[tuple[int, int]]:
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    return list(zip([0, *ends[:-1]], ends, strict=True))
