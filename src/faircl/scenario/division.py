"""How a task divides the classes or the domains of a data set into steps; no mask is read for it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from faircl.data.file_data import FileData
from faircl.data.sample import SegmentationData
from faircl.errors import UserError, listed
from faircl.scenario.scenario import Protocol
from faircl.scenario.tasks import Task, split_classes, split_domains

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faircl.config.schema import ScenarioConfig
    from faircl.readers.base import ReaderConfig


class Splits(NamedTuple):
    """The splits of training, test and validation images.

    ``validation`` may be the training split or join it to others (``val+train``), where training images are held out.
    """

    train: str
    test: str
    validation: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Every split once."""
        return tuple(dict.fromkeys(split for split in self if split is not None))


class Division(NamedTuple):
    """A task, and the class ids (``classes``) or the domains (``domains``) of each of its steps, by its protocol.

    Under a domain protocol ``image_domains`` are the domains of all images of the pool, in the order of their ids.
    """

    task: Task
    protocol: Protocol
    splits: Splits
    classes: tuple[tuple[int, ...], ...] = ()
    domains: tuple[tuple[str, ...], ...] = ()
    image_domains: tuple[str, ...] = ()


def divide(data: SegmentationData, reader: ReaderConfig, config: ScenarioConfig, joint: bool = False) -> Division:
    """Find splits and steps; a UserError where a split is missing, or where the task is or does not fit the data."""
    protocol = find_protocol(data, config)
    splits = find_splits(reader, protocol)
    if splits.validation not in (None, splits.train, *reader.validation_splits) and not isinstance(data, FileData):
        raise UserError(
            f"data.validation takes images of several splits ({splits.validation}), which only image files can be "
            f"read from; name one split, or patterns of training ids alone."
        )
    if protocol == "classes":
        for split in splits.names:
            data.ids(split)
        names = [data.classes.names[id] for id in data.classes.foreground]
        task = _required_task(config.task, names, "classes", joint)
        return Division(task, protocol, splits, classes=split_classes(task, config.order, data.classes))
    if config.setting != "overlapped":
        raise UserError(
            f"Setting '{config.setting}' is about classes of other steps, but under protocol {protocol} every step "
            "labels all classes; leave scenario.setting out."
        )
    if not isinstance(data, FileData):
        raise UserError(f"Protocol {protocol} needs data with domains; this data set has none.")
    found = _image_domains(data, splits.train, protocol)
    names = order_domains(found, data.domain_order)
    task = _required_task(config.task, names, "domains", joint)
    return Division(
        task, protocol, splits, domains=split_domains(task, config.order, names), image_domains=tuple(found)
    )


def find_protocol(data: SegmentationData, config: ScenarioConfig) -> Protocol:
    """Return the protocol; raise an error if it is not set and the task is published for domains."""
    if config.protocol is not None:
        return config.protocol
    published = data.domain_tasks if isinstance(data, FileData) else ()
    if config.task in published:
        raise UserError(
            f"Task '{config.task}' of this data set is published by domain, all classes at every step; say which "
            "protocol: clean (every domain split once), plop (as published; it tests on training images), or classes "
            "(the task divides the classes), with scenario.protocol (--protocol of scenario show)."
        )
    return "classes"


def find_splits(reader: ReaderConfig, protocol: Protocol) -> Splits:
    """Return the splits of a run's images; under a domain protocol training and test images are one pool."""
    pool = reader.train if reader.train == reader.test else f"{reader.train}+{reader.test}"
    train, test = (reader.train, reader.test) if protocol == "classes" else (pool, pool)
    if trained := {reader.train, train} & set(reader.validation_splits):
        raise UserError(
            f"data.validation names split '{min(trained)}', which is trained on; name another split, or say which of "
            "its images to leave out: a share, as in data.validation=0.1, or a pattern of their ids, as in "
            "data.validation='site-3/*'."
        )
    if reader.validation is None:
        return Splits(train, test)
    held_out = [train] if isinstance(reader.validation, float) or reader.validation_patterns else []
    parts = [part for split in (*reader.validation_splits, *held_out) for part in split.split("+")]
    return Splits(train, test, "+".join(dict.fromkeys(parts)))


def order_domains(found: Sequence[str], published: tuple[str, ...]) -> list[str]:
    """Return the distinct domains: in the published order, then the others sorted."""
    names = set(found)
    return [name for name in published if name in names] + sorted(names - set(published))


def _image_domains(data: FileData, pool: str, protocol: Protocol) -> list[str]:
    domains = []
    for id in data.ids(pool):
        domain = data.domain(pool, id)
        if domain is None:
            raise UserError(
                f"Protocol {protocol} needs every image in the folder of its domain, but '{id}' lies in none; put the "
                "images of each domain into a folder of its name."
            )
        domains.append(domain)
    return domains


def _required_task(task: Task | None, names: Sequence[str], what: str, joint: bool) -> Task:
    """Return the task; a missing one is an error that proposes one, except for joint training, which has one step."""
    if task is not None:
        return task
    if joint or not names:  # the error for data without classes is another
        return "offline"
    count = len(names)
    one = count == 1
    first = min(math.ceil(0.6 * count), count - 1)
    example = "offline" if one else f"{first}-{count - first}"
    meaning = "" if one else f" ({first} {what} first, then {count - first}); --task offline trains all at once"
    noun = what.removesuffix("s" if what == "domains" else "es") if one else what
    raise UserError(
        f"No task says which {what} are learned when; the data has {count} {noun}: {listed(names)}. Set "
        f"scenario.task, as in --task {example}{meaning}."
    )
