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
from faircl.scenario.division import Division, Splits, divide
from faircl.scenario.domain_steps import build_domain_scenario
from faircl.scenario.scenario import Scenario, Setting
from faircl.scenario.tasks import canonical

if TYPE_CHECKING:
    from faircl.config.schema import ScenarioConfig
    from faircl.readers.base import ReaderConfig


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
    divided = divide(data, reader, config, joint)
    splits = divided.splits
    report_skipped_files(data, splits, reporter)
    if divided.protocol == "classes":
        made = _make_class_scenario(data, divided, config.setting, reporter, convention, joint, cache)
    else:
        made = _make_domain_scenario(data, divided, config.split_seed, reporter, joint, cache)
    colours = colour_names(data.palette) if isinstance(data, FileData) else []
    return made._replace(scenario=replace(made.scenario, colours=tuple(colours)))


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
    divided: Division,
    setting: Setting,
    reporter: Reporter,
    convention: ConventionName,
    joint: bool,
    cache: bool,
) -> IndexedScenario:
    train, test = (index_labels(data, split, reporter, cache) for split in divided.splits)
    suspicion = data.suspicion(train.pixels.sum(0)) if isinstance(data, FileData) else ""
    try:
        scenario = build_scenario(
            data.classes,
            divided.classes,
            train,
            test,
            task=canonical(divided.task),
            setting=setting,
            convention=CONVENTIONS[convention],
            joint=joint,
        )
    except UserError as error:
        raise (UserError(f"{error} Mind that {suspicion}.") if suspicion else error) from None
    if suspicion:
        reporter.say(f"warning: {suspicion}")
    return IndexedScenario(scenario, divided.splits, train, test)


def _make_domain_scenario(
    data: SegmentationData, divided: Division, seed: int, reporter: Reporter, joint: bool, cache: bool
) -> IndexedScenario:
    index = index_labels(data, divided.splits.train, reporter, cache)
    scenario = build_domain_scenario(
        data.classes,
        divided.domains,
        index,
        divided.image_domains,
        task=canonical(divided.task),
        protocol=divided.protocol,
        seed=seed,
        joint=joint,
    )
    return IndexedScenario(scenario, divided.splits, index, index)
