"""Everything that is checked before a run may touch the disk: data readable, task possible, network buildable."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from faircl.config import RunConfig
from faircl.data.index import LabelIndex, index_labels
from faircl.data.sample import SegmentationData
from faircl.distributed import on_first
from faircl.progress import Reporter
from faircl.registry import METHODS
from faircl.scenario import Scenario, build_scenario, split_classes


@dataclass(frozen=True)
class Plan:
    """A validated run: its configuration, open data, scenario, and the pixels of every training image."""

    config: RunConfig
    data: SegmentationData
    scenario: Scenario
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


def make_plan(config: RunConfig, reporter: Reporter) -> Plan:
    """Open the data, read every image once, on process 0, and build the scenario."""
    data = config.data.open()
    scenario, train = on_first(partial(_read, config, data, reporter))
    return Plan(config, data, scenario, train)


def _read(config: RunConfig, data: SegmentationData, reporter: Reporter) -> tuple[Scenario, LabelIndex]:
    split = split_classes(config.scenario.task, config.scenario.order, data.classes)
    train, test = (index_labels(data, name, reporter) for name in (config.data.train, config.data.test))
    task_name = config.scenario.task
    scenario = build_scenario(
        data.classes,
        split,
        train,
        test,
        task=task_name if isinstance(task_name, str) else json.dumps(task_name),
        setting=config.scenario.setting,
        joint=METHODS.get(config.method.name).joint,
    )
    return scenario, train
