"""Making the scenario of a run from its data and configuration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
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
from faircl.scenario.validation import (
    Validation,
    check_classes_remain,
    check_images_remain,
    held_out_ids,
    held_out_of_domains,
    matching_ids,
    of_class_steps,
    of_domain_steps,
    warn_of_shared_images,
)

if TYPE_CHECKING:
    from faircl.config.schema import ScenarioConfig
    from faircl.readers.base import ReaderConfig


class IndexedScenario(NamedTuple):
    """A scenario, the splits of its images, label indices of training and test images, and validation images."""

    scenario: Scenario
    splits: Splits
    train: LabelIndex
    test: LabelIndex
    validation: Validation | None = None


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
    report_skipped_files(data, divided.splits.names, reporter)
    if divided.protocol == "classes":
        made = _make_class_scenario(data, reader, divided, config.setting, reporter, convention, joint, cache)
    else:
        made = _make_domain_scenario(data, reader, divided, config.split_seed, reporter, joint, cache)
    colours = tuple(colour_names(data.palette)) if isinstance(data, FileData) else ()
    if made.validation is None:
        return made._replace(scenario=replace(made.scenario, colours=colours))
    warn_of_shared_images(made.validation, made.scenario, made.test, reporter)
    scenario, validated = (
        replace(one, colours=colours, validation=made.validation.index.ids)
        for one in (made.scenario, made.validation.scenario)
    )
    return made._replace(scenario=scenario, validation=replace(made.validation, scenario=validated))


def report_skipped_files(data: SegmentationData, splits: Sequence[str], reporter: Reporter) -> None:
    """Report the files of each split that belong to none of its images."""
    if not isinstance(data, FileData):
        return
    told: set[str] = set()
    for split in dict.fromkeys(splits):
        skipped = list(data.skipped(split))
        if "+" in split:  # parts of a joined split of validation images come on their own too
            skipped = [file for file in skipped if file not in told]
        if skipped:
            told |= set(skipped)
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
    reader: ReaderConfig,
    divided: Division,
    setting: Setting,
    reporter: Reporter,
    convention: ConventionName,
    joint: bool,
    cache: bool,
) -> IndexedScenario:
    splits = divided.splits
    train, test = (index_labels(data, split, reporter, cache) for split in (splits.train, splits.test))
    suspicion = data.suspicion(train.pixels.sum(0)) if isinstance(data, FileData) else ""
    build = partial(
        build_scenario,
        data.classes,
        divided.classes,
        test=test,
        task=canonical(divided.task),
        setting=setting,
        convention=CONVENTIONS[convention],
        joint=joint,
    )
    try:
        scenario = build(train=train)
    except UserError as error:
        raise (UserError(f"{error} Mind that {suspicion}.") if suspicion else error) from None
    if suspicion:
        reporter.say(f"warning: {suspicion}")
    if splits.validation is None or reader.validation is None:
        return IndexedScenario(scenario, splits, train, test)
    if isinstance(reader.validation, float):
        held_out = held_out_ids(train.ids, reader.validation, reader.validation_seed)
        advice = "choose a smaller share or another data.validation_seed"
    else:
        held_out = matching_ids(train.ids, reader.validation_patterns)
        advice = "choose narrower patterns"
    index = _validation_index(data, reader, splits, train, held_out, reporter, cache)
    if held_out:
        check_classes_remain(scenario, train, held_out, advice)
        train = train.select(set(train.ids) - set(held_out))
        scenario = build(train=train)
    validation = of_class_steps(scenario, splits.validation, train, index, CONVENTIONS[convention])
    return IndexedScenario(scenario, splits, train, test, validation)


def _make_domain_scenario(
    data: SegmentationData,
    reader: ReaderConfig,
    divided: Division,
    seed: int,
    reporter: Reporter,
    joint: bool,
    cache: bool,
) -> IndexedScenario:
    splits = divided.splits
    index = index_labels(data, splits.train, reporter, cache)
    build = partial(
        build_domain_scenario,
        data.classes,
        divided.domains,
        index,
        divided.image_domains,
        task=canonical(divided.task),
        protocol=divided.protocol,
        seed=seed,
        joint=joint,
    )
    scenario = build()
    if splits.validation is None or reader.validation is None:
        return IndexedScenario(scenario, splits, index, index)
    trained = {id for step in scenario.steps for id in step.images}
    of_trained = {id: name for id, name in zip(index.ids, divided.image_domains, strict=True) if id in trained}
    if isinstance(reader.validation, float):
        held_out = held_out_of_domains(of_trained, reader.validation, reader.validation_seed)
    else:
        held_out = matching_ids(of_trained, reader.validation_patterns)
        check_images_remain(scenario, held_out)
    own = _validation_index(data, reader, splits, index, held_out, reporter, cache)
    if held_out:
        scenario = build(left_out=held_out)
    assert isinstance(data, FileData), "divide refuses domains of other data"
    of_own = {id: data.domain(splits.validation, id) for id in own.ids}
    validation = of_domain_steps(scenario, splits.validation, index, own, of_own)
    return IndexedScenario(scenario, splits, index, index, validation)


def _validation_index(
    data: SegmentationData,
    reader: ReaderConfig,
    splits: Splits,
    train: LabelIndex,
    held_out: Sequence[str],
    reporter: Reporter,
    cache: bool,
) -> LabelIndex:
    """Count the validation images: those of the splits that are named for it, then the training images held out."""
    assert splits.validation is not None
    if splits.validation == splits.train:
        return train.select(held_out)
    named = [id for split in reader.validation_splits for id in data.ids(split)]
    return index_labels(data, splits.validation, reporter, cache, list(dict.fromkeys((*named, *held_out))))
