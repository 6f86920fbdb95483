"""Task names, as in the literature: how classes (or domains) are divided into steps.

``"15-1"``: 15 classes first, then one at a time; ``"15-5s"``: 15, then 5, one at a time; ``"6-2-3"``: the size of every
step; ``"offline"``: a single step. A list of lists gives the classes of each step by name or raw id.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from faircl.data.sample import Classes
from faircl.errors import UserError, did_you_mean, listed
from faircl.seeding import generator

Task = str | list[list[int | str]]
Order = str | list[int | str] | None


def short_task(task: str) -> str:
    """Return a short name of a task for headings: class lists by their lengths, "6-5 listed".

    >>> short_task('[["sky", "tree"], ["car"]]')
    '2-1 listed'
    """
    if not task.startswith("["):
        return task
    try:
        return "-".join(str(len(step)) for step in json.loads(task)) + " listed"
    except (ValueError, TypeError):
        return task


def canonical(task: Task) -> str:
    """Return the canonical name of a task: ``15-5s`` is ``15-1``, a list is its JSON.

    >>> canonical("15-5s")
    '15-1'
    """
    if not isinstance(task, str):
        return json.dumps(task)
    match = re.fullmatch(r"(\d+)-(\d+)s", task)
    return f"{match[1]}-1" if match else task


def split_classes(task: Task, order: Order, classes: Classes) -> tuple[tuple[int, ...], ...]:
    """Return the raw ids learned at each step, background excluded."""
    if not classes.foreground:
        raise UserError("The data has no class besides background; name the classes to learn, one per line.")
    if isinstance(task, str):
        ids = _ordered(order, classes)
        return tuple(tuple(ids[a:b]) for a, b in _bounds(step_sizes(task, len(ids))))
    if order is not None:
        raise UserError("scenario.order was given together with explicit class lists; give the lists in that order.")
    steps = tuple(tuple(class_id(entry, classes) for entry in step) for step in task)
    _check_lists(steps, classes)
    return steps


def split_domains(task: Task, order: Order, domains: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Return the domains of each step; ``domains`` are all domains in the data set's own order."""
    if isinstance(task, str):
        names = _ordered_domains(order, domains)
        return tuple(tuple(names[a:b]) for a, b in _bounds(step_sizes(task, len(names), "domains")))
    if order is not None:
        raise UserError("scenario.order was given together with explicit lists; give the lists in that order.")
    steps = tuple(tuple(_known_domain(entry, domains) for entry in step) for step in task)
    flat = [name for step in steps for name in step]
    if twice := sorted({name for name in flat if flat.count(name) > 1}):
        raise UserError(f"Domains listed in more than one place of the task: {listed(twice)}; list each once.")
    if not steps or not all(steps):
        raise UserError("The task's lists must hold at least one step, and every step at least one domain.")
    return steps


def step_sizes(task: str, classes: int, what: str = "classes") -> list[int]:
    """Return the number of classes of each step of a named task, out of ``classes`` (``what`` is for errors)."""
    if match := re.fullmatch(r"(\d+)-(\d+)s", task):
        if int(match[1]) + int(match[2]) != classes:
            raise UserError(
                f"Task '{task}' divides {int(match[1]) + int(match[2])} {what}, but the data has {classes}; choose a "
                "task that fits."
            )
        task = canonical(task)
    if task == "offline":
        return [classes]
    if not re.fullmatch(r"\d+(-\d+)+", task):
        raise UserError(
            f"Unknown task '{task}': expected a name like '15-1' (15 {what}, then one at a time), '6-2-3' (sizes of "
            f"all steps), 'offline', or a list of lists of {what}."
        )
    first, *rest = (int(part) for part in task.split("-"))
    if first == 0 or 0 in rest:
        raise UserError(f"Task '{task}' has a step without {what}; every number must be at least 1.")
    sizes = [first, *rest]
    if len(rest) == 1 and sum(sizes) <= classes:
        repeats, over = divmod(classes - first, rest[0])
        if over:
            raise UserError(
                f"Task '{task}' does not divide {classes} {what}: after the first {first}, steps of {rest[0]} leave "
                f"{over} over; name every step's size, as in '{first}-{rest[0]}-{over}', or list the {what}."
            )
        sizes = [first, *rest * repeats]
    if sum(sizes) != classes:
        more = "more" if sum(sizes) > classes else "fewer"
        raise UserError(
            f"Task '{task}' has {more} {what} than the data: it needs {sum(sizes)}, the data has {classes} to "
            f"learn; choose a task that fits or list the {what} of each step."
        )
    return sizes


def class_id(entry: int | str, classes: Classes) -> int:
    """Return the raw id of a class given by name or id."""
    if isinstance(entry, str) and entry in classes.names:
        entry = classes.names.index(entry)
    if isinstance(entry, str):
        raise UserError(f"Unknown class '{entry}'.{did_you_mean(entry, classes.names)} Known: {listed(classes.names)}.")
    if entry not in classes.foreground:
        raise UserError(
            f"Class id {entry} cannot be learned: ids run from {classes.foreground[0]} to {classes.foreground[-1]}."
        )
    return entry


def _ordered(order: Order, classes: Classes) -> list[int]:
    if order is None:
        return list(classes.foreground)
    if isinstance(order, str):
        places = _random_order(order, len(classes.foreground), "class order")
        return [classes.foreground[place] for place in places]
    ids = [class_id(entry, classes) for entry in order]
    if sorted(ids) != list(classes.foreground):
        raise UserError(
            f"scenario.order names {len(set(ids))} different classes in {len(ids)} entries; expected each of the "
            f"{len(classes.foreground)} classes exactly once."
        )
    return ids


def _ordered_domains(order: Order, domains: Sequence[str]) -> list[str]:
    if order is None:
        return list(domains)
    if isinstance(order, str):
        return [domains[place] for place in _random_order(order, len(domains), "domain order")]
    names = [_known_domain(entry, domains) for entry in order]
    if sorted(names) != sorted(domains):
        raise UserError(
            f"scenario.order names {len(set(names))} different domains in {len(names)} entries; expected each of the "
            f"{len(domains)} domains exactly once."
        )
    return names


def _known_domain(entry: int | str, domains: Sequence[str]) -> str:
    name = str(entry)
    if name not in domains:
        raise UserError(f"Unknown domain '{name}'.{did_you_mean(name, domains)} Known: {listed(domains)}.")
    return name


def _random_order(order: str, size: int, what: str) -> list[int]:
    match = re.fullmatch(r"random:(\d+)", order)
    if not match:
        raise UserError(f"Unknown {what} '{order}': expected a list, or 'random:SEED'.")
    return [int(place) for place in generator(int(match[1]), what).permutation(size)]


def _check_lists(steps: Sequence[Sequence[int]], classes: Classes) -> None:
    flat = [i for step in steps for i in step]
    twice = sorted({classes.names[i] for i in flat if flat.count(i) > 1})
    if twice:
        raise UserError(f"Classes listed in more than one place of the task: {listed(twice)}; list each once.")
    if not steps or not all(steps):
        raise UserError("The task's class lists must hold at least one step, and every step at least one class.")


def _bounds(sizes: Sequence[int]) -> list[tuple[int, int]]:
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    return list(zip([0, *ends[:-1]], ends, strict=True))
