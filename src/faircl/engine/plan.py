"""Reading and checking the data of a run before anything is written: readable images, a possible task."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from faircl.config.run import RunConfig
from faircl.data.label_index import LabelIndex
from faircl.data.sample import SegmentationData
from faircl.distributed import on_rank_zero
from faircl.errors import UserError, listed
from faircl.integrity.verify import verify_images
from faircl.progress import Reporter
from faircl.registry import is_joint
from faircl.scenario import IndexedScenario, Scenario, Splits, Validation, make_scenario
from faircl.scenario.from_config import warn_of_leaks
from faircl.scenario.replay_memory import ReplayMemory, replay_memories


@dataclass(frozen=True)
class Plan:
    """A validated run: configuration, open data, scenario, and pixel counts.

    ``index`` counts the split of the training images, without validation images of class increments, and
    ``test_index`` that of the test images. ``validation`` is there if ``data.validation`` is set: to validate a step,
    evaluate with its scenario and split in place of the plan's.
    """

    config: RunConfig
    data: SegmentationData
    scenario: Scenario
    splits: Splits
    index: LabelIndex
    test_index: LabelIndex
    validation: Validation | None = None

    @property
    def evaluated(self) -> tuple[Scenario, str]:
        """The scenario and the split whose test images every step is evaluated on, by ``eval.images``."""
        if self.config.eval.images == "validation" and self.validation is not None:
            return self.validation.scenario, self.validation.split
        return self.scenario, self.splits.test

    def describe_step(self, step: int) -> str:
        """Return the domains or classes that a step adds, its number of images and the size of its replay memory."""
        added = self.scenario.steps[step]
        names = added.domains or tuple(self.data.classes.names[i] for i in added.classes)
        remembered = len(self.memories[step].images)
        return f"{listed(names)} ({len(added.images)} images{f', {remembered} in memory' if remembered else ''})"

    def label_counts(self, step: int) -> NDArray[np.int64]:
        """Count the pixels of every label in each image of a step: (images, channels after the step)."""
        rows = {id: row for row, id in enumerate(self.index.ids)}
        raw = self.index.pixels[[rows[id] for id in self.scenario.steps[step].images]]
        labels = self.scenario.train_table(step)[: raw.shape[1]].astype(np.int64)
        visible = np.flatnonzero(labels < self.scenario.channels(step))
        counts = np.zeros((len(raw), self.scenario.channels(step)), np.int64)
        np.add.at(counts.T, labels[visible], raw[:, visible].T)
        return counts

    def pixels(self, step: int) -> int:
        """Count the pixels of a step's images, without ignored ones."""
        images = set(self.scenario.steps[step].images)
        return int(self.index.pixels[[row for row, id in enumerate(self.index.ids) if id in images]].sum())

    @cached_property
    def memories(self) -> tuple[ReplayMemory, ...]:
        """The replay memory of every step; empty if ``memory.images`` is 0."""
        c = self.config
        if c.memory.images == 0:
            return (ReplayMemory({}),) * len(self.scenario.steps)
        return replay_memories(self.scenario, self.index, c.memory.images, c.seed, all_labels=c.memory.labels == "all")

    def replayed(self, step: int) -> int:
        """Return how many images of every batch of a step come from its replay memory."""
        if not self.memories[step].images:
            return 0
        batch = self.config.train.batch
        return min(max(round(self.config.memory.share * batch), 1), batch - 1)


def make_plan(config: RunConfig, data: SegmentationData, reporter: Reporter) -> Plan:
    """Index the masks, verify the images and build the scenario; rank 0 does the work and shares the result."""
    made = on_rank_zero(partial(_index_and_verify, config, data, reporter))
    plan = Plan(config, data, made.scenario, made.splits, made.train, made.test, made.validation)
    _check_batch(plan)
    return plan


def _index_and_verify(config: RunConfig, data: SegmentationData, reporter: Reporter) -> IndexedScenario:
    made = make_scenario(
        data,
        config.data,
        config.scenario,
        reporter,
        convention=config.eval.convention,
        joint=is_joint(config.method.name),
    )
    used: dict[str, set[str]] = {split: set() for split in made.splits.names}
    for step in made.scenario.steps:
        used[made.splits.train] |= set(step.images)
        used[made.splits.test] |= set(step.test_images)
    if made.validation is not None:
        used[made.validation.split] |= set(made.validation.index.ids)
    for split, ids in used.items():
        verify_images(data, split, sorted(ids), reporter)
    warn_of_leaks(made.scenario, reporter)
    return made


def _check_batch(plan: Plan) -> None:
    """Raise a UserError if a batch takes more images of a step than there are."""
    batch = plan.config.train.batch
    for step, one in enumerate(plan.scenario.steps):
        images, own = len(one.images), batch - plan.replayed(step)
        if own <= images:
            continue
        found = "1 training image" if images == 1 else f"{images} training images"
        if own == batch:
            fewest = min(len(other.images) for other in plan.scenario.steps)
            raise UserError(
                f"train.batch is {batch}, but step {step} has {found}; lower train.batch (--batch) to {fewest} or less."
            )
        raise UserError(
            f"Of a batch of {batch} images {own} are of the step, but step {step} has {found}; lower train.batch "
            "(--batch) or raise memory.share."
        )


def check_auxiliary_maps(plan: Plan, name: str | None) -> None:
    """Raise a UserError if the data has auxiliary maps of this name and a training image has none."""
    maps, index = plan.config.data.auxiliary_maps(name), plan.index
    if maps is not None and index.sizes is not None:
        used = {id for step in plan.scenario.steps for id in step.images}
        sizes = zip(index.ids, map(tuple, index.sizes.tolist()), strict=True)
        maps.check((id, size) for id, size in sizes if id in used)
