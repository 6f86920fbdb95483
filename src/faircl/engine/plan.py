"""Everything that is checked before a run may touch the disk: data readable, task possible, network buildable."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from faircl.config.run import RunConfig
from faircl.data.label_index import LabelIndex
from faircl.data.sample import SegmentationData
from faircl.distributed import on_rank_zero
from faircl.integrity.verify import verify_images
from faircl.progress import Reporter
from faircl.registry import METHODS
from faircl.scenario import IndexedScenario, Scenario, Splits, make_scenario
from faircl.scenario.from_config import find_protocol, find_splits, warn_of_leaks
from faircl.scenario.replay_memory import ReplayMemory, replay_memories


@dataclass(frozen=True)
class Plan:
    """A validated run: its configuration, open data, scenario, and the pixels of every image of the training split."""

    config: RunConfig
    data: SegmentationData
    scenario: Scenario
    splits: Splits
    index: LabelIndex

    def label_counts(self, step: int) -> NDArray[np.int64]:
        """Count the labels that a step shows in each of its images: (images, channels after the step)."""
        rows = {id: row for row, id in enumerate(self.index.ids)}
        raw = self.index.pixels[[rows[id] for id in self.scenario.steps[step].images]]
        labels = self.scenario.train_table(step)[: raw.shape[1]].astype(np.int64)
        seen = np.flatnonzero(labels < self.scenario.channels(step))
        counts = np.zeros((len(raw), self.scenario.channels(step)), np.int64)
        np.add.at(counts.T, labels[seen], raw[:, seen].T)
        return counts

    def pixels(self, step: int) -> int:
        """Count all pixels of a step's images but ignored ones."""
        images = set(self.scenario.steps[step].images)
        return int(self.index.pixels[[row for row, id in enumerate(self.index.ids) if id in images]].sum())

    @cached_property
    def memories(self) -> tuple[ReplayMemory, ...]:
        """The replay memory before every step, empty unless the configuration wants one."""
        c = self.config
        if c.memory.images == 0:
            return (ReplayMemory({}),) * len(self.scenario.steps)
        return replay_memories(self.scenario, self.index, c.memory.images, c.seed)


def open_data(config: RunConfig) -> SegmentationData:
    """Open the data and list its splits: a wrong folder is found before anything takes long."""
    data = config.data.open()
    for split in set(find_splits(config.data, find_protocol(data, config.scenario))):
        data.ids(split)
    return data


def make_plan(config: RunConfig, data: SegmentationData, reporter: Reporter) -> Plan:
    """Count the masks and look at the images once, on process 0, and build the scenario."""
    made = on_rank_zero(partial(_read, config, data, reporter))
    return Plan(config, data, made.scenario, made.splits, made.train)


def _read(config: RunConfig, data: SegmentationData, reporter: Reporter) -> IndexedScenario:
    made = make_scenario(
        data,
        config.data,
        config.scenario,
        reporter,
        convention=config.eval.convention,
        joint=METHODS.get(config.method.name).joint,
    )
    used = {
        made.splits.train: {id for step in made.scenario.steps for id in step.images},
        made.splits.test: {id for step in made.scenario.steps for id in step.test_images},
    }
    if made.splits.train == made.splits.test:
        used = {made.splits.train: {id for step in made.scenario.steps for id in (*step.images, *step.test_images)}}
    for split, ids in used.items():
        verify_images(data, split, sorted(ids), reporter)
    warn_of_leaks(made.scenario, reporter)
    return made


def check_auxiliary_maps(plan: Plan, name: str | None) -> None:
    """Raise a UserError unless every training image has its auxiliary map, where the data has maps of that name."""
    maps, index = plan.config.data.auxiliary_maps(name), plan.index
    if maps is not None and index.sizes is not None:
        used = {id for step in plan.scenario.steps for id in step.images}
        sizes = zip(index.ids, map(tuple, index.sizes.tolist()), strict=True)
        maps.check((id, size) for id, size in sizes if id in used)
