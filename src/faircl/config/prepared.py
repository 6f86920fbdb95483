"""A run's configuration and data, checked in the order of what a check costs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from faircl.config.run import RunConfig, parse_config, parse_without_torch
from faircl.data.sample import SegmentationData
from faircl.errors import UserError
from faircl.registry import is_joint
from faircl.scenario.division import divide


def prepare(tree: Mapping[str, Any]) -> tuple[RunConfig, SegmentationData]:
    """Validate a tree of plain values and open its data.

    Settings of model and method come last: they alone import torch, and a mistyped folder or task should be answered
    at once.
    """
    data = open_data(parse_without_torch(tree))
    return parse_config(tree), data


def open_data(config: RunConfig) -> SegmentationData:
    """Open the data, list its splits and divide it by the task, so that a wrong folder or task is found at once."""
    reader = config.data.absolute()  # as the run will name it
    data = reader.open()
    divided = divide(data, reader, config.scenario, is_joint(config.method.name))
    images = len(data.ids(divided.splits.train))
    if config.train.batch > images:  # whether every step has enough is known once the masks are counted
        raise UserError(
            f"train.batch is {config.train.batch}, but the data has {images} training images; lower train.batch "
            "(--batch)."
        )
    return data
