"""Replay memory: images of earlier steps, balanced over classes, with the labels of their steps or of all classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from faircl.data.label_index import LabelIndex
from faircl.labels import BACKGROUND, UNLABELLED, LabelTable
from faircl.scenario.scenario import Scenario
from faircl.seeding import generator


@dataclass(frozen=True)
class ReplayMemory:
    """The memory before a step: image id to the steps that it was among the images of, in the order of choice.

    With ``all_labels`` an image is trained on with the labels of all classes seen so far, else with those of its steps.
    """

    images: Mapping[str, tuple[int, ...]]
    all_labels: bool = False

    def tables(self, scenario: Scenario, step: int) -> dict[str, LabelTable]:
        """Return the label table of every image; one that is also among the step's images has its labels too."""
        if self.all_labels:
            return dict.fromkeys(self.images, combined_label_table(scenario, tuple(range(step + 1))))
        current = set(scenario.steps[step].images)
        labelled_by = {id: (*steps, step) if id in current else steps for id, steps in self.images.items()}
        tables = {steps: combined_label_table(scenario, steps) for steps in set(labelled_by.values())}
        return {id: tables[steps] for id, steps in labelled_by.items()}


def combined_label_table(scenario: Scenario, steps: tuple[int, ...]) -> LabelTable:
    """Return the label table of an image labelled by several steps; a class is unlabelled if none of them labels it."""
    table = scenario.train_table(steps[0])
    for step in steps[1:]:
        other = scenario.train_table(step)
        table = np.where(other == (BACKGROUND if scenario.background else UNLABELLED), table, other)
    return table


def replay_memories(
    scenario: Scenario, index: LabelIndex, size: int, seed: int, *, all_labels: bool = False
) -> tuple[ReplayMemory, ...]:
    """Return the memory before every step; before the first it is empty.

    After a step it is chosen from its previous content and the step's images, by the labels of their steps whatever
    ``all_labels``. The choice depends only on the scenario, the size and the seed, so that a resumed run has the same
    memory.
    """
    rows = {id: row for row, id in enumerate(index.ids)}
    found = [ReplayMemory({}, all_labels)]
    for step in range(len(scenario.steps) - 1):
        known = dict(found[-1].images)
        for id in scenario.steps[step].images:
            known[id] = (*known.get(id, ()), step)
        ids = sorted(known)
        tables = {steps: combined_label_table(scenario, steps) for steps in set(known.values())}
        channels = scenario.channels(step)
        shown = np.stack(
            [_shown(tables[known[id]], index.pixels[rows[id]], channels, scenario.background) for id in ids]
        )
        chosen = choose_balanced(shown, size, generator(seed, "memory", step))
        found.append(ReplayMemory({ids[k]: known[ids[k]] for k in chosen}, all_labels))
    return tuple(found)


def _shown(table: LabelTable, pixels: NDArray[np.int64], channels: int, background: bool) -> NDArray[np.bool_]:
    """Return which channels an image's labels contain, without background: (channels,)."""
    labels = table[: len(pixels)][pixels > 0]
    shown = np.zeros(channels, bool)
    shown[labels[labels < channels]] = True
    if background:
        shown[BACKGROUND] = False
    return shown


def choose_balanced(shown: NDArray[np.bool_], size: int, rng: np.random.Generator) -> list[int]:
    """Choose at most ``size`` images that contain the classes as evenly as possible; shown (N, K) bool.

    Each pick is a random image of the class with the fewest images so far; on a tie, of the class with the fewest
    candidates.
    """
    order = rng.permutation(len(shown))
    queues = [iter(order[shown[order, k]].tolist()) for k in range(shown.shape[1])]
    candidates = shown.sum(0)
    left, count = candidates.copy(), np.zeros_like(candidates)
    chosen: dict[int, None] = {}
    while len(chosen) < size and left.any():
        one = min(np.flatnonzero(left), key=lambda k: (count[k], candidates[k], k))
        pick = next(row for row in queues[one] if row not in chosen)
        chosen[pick] = None
        left -= shown[pick]
        count += shown[pick]
    return list(chosen)
