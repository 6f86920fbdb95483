"""Building a scenario of class increments: the images of each step follow from the classes they contain."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from faircl.data.label_index import LabelIndex
from faircl.data.sample import Classes
from faircl.errors import UserError, listed
from faircl.labels import BACKGROUND
from faircl.scenario.conventions import FULL, Convention
from faircl.scenario.scenario import Scenario, Setting, Step


def build_scenario(
    classes: Classes,
    split: tuple[tuple[int, ...], ...],
    train: LabelIndex,
    test: LabelIndex,
    *,
    task: str,
    setting: Setting = "overlapped",
    convention: Convention = FULL,
    joint: bool = False,
) -> Scenario:
    """Choose the images of every step by the classes they contain.

    overlapped: a step's images are those that contain a class of the step, whatever else they contain.
    disjoint: as overlapped, without images that contain a class of a later step or of no step.
    sequential: as disjoint, and old classes keep their labels.
    joint: one step with all classes and all images of any step.
    """
    increments = (tuple(i for step in split for i in step),) if joint else split
    _check_pixels(classes, split, train)
    present = train.pixels > 0
    steps = []
    for t, ids in enumerate(increments):
        chosen: NDArray[np.bool_] = np.any(present[:, list(ids)], axis=1)
        if setting != "overlapped":
            seen = {i for s in increments[: t + 1] for i in s} | ({BACKGROUND} if classes.background else set())
            unseen = [i for i in range(len(classes.names)) if i not in seen]
            chosen &= ~present[:, unseen].any(1)
        steps.append(Step(ids, tuple(np.array(train.ids, object)[chosen])))
        _check_step(classes, setting, t, ids, train.pixels[chosen])
    bg = (BACKGROUND,) if classes.background else ()
    channel_ids = [*bg, *(i for s in increments for i in s)]
    scenario = Scenario(
        classes=classes,
        task=task,
        setting=setting,
        steps=tuple(steps),
        learned_at=(*(0 for _ in bg), *(t for t, s in enumerate(split) for _ in s)),
        pixels=tuple(int(p) for p in train.pixels.sum(0)[channel_ids]),
        labels_sha256=digest_labels(train, test),
    )
    return with_shares(with_test_images(scenario, test, convention), train, test)


def with_test_images(scenario: Scenario, test: LabelIndex, convention: Convention, kind: str = "test") -> Scenario:
    """Set the test images of every step of class increments, as a convention chooses them; ``kind`` is for errors."""
    steps = []
    for t, step in enumerate(scenario.steps):
        images = test.ids
        if convention.seen_images_only:
            seen = [i for s in scenario.steps[: t + 1] for i in s.classes]
            contains_seen = (test.pixels[:, seen] > 0).any(1)
            images = tuple(np.array(test.ids, object)[contains_seen])
            if not images:
                raise UserError(
                    f"After step {t} no {kind} image shows a class learned so far, and convention {convention.name} "
                    f"scores no others; add {kind} images, or choose another task or convention 'full'."
                )
        steps.append(replace(step, test_images=images))
    return with_background_presence(replace(scenario, steps=tuple(steps)), test)


def with_background_presence(scenario: Scenario, test: LabelIndex) -> Scenario:
    """Set whether background is absent: no test image shows it, nor a class of no step, which counts as background."""
    if not scenario.background:
        return scenario
    learned = {i for step in scenario.steps for i in step.classes}
    rest = [i for i in range(len(scenario.classes.names)) if i not in learned]
    used = {id for step in scenario.steps for id in step.test_images}
    rows = [row for row, id in enumerate(test.ids) if id in used]
    return replace(scenario, background_absent=not test.pixels[np.ix_(rows, rest)].any())


def with_shares(scenario: Scenario, train: LabelIndex, test: LabelIndex) -> Scenario:
    """Set the shares `leaked` and `hidden` of every step."""
    train_files, test_files = file_identities(train), file_identities(test)
    rows = {id: row for row, id in enumerate(train.ids)}
    trained: set[object] = set()
    steps = []
    for t, step in enumerate(scenario.steps):
        trained |= {train_files[id] for id in step.images}
        leaked = sum(test_files[id] in trained for id in step.test_images)
        pixels = train.pixels[[rows[id] for id in step.images]].sum(0)
        shown = {scenario.channel_ids[channel] for channel in scenario.labelled(t)} | (
            {BACKGROUND} if scenario.background else set()
        )
        hidden = sum(int(count) for id, count in enumerate(pixels) if id not in shown)
        steps.append(
            replace(
                step,
                leaked=leaked / max(len(step.test_images), 1),
                hidden=hidden / max(int(pixels.sum()), 1),
            )
        )
    return replace(scenario, steps=tuple(steps))


def digest_labels(*indices: LabelIndex) -> str:
    """Return the SHA-256 of the pixel counts of every class in every image."""
    digest = hashlib.sha256()
    for index in indices:
        digest.update("\n".join(index.ids).encode(errors="surrogateescape"))  # file names may hold any bytes
        digest.update(np.ascontiguousarray(index.pixels, dtype="<i8").tobytes())
    return digest.hexdigest()


def file_identities(index: LabelIndex) -> dict[str, object]:
    """Return the identity of each image's file by id; images of an index without files are all different."""
    files: Sequence[object] = index.files or [(id(index), name) for name in index.ids]
    return dict(zip(index.ids, files, strict=True))


def _check_pixels(classes: Classes, split: tuple[tuple[int, ...], ...], train: LabelIndex) -> None:
    empty = [classes.names[i] for step in split for i in step if not train.pixels[:, i].any()]
    if empty:
        raise UserError(
            f"Classes without a single pixel in the training masks: {listed(empty)}; annotate some, or list the "
            "other classes explicitly in scenario.task."
        )


def _check_step(classes: Classes, setting: str, t: int, ids: tuple[int, ...], pixels: NDArray[np.int64]) -> None:
    missing = [classes.names[i] for i in ids if not pixels[:, i].any()]
    if missing:
        raise UserError(
            f"Step {t} has no training image with {listed(missing)} under the {setting} setting, which drops images "
            "that show a class not learned by then; use setting 'overlapped' or another task or class order."
        )
