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
from numpy.typing import NDArray

from faircl.data.index import LabelIndex
from faircl.data.sample import BACKGROUND, IGNORE, UNLABELLED, Classes, Mask
from faircl.errors import UserError

Setting = Literal["overlapped", "disjoint", "sequential"]
Table = NDArray[np.uint16]


@dataclass(frozen=True)
class Step:
    """One increment: the raw ids learned and the images trained on."""

    classes: tuple[int, ...]
    images: tuple[str, ...]


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
    test_images: tuple[str, ...]
    learned_at: tuple[int, ...]  # by channel
    pixels: tuple[int, ...]  # training pixels by channel, all images
    labels_sha256: str

    @property
    def background(self) -> bool:
        """Whether channel 0 is a background class."""
        return self.classes.background

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

    @property
    def unlabelled(self) -> int:
        """Label of pixels that may hide a class of another step.

        It is background where there is one, unless under the sequential setting, where background is what it says:
        old classes keep their labels and images with later ones are left out. UNLABELLED then never occurs.
        """
        return BACKGROUND if self.background and self.setting != "sequential" else UNLABELLED

    def train_table(self, step: int) -> Table:
        """Raw id to label at a step: its classes to their channels, all else unlabelled, void to IGNORE.

        Under the sequential setting old classes keep their labels.
        """
        first = 0 if self.setting == "sequential" else self.channels(step - 1)
        return self._table(range(first, self.channels(step)), BACKGROUND if self.background else UNLABELLED)

    def test_table(self, step: int) -> Table:
        """Raw id to label in evaluation: every class seen to its channel; future ones to background or IGNORE."""
        return self._table(range(self.channels(step)), BACKGROUND if self.background else IGNORE)

    def _table(self, channels: range, other: int) -> Table:
        wide = len(self.classes.names) > 254
        table = np.full(65536 if wide else 256, IGNORE, np.uint16)
        table[: len(self.classes.names)] = other
        for channel in channels:
            table[self.channel_ids[channel]] = channel
        return table

    def to_json(self) -> dict[str, Any]:
        """Return everything that defines the scenario, with its sha256."""
        body: dict[str, Any] = {
            "task": self.task,
            "setting": self.setting,
            "background": self.background,
            "names": list(self.classes.names),
            "classes": [
                {"id": i, "name": self.classes.names[i], "step": s, "pixels": p}
                for i, s, p in zip(self.channel_ids, self.learned_at, self.pixels, strict=True)
            ],
            "steps": [
                {"classes": list(s.classes), "train": list(s.images), "test": list(self.test_images)}
                for s in self.steps
            ],
            "labels_sha256": self.labels_sha256,
        }
        canonical = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return body | {"sha256": hashlib.sha256(canonical.encode()).hexdigest()}

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> Scenario:
        """Return the scenario that ``to_json`` described."""
        return cls(
            classes=Classes(tuple(saved["names"]), saved["background"]),
            task=saved["task"],
            setting=saved["setting"],
            steps=tuple(Step(tuple(step["classes"]), tuple(step["train"])) for step in saved["steps"]),
            test_images=tuple(saved["steps"][0]["test"]),
            learned_at=tuple(entry["step"] for entry in saved["classes"]),
            pixels=tuple(entry["pixels"] for entry in saved["classes"]),
            labels_sha256=saved["labels_sha256"],
        )

    @property
    def sha256(self) -> str:
        """Digest of classes, steps, image ids and label counts: equal digests, equal scenarios."""
        return str(self.to_json()["sha256"])


def build_scenario(
    classes: Classes,
    split: tuple[tuple[int, ...], ...],
    train: LabelIndex,
    test: LabelIndex,
    *,
    task: str,
    setting: Setting = "overlapped",
    joint: bool = False,
) -> Scenario:
    """Choose every step's images from what they show.

    overlapped: an image belongs to each step of which it shows a class, whatever else it shows.
    disjoint: moreover it shows no class of a later step (nor one that no step learns).
    sequential: as disjoint, and old classes keep their labels.
    joint: one step with all classes and every image of any step.
    """
    increments = (tuple(i for step in split for i in step),) if joint else split
    _check_pixels(classes, split, train)
    present = train.pixels > 0
    steps = []
    for t, ids in enumerate(increments):
        keep: NDArray[np.bool_] = np.any(present[:, list(ids)], axis=1)
        if setting != "overlapped":
            seen = {i for s in increments[: t + 1] for i in s} | ({BACKGROUND} if classes.background else set())
            alien = [i for i in range(len(classes.names)) if i not in seen]
            keep &= ~present[:, alien].any(1)
        images = tuple(id for id, chosen in zip(train.ids, keep.tolist(), strict=True) if chosen)
        steps.append(Step(ids, images))
        _check_step(classes, setting, t, ids, train.pixels[keep])
    bg = (BACKGROUND,) if classes.background else ()
    channel_ids = [*bg, *(i for s in increments for i in s)]
    return Scenario(
        classes=classes,
        task=task,
        setting=setting,
        steps=tuple(steps),
        test_images=test.ids,
        learned_at=(*(0 for _ in bg), *(t for t, s in enumerate(split) for _ in s)),
        pixels=tuple(int(p) for p in train.pixels.sum(0)[channel_ids]),
        labels_sha256=_digest(train, test),
    )


def apply_table(table: Table, mask: Mask) -> NDArray[np.uint16]:
    """Turn a raw mask (H, W) into labels by one lookup."""
    return table[mask]


def _check_pixels(classes: Classes, split: tuple[tuple[int, ...], ...], train: LabelIndex) -> None:
    empty = [classes.names[i] for step in split for i in step if not train.pixels[:, i].any()]
    if empty:
        raise UserError(
            f"Classes without a single pixel in the training masks: {', '.join(empty)}; annotate some, or list the "
            "other classes explicitly in scenario.task."
        )


def _check_step(classes: Classes, setting: str, t: int, ids: tuple[int, ...], pixels: NDArray[np.int64]) -> None:
    missing = [classes.names[i] for i in ids if not pixels[:, i].any()]
    if missing:
        raise UserError(
            f"Step {t} has no training image with {', '.join(missing)} under the {setting} setting, which drops images "
            "that show a class not learned by then; use setting 'overlapped' or another task or class order."
        )


def _digest(*indices: LabelIndex) -> str:
    digest = hashlib.sha256()
    for index in indices:
        digest.update("\n".join(index.ids).encode())
        digest.update(np.ascontiguousarray(index.pixels, dtype="<i8").tobytes())
    return digest.hexdigest()
