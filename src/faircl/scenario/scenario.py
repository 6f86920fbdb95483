"""A continual scenario: which classes, images and labels each step has, and the proof of it.

Labels inside the network are *channels*: background (where the data has one) is channel 0, then the classes in the
order they are learned. One lookup table per step turns a raw mask into channels.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from faircl.data.sample import Classes
from faircl.labels import BACKGROUND, IGNORE, UNLABELLED, LabelTable
from faircl.scenario.conventions import FULL, Convention

Setting = Literal["overlapped", "disjoint", "sequential"]
Protocol = Literal["classes", "clean", "plop"]


@dataclass(frozen=True)
class Step:
    """One increment: the raw ids learned, the images trained on and those tested on afterwards.

    A domain step learns no class but the first step's; `domains` are those it brings. `leaked`: share of the test
    images that this or an earlier step has trained on. `hidden`: share of the training pixels, void left out, whose
    class the step's labels do not show.
    """

    classes: tuple[int, ...]
    images: tuple[str, ...]
    test_images: tuple[str, ...] = ()
    domains: tuple[str, ...] = ()
    leaked: float = 0.0
    hidden: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Return what defines the step."""
        return {
            "classes": list(self.classes),
            "domains": list(self.domains),
            "train": list(self.images),
            "test": list(self.test_images),
        }

    @property
    def sha256(self) -> str:
        """Digest of the step's classes, domains and image ids."""
        return _sha256(self.to_json())


@dataclass(frozen=True)
class Scenario:
    """All steps of a run, and how raw masks become labels at each.

    ``learned_at`` comes from the task even for joint training, which has one step: the tables of the field compare
    joint training on the same old and new classes.
    """

    classes: Classes
    task: str
    setting: Setting
    steps: tuple[Step, ...]
    learned_at: tuple[int, ...]  # by channel
    pixels: tuple[int, ...]  # training pixels by channel, all images
    labels_sha256: str
    protocol: Protocol = "classes"

    @property
    def background(self) -> bool:
        """Whether channel 0 is a background class."""
        return self.classes.background

    @property
    def by_domain(self) -> bool:
        """Whether steps bring new domains, all of whose classes are labelled, and not new classes."""
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
        """Return the number of channels once a step is learned; 0 before the first."""
        if step < 0:
            return 0
        return int(self.background) + sum(len(s.classes) for s in self.steps[: step + 1])

    def labelled(self, step: int) -> range:
        """Channels whose labels a step's masks show, background aside."""
        whole = self.setting == "sequential" or self.by_domain
        return range(0 if whole else self.channels(step - 1), self.channels(step))

    @property
    def unlabelled(self) -> int:
        """Label of pixels that may hide a class of another step.

        It is background where there is one, unless background is what it says: on domain steps, which label every
        class, and under the sequential setting, where old classes keep their labels and images with later ones are
        left out. UNLABELLED then never occurs.
        """
        hides = self.setting != "sequential" and not self.by_domain
        return BACKGROUND if self.background and hides else UNLABELLED

    def train_table(self, step: int) -> LabelTable:
        """Raw id to label at a step: what it labels to its channel, all else unlabelled, void to IGNORE."""
        return self._table(self.labelled(step), BACKGROUND if self.background else UNLABELLED)

    def test_table(self, step: int, convention: Convention = FULL) -> LabelTable:
        """Raw id to label in evaluation: every class seen to its channel; the rest as the convention says."""
        future = BACKGROUND if self.background and convention.future == "background" else IGNORE
        table = self._table(range(self.channels(step)), future)
        if self.background and not (convention.unnamed_background or self.classes.background_is_named):
            table[BACKGROUND] = IGNORE
        return table

    def _table(self, channels: range, other: int) -> LabelTable:
        wide = len(self.classes.names) > 254
        table = np.full(65536 if wide else 256, IGNORE, np.uint16)
        table[: len(self.classes.names)] = other
        if self.background:
            table[BACKGROUND] = BACKGROUND
        for channel in channels:
            table[self.channel_ids[channel]] = channel
        return table

    def to_json(self) -> dict[str, Any]:
        """Return everything that defines the scenario, with its sha256."""
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
        }
        # Shares follow from the rest and from which files are one and the same, so they are no part of the digest.
        shares = [{"leaked": step.leaked, "hidden": step.hidden} for step in self.steps]
        return body | {"shares": shares, "sha256": _sha256(body)}

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> Scenario:
        """Return the scenario that ``to_json`` described, today's or an earlier version's."""
        shares = saved.get("shares", [{} for _ in saved["steps"]])
        steps = (
            Step(
                tuple(step["classes"]),
                tuple(step["train"]),
                tuple(step["test"]),
                tuple(step.get("domains", ())),
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
        )

    @property
    def sha256(self) -> str:
        """Digest of classes, steps, image ids and label counts: equal digests, equal scenarios."""
        return str(self.to_json()["sha256"])


def _sha256(body: dict[str, Any]) -> str:
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(canonical.encode()).hexdigest()
