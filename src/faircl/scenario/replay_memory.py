"""A replay memory: a few images of earlier steps, as many of each class, with the labels they had."""

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
    """The images kept before a step: id to the steps whose labels they have, in the order they were chosen."""

    images: Mapping[str, tuple[int, ...]]

    def tables(self, scenario: Scenario, step: int) -> dict[str, LabelTable]:
        """Return raw id to label for every image kept; one that the step brings again has the step's labels too."""
        again = set(scenario.steps[step].images)
        kept = {id: (*steps, step) if id in again else steps for id, steps in self.images.items()}
        made = {steps: combined_label_table(scenario, steps) for steps in set(kept.values())}
        return {id: made[steps] for id, steps in kept.items()}


def combined_label_table(scenario: Scenario, steps: tuple[int, ...]) -> LabelTable:
    """Raw id to label where the labels of several steps are known: unlabelled is what none of them labels."""
    table = scenario.train_table(steps[0])
    for step in steps[1:]:
        other = scenario.train_table(step)
        table = np.where(other == (BACKGROUND if scenario.background else UNLABELLED), table, other)
    return table


def replay_memories(scenario: Scenario, index: LabelIndex, size: int, seed: int) -> tuple[ReplayMemory, ...]:
    """Return the memory before every step; before the first it is empty.

    After a step it is chosen anew from what it held and from the step's images, all that is at hand then. It depends
    on the scenario, the size and the seed alone, so that a resumed run has the same.
    """
    rows = {id: row for row, id in enumerate(index.ids)}
    found = [ReplayMemory({})]
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
        found.append(ReplayMemory({ids[k]: known[ids[k]] for k in chosen}))
    return tuple(found)


def _shown(table: LabelTable, pixels: NDArray[np.int64], channels: int, background: bool) -> NDArray[np.bool_]:
    """Which channels an image's known labels show, background left out: (channels,)."""
    labels = table[: len(pixels)][pixels > 0]
    shown = np.zeros(channels, bool)
    shown[labels[labels < channels]] = True
    if background:
        shown[BACKGROUND] = False
    return shown


def choose_balanced(shown: NDArray[np.bool_], size: int, rng: np.random.Generator) -> list[int]:
    """Choose images so that classes are shown as evenly as can be; shown (N, K) to at most ``size`` rows.

    Each pick is a random image of the class that has the fewest so far; among equals, of the one with fewer
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
