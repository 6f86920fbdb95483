"""The cases: which classes of which data are unknown, and how a network is trained on the others."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from faircl.data.sample import SegmentationData
from faircl.errors import UserError
from faircl.readers.folder import FolderData
from faircl.readers.scenes import SceneData
from unknown_runs.voided import class_ids

SCENES = {"images": 240, "test_images": 80, "size": 96}
_SCENES = (("car", "cyclist"), ("tree", "kiosk"), ("van", "fence"))
HELD_OUT = {
    "scenes": _SCENES,
    "scenes-two-steps": _SCENES,
    "camvid": (("car", "bicyclist"), ("pedestrian", "sign")),
}

LATER = 3
"""Classes that a second step learns."""


@dataclass(frozen=True)
class Case:
    """Classes of a data set that are void in training and unknown afterwards."""

    source: str
    held_out: tuple[str, ...]

    @property
    def name(self) -> str:
        return "-".join((self.source, *self.held_out))


def cases(sources: Sequence[str]) -> list[Case]:
    """Return the cases of these data sets."""
    return [Case(source, held_out) for source in sources for held_out in HELD_OUT[source]]


class Scenes:
    """The built-in scenes with validation images: the test images of another seed."""

    def __init__(self, seed: int = 0) -> None:
        own, other = SceneData(**SCENES, seed=seed), SceneData(**SCENES, seed=seed + 1000)
        self.classes = own.classes
        self._parts = {"train": (own, "train"), "val": (other, "test"), "test": (own, "test")}

    def ids(self, split: str) -> Sequence[str]:
        data, part = self._parts[split]
        return data.ids(part)

    def read(self, split: str, id: str):
        data, part = self._parts[split]
        return data.read(part, id)

    def read_mask(self, split: str, id: str):
        data, part = self._parts[split]
        return data.read_mask(part, id)


def open_data(source: str, camvid: Path | None) -> SegmentationData:
    """Open the data of a case. CamVid has no background: id 0 of its folder is a name without pixels."""
    if source != "camvid":
        return Scenes()
    if camvid is None:
        raise UserError("The cases of CamVid need its folder; give it with --camvid.")
    return FolderData(camvid, background="none")


def training_settings(case: Case, data: SegmentationData, root: Path, weights: Path | None) -> list[str]:
    """Return the settings of 'faircl train' over the recipe; the run's own evaluation is on validation images."""
    unknown = class_ids(data, case.held_out)
    never = [0] if case.source == "camvid" else []
    known = [data.classes.names[id] for id in data.classes.foreground if id not in (*unknown, *never)]
    later = known[-LATER:] if case.source == "scenes-two-steps" else []
    steps = [step for step in (known[: len(known) - len(later)], later) if step]
    settings = [f"data.root={root}", "data.name=folder", "data.test=val", f"scenario.task={json.dumps(steps)}"]
    if case.source != "camvid":  # lengths and windows of the recipe 'demo'
        lengths = ("train.epochs=24", "train.later_epochs=16", "train.crop=64", "train.scale=[0.8, 1.25]")
        return [*settings, *lengths, "train.workers=0"]
    if weights is None:
        raise UserError("The cases of CamVid start from ImageNet weights of MobileNetV2; give the file with --weights.")
    return [
        *settings,
        *("data.background=none", "data.validation=null", f"model.weights={weights}"),
        *("train.epochs=10", "train.crop=192", "train.batch=12", "train.precision=fp32", "train.cache=memory"),
    ]
