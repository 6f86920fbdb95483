"""The step that adds classes to a model: its scenario, its configuration and its plan.

Seen from the model, all that it knows was learned at step 0, without images; the new classes are those of step 1. Its
random numbers are those of the step that follows the model's last one, as in a run that knew the step beforehand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from faircl.config.overrides import given_settings, merge, parse_override
from faircl.config.run import RunConfig, apply_overrides, parse_config
from faircl.data.label_index import LabelIndex
from faircl.deploy.matching import Known, Matching
from faircl.devices import check_device
from faircl.errors import UserError, listed
from faircl.registry import METHODS
from faircl.runs.folder import RunFolder
from faircl.scenario import Scenario, Step
from faircl.scenario.class_steps import digest_labels, with_background_presence, with_shares


@dataclass(frozen=True)
class Base:
    """The model that classes are added to: a saved step of a version."""

    folder: RunFolder
    step: int
    config: RunConfig
    scenario: Scenario

    @classmethod
    def open(cls, folder: RunFolder) -> Base:
        """Open the last finished step of a version's folder."""
        return cls(folder, folder.usable_steps() - 1, folder.config(), folder.load_scenario())

    @property
    def known(self) -> Known:
        """The classes of the model."""
        return Known.of(self.scenario, self.step)

    @property
    def keeps_features(self) -> bool:
        """Whether the model's method is FairCL, whose state has what a further step needs."""
        from faircl.methods.faircl import FairCL

        return issubclass(METHODS.get(self.config.method.name), FairCL)


def added_scenario(
    base: Base, matching: Matching, images: Sequence[str], train: LabelIndex, test: LabelIndex, complete: bool
) -> Scenario:
    """Return the scenario of one added step; train and test count pixels by the ids of ``matching.classes``."""
    known = base.known
    counts = train.select(images).pixels.sum(0)
    if missing := [matching.classes.names[id] for id in matching.new if not counts[id]]:
        raise UserError(f"No pixel of the new data is {listed(missing)}; add images that show it, or leave it out.")
    pixels = dict(zip(base.scenario.channel_ids, base.scenario.pixels, strict=True))
    background = int(matching.classes.background)
    shown = tuple(id for id in matching.known if counts[id])
    steps = (
        Step(known.learned[background:], (), test.ids),
        Step(matching.new, tuple(images), test.ids, also_labelled=() if complete else shown),
    )
    scenario = Scenario(
        classes=matching.classes,
        task=f"{len(known.learned) - background}-{len(matching.new)}",
        setting="sequential" if complete else "overlapped",
        steps=steps,
        learned_at=(*(0 for _ in known.learned), *(1 for _ in matching.new)),
        pixels=(*(pixels[id] for id in known.learned), *(int(counts[id]) for id in matching.new)),
        labels_sha256=digest_labels(train, test),
        colours=_colours(base.scenario, matching),
        earlier_steps=base.scenario.seed_step(base.step),
    )
    return with_shares(with_background_presence(scenario, test), train, test)


def _colours(scenario: Scenario, matching: Matching) -> tuple[str, ...]:
    """Return the colours of all classes where the model has its own; a new class gets one of PASCAL VOC's."""
    from faircl.data.masks import colour_names, voc_palette

    if not scenario.colours:
        return ()
    more = colour_names(voc_palette(len(matching.classes.names)))[len(scenario.colours) :]
    return (*scenario.colours, *more)


def added_config(base: Base, data: dict[str, Any], scenario: Scenario, settings: Sequence[str]) -> RunConfig:
    """Return the configuration of an added step: that of the model, with the new data.

    A method other than FairCL gives way to it. A replay memory of images is left out, as no old image is needed.
    """
    tree = _tree(base)
    tree["data"] = data
    tree["scenario"] = {"task": scenario.task, "setting": scenario.setting}
    tree["train"]["batch"] = min(tree["train"]["batch"], len(scenario.steps[1].images))
    config = parse_config(apply_overrides(tree, settings))
    return config.model_copy(update={"data": config.data.absolute()})


def check_settings(base: Base, settings: Sequence[str]) -> None:
    """Raise a UserError for settings that are wrong, or that follow from the model and the new data."""
    for override in settings:
        key = next(iter(given_settings(parse_override(override))), override)
        if key.partition(".")[0] in ("data", "scenario", "model", "memory"):
            raise UserError(
                f"Setting {key} cannot be changed here: it follows from the model or from the new data; leave it out."
            )
    tree = _tree(base)
    config = parse_config(apply_overrides(tree, settings))
    if config.method.name != tree["method"]["name"]:
        raise UserError(f"Classes are added by {tree['method']['name']}, not by {config.method.name}; leave it out.")
    check_device(config.train)


def _tree(base: Base) -> dict[str, Any]:
    """Return the settings of the model that hold for an added step as well."""
    tree = base.config.model_dump(mode="json")
    tree["memory"] = {}
    tree["eval"] = merge(tree["eval"], {"images": "test", "convention": "full"})
    tree["train"] = merge(tree["train"], {"validate_every": 0, "keep": "last", "patience": 0})
    if tree["train"].get("cache") == "disk":  # which reads files as they are, not in a model's ids
        tree["train"]["cache"] = "memory"
    if not base.keeps_features:
        tree["method"] = {"name": "faircl"}
    return tree
