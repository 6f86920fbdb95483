"""Everything that is checked before a run may touch the disk: data readable, task possible, network buildable."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from faircl.config import RunConfig
from faircl.data.index import LabelIndex
from faircl.data.sample import SegmentationData
from faircl.data.verify import verify_images
from faircl.distributed import on_first
from faircl.progress import Reporter
from faircl.registry import METHODS
from faircl.scenario import Made, Scenario, Splits, make_scenario
from faircl.scenario.make import find_protocol, find_splits, warn_of_leaks


@dataclass(frozen=True)
class Plan:
    """A validated run: its configuration, open data, scenario, and the pixels of every image of the training split."""

    config: RunConfig
    data: SegmentationData
    scenario: Scenario
    splits: Splits
    index: LabelIndex

    def raw_pixels(self, step: int) -> NDArray[np.int64]:
        """Count the pixels of a step's images by raw id (K,), void left out."""
        images = set(self.scenario.steps[step].images)
        chosen = [row for row, id in enumerate(self.index.ids) if id in images]
        return np.asarray(self.index.pixels[chosen].sum(0))

    def label_pixels(self, step: int) -> Tensor:
        """Count the labels visible at a step by channel, (channels after the step,) int64."""
        raw = self.raw_pixels(step)
        labels = self.scenario.train_table(step)[: len(raw)].astype(np.int64)
        seen = labels < self.scenario.channels(step)
        counts = np.zeros(self.scenario.channels(step), np.int64)
        np.add.at(counts, labels[seen], raw[seen])
        return torch.from_numpy(counts)


def open_data(config: RunConfig) -> SegmentationData:
    """Open the data and list its splits: a wrong folder is found before anything takes long."""
    data = config.data.open()
    for split in set(find_splits(config.data, find_protocol(data, config.scenario))):
        data.ids(split)
    return data


def make_plan(config: RunConfig, data: SegmentationData, reporter: Reporter) -> Plan:
    """Count the masks and look at the images once, on process 0, and build the scenario."""
    made = on_first(partial(_read, config, data, reporter))
    return Plan(config, data, made.scenario, made.splits, made.train)


def _read(config: RunConfig, data: SegmentationData, reporter: Reporter) -> Made:
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
