"""Making the scenario of a run from its data and configuration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from faircl.data.file_data import FileData
from faircl.data.label_index import LabelIndex, index_labels
from faircl.data.masks import colour_names
from faircl.data.sample import SegmentationData
from faircl.errors import UserError
from faircl.progress import Reporter
from faircl.scenario.class_steps import build_scenario
from faircl.scenario.conventions import CONVENTIONS, ConventionName
from faircl.scenario.domain_steps import build_domain_scenario
from faircl.scenario.scenario import Protocol, Scenario
from faircl.scenario.tasks import canonical, split_classes, split_domains

if TYPE_CHECKING:
    from faircl.config.schema import ScenarioConfig
    from faircl.readers.base import ReaderConfig


class Splits(NamedTuple):
    """The splits of training and test images."""

    train: str
    test: str


class IndexedScenario(NamedTuple):
    """A scenario, the splits of its images, and the label indices of both."""

    scenario: Scenario
    splits: Splits
    train: LabelIndex
    test: LabelIndex


def make_scenario(
    data: SegmentationData,
    reader: ReaderConfig,
    config: ScenarioConfig,
    reporter: Reporter,
    *,
    convention: ConventionName = "full",
    joint: bool = False,
    cache: bool = True,
) -> IndexedScenario:
    """Count the classes of every mask and build the scenario; images are not read."""
    protocol = find_protocol(data, config)
    splits = find_splits(reader, protocol)
    report_skipped_files(data, splits, reporter)
    if protocol == "classes":
        made = _make_class_scenario(data, splits, config, reporter, convention, joint, cache)
    else:
        made = _make_domain_scenario(data, splits, config, protocol, reporter, joint, cache)
    colours = colour_names(data.palette) if isinstance(data, FileData) else []
    return made._replace(scenario=replace(made.scenario, colours=tuple(colours)))


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
    """Return the splits of training and test images; under a domain protocol both are one pool of the two splits."""
    if protocol == "classes":
        return Splits(reader.train, reader.test)
    pool = reader.train if reader.train == reader.test else f"{reader.train}+{reader.test}"
    return Splits(pool, pool)


def report_skipped_files(data: SegmentationData, splits: Sequence[str], reporter: Reporter) -> None:
    """Report the files of each split that belong to none of its images."""
    if not isinstance(data, FileData):
        return
    for split in dict.fromkeys(splits):
        if skipped := data.skipped(split):
            more = ", …" if len(skipped) > 3 else ""
            count = "1 file" if len(skipped) == 1 else f"{len(skipped)} files"
            reporter.say(
                f"note: skipped {count} of split {split}, for belonging to none of its images: "
                f"{', '.join(skipped[:3])}{more} ('faircl data check' lists them)"
            )


def warn_of_leaks(scenario: Scenario, reporter: Reporter) -> None:
    """Report how many test images are also training images."""
    leaks = [(step.leaked, t) for t, step in enumerate(scenario.steps) if step.leaked > 0]
    if leaks:
        last, (worst, t) = scenario.steps[-1].leaked, max(leaks)
        most = "" if worst == last else f", and {worst:.1%} after step {t}"
        clean = "; protocol clean has none" if scenario.protocol == "plop" else ""
        reporter.say(
            f"warning: {last:.1%} of the test images after the last step have been trained on{most}, so scores are too "
            f"good ('faircl scenario show' says it for every step){clean}"
        )


def _make_class_scenario(
    data: SegmentationData,
    splits: Splits,
    config: ScenarioConfig,
    reporter: Reporter,
    convention: ConventionName,
    joint: bool,
    cache: bool,
) -> IndexedScenario:
    steps = split_classes(config.task, config.order, data.classes)
    train, test = (index_labels(data, split, reporter, cache) for split in splits)
    suspicion = data.suspicion(train.pixels.sum(0)) if isinstance(data, FileData) else ""
    try:
        scenario = build_scenario(
            data.classes,
            steps,
            train,
            test,
            task=canonical(config.task),
            setting=config.setting,
            convention=CONVENTIONS[convention],
            joint=joint,
        )
    except UserError as error:
        raise (UserError(f"{error} Mind that {suspicion}.") if suspicion else error) from None
    if suspicion:
        reporter.say(f"warning: {suspicion}")
    return IndexedScenario(scenario, splits, train, test)


def _make_domain_scenario(
    data: SegmentationData,
    splits: Splits,
    config: ScenarioConfig,
    protocol: Protocol,
    reporter: Reporter,
    joint: bool,
    cache: bool,
) -> IndexedScenario:
    if config.setting != "overlapped":
        raise UserError(
            f"Setting '{config.setting}' is about classes of other steps, but under protocol {protocol} every step "
            "labels all classes; leave scenario.setting out."
        )
    if not isinstance(data, FileData):
        raise UserError(f"Protocol {protocol} needs data with domains; this data set has none.")
    pool = splits.train
    found = [data.domain(pool, id) for id in data.ids(pool)]
    if None in found:
        outside = data.ids(pool)[found.index(None)]
        raise UserError(
            f"Protocol {protocol} needs every image in the folder of its domain, but '{outside}' lies in none; put the "
            "images of each domain into a folder of its name."
        )
    domains = [name for name in found if name is not None]
    groups = split_domains(config.task, config.order, order_domains(domains, data.domain_order))
    index = index_labels(data, pool, reporter, cache)
    scenario = build_domain_scenario(
        data.classes,
        groups,
        index,
        domains,
        task=canonical(config.task),
        protocol=protocol,
        seed=config.split_seed,
        joint=joint,
    )
    return IndexedScenario(scenario, splits, index, index)


def order_domains(found: list[str], published: tuple[str, ...]) -> list[str]:
    """Return the distinct domains: in the published order, then the others sorted."""
    names = set(found)
    return [name for name in published if name in names] + sorted(names - set(published))
