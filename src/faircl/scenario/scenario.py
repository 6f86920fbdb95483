"""A continual scenario: the classes, images and labels of each step, and a digest of all of it.

Labels of the network are *channels*: background (if the data has one) is channel 0, then the classes in the order in
which they are learned. One label table per step turns a raw mask into channels (`faircl.scenario.label_table`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from faircl.data.sample import Classes
from faircl.labels import BACKGROUND, IGNORE, UNLABELLED, LabelTable
from faircl.scenario.conventions import FULL, Convention
from faircl.scenario.label_table import make_label_table

Setting = Literal["overlapped", "disjoint", "sequential"]
Protocol = Literal["classes", "clean", "plop"]


@dataclass(frozen=True)
class Step:
    """One increment: the raw ids learned, the images trained on and those tested on afterwards.

    Later domain steps have no new classes; `domains` are the new domains. `leaked`: share of the test images that are
    training images of this or an earlier step. `hidden`: share of the training pixels, ignored ones left out, whose
    class is not labelled at this step. `also_labelled`: raw ids of earlier classes that some of the step's masks label
    too.
    """

    classes: tuple[int, ...]
    images: tuple[str, ...]
    test_images: tuple[str, ...] = ()
    domains: tuple[str, ...] = ()
    leaked: float = 0.0
    hidden: float = 0.0
    also_labelled: tuple[int, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the fields that define the step."""
        return {
            "classes": list(self.classes),
            "domains": list(self.domains),
            "train": list(self.images),
            "test": list(self.test_images),
        } | ({"also_labelled": list(self.also_labelled)} if self.also_labelled else {})

    @property
    def sha256(self) -> str:
        """SHA-256 of the step's classes, domains and image ids."""
        return _sha256(self.to_json())


@dataclass(frozen=True)
class Scenario:
    """All steps of a run and their label tables.

    ``learned_at`` follows from the task also for joint training in one step, so that it can be compared on the same old
    and new classes. ``background_absent``: once all classes are learned, no pixel of a test image is background; it is
    then scored at no step, also where later classes are still labelled background. ``colours``: the data set's own, by
    raw id, as "#rrggbb"; none if it has none. ``validation``: all validation images. ``earlier_steps``: steps that a
    model has learned before its state became step 0 here; random numbers count them.
    """

    classes: Classes
    task: str
    setting: Setting
    steps: tuple[Step, ...]
    learned_at: tuple[int, ...]  # by channel
    pixels: tuple[int, ...]  # training pixels by channel, all images
    labels_sha256: str
    protocol: Protocol = "classes"
    background_absent: bool = False
    colours: tuple[str, ...] = ()
    validation: tuple[str, ...] = ()
    earlier_steps: int = 0

    @property
    def background(self) -> bool:
        """Whether channel 0 is a background class."""
        return self.classes.background

    @property
    def by_domain(self) -> bool:
        """Whether steps add domains, with all classes labelled, instead of classes."""
        return self.protocol != "classes"

    @cached_property
    def channel_ids(self) -> tuple[int, ...]:
        """Raw id of every channel after the last step."""
        first = (BACKGROUND,) if self.background else ()
        return (*first, *(i for step in self.steps for i in step.classes))

    @property
    def names(self) -> tuple[str, ...]:
        """Class name of every channel after the last step."""
        return tuple(self.classes.names[i] for i in self.channel_ids)

    def channels(self, step: int) -> int:
        """Return the number of channels after a step; 0 for step −1."""
        if step < 0:
            return 0
        return int(self.background) + sum(len(s.classes) for s in self.steps[: step + 1])

    def seed_step(self, step: int) -> int:
        """Return the number of a step in random seeds: a class added to a model draws what a known step would."""
        return self.earlier_steps + step

    def labelled(self, step: int) -> range:
        """Return the channels that a step labels, which may include background."""
        whole = self.setting == "sequential" or self.by_domain
        return range(0 if whole else self.channels(step - 1), self.channels(step))

    @property
    def unlabelled(self) -> int:
        """Label of pixels that may belong to a class of another step: BACKGROUND, or UNLABELLED without one.

        On domain steps and under the sequential setting, background pixels belong to no other class, so it is
        UNLABELLED, which does not occur then if the data has a background class.
        """
        hides = self.setting != "sequential" and not self.by_domain
        return BACKGROUND if self.background and hides else UNLABELLED

    def train_table(self, step: int) -> LabelTable:
        """Return the label table for training at a step: labelled classes to channels, all others unlabelled."""
        also = (self.channel_ids.index(id) for id in self.steps[step].also_labelled)
        return self._label_table((*self.labelled(step), *also), BACKGROUND if self.background else UNLABELLED)

    def test_table(self, step: int, convention: Convention = FULL) -> LabelTable:
        """Return the label table for evaluation after a step: seen classes to channels, others by the convention."""
        future = BACKGROUND if self.background and convention.future == "background" else IGNORE
        table = self._label_table(range(self.channels(step)), future)
        if self.background and not (convention.unnamed_background or self.classes.background_is_named):
            table[BACKGROUND] = IGNORE
        return table

    def _label_table(self, channels: Iterable[int], other: int) -> LabelTable:
        return make_label_table(self.classes, {self.channel_ids[channel]: channel for channel in channels}, other)

    def to_json(self) -> dict[str, Any]:
        """Return everything that defines the scenario, and its SHA-256."""
        body: dict[str, Any] = {
            "task": self.task,
            "setting": self.setting,
            "protocol": self.protocol,
            "background": self.background,
            "background_is_named": self.classes.background_is_named,
            "names": list(self.classes.names),
            "classes": [
                {"id": i, "name": self.classes.names[i], "step": s, "pixels": p}
                for i, s, p in zip(self.channel_ids, self.learned_at, self.pixels, strict=True)
            ],
            "steps": [step.to_json() for step in self.steps],
            "labels_sha256": self.labels_sha256,
        } | ({"validation": list(self.validation)} if self.validation else {})
        # These are not part of the digest: they change no label, or follow from the rest and the identity of files.
        shares = [{"leaked": step.leaked, "hidden": step.hidden} for step in self.steps]
        others = {"shares": shares, "background_absent": self.background_absent, "colours": list(self.colours)}
        others |= {"earlier_steps": self.earlier_steps} if self.earlier_steps else {}
        return body | others | {"sha256": _sha256(body)}

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> Scenario:
        """Return a scenario from the JSON of this or an earlier version."""
        shares = saved.get("shares", [{} for _ in saved["steps"]])
        steps = (
            Step(
                tuple(step["classes"]),
                tuple(step["train"]),
                tuple(step["test"]),
                tuple(step.get("domains", ())),
                also_labelled=tuple(step.get("also_labelled", ())),
                **share,
            )
            for step, share in zip(saved["steps"], shares, strict=True)
        )
        return cls(
            classes=Classes(tuple(saved["names"]), saved["background"], saved.get("background_is_named", True)),
            task=saved["task"],
            setting=saved["setting"],
            steps=tuple(steps),
            learned_at=tuple(entry["step"] for entry in saved["classes"]),
            pixels=tuple(entry["pixels"] for entry in saved["classes"]),
            labels_sha256=saved["labels_sha256"],
            protocol=saved.get("protocol", "classes"),
            background_absent=saved.get("background_absent", False),
            colours=tuple(saved.get("colours", ())),
            validation=tuple(saved.get("validation", ())),
            earlier_steps=saved.get("earlier_steps", 0),
        )

    @property
    def sha256(self) -> str:
        """SHA-256 of classes, steps, image ids and label counts."""
        return str(self.to_json()["sha256"])


def _sha256(body: dict[str, Any]) -> str:
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(canonical.encode()).hexdigest()
