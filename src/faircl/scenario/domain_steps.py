"""Building a scenario of domain increments: every step adds domains (cities, sites, cameras) with all classes labelled.

All images come from one pool, of which a part is held out for testing:

clean: every domain is split once by a seed, 80 % for training and 20 % for testing. A step is tested on the test images
of all domains so far. No image is used for both.

plop: as for the published Cityscapes tables. A step trains on the first 80 % of its domains' images, shuffled by
NumPy's RandomState(1), and is tested on the last 20 % of the images of all domains so far, shuffled by the same state.
From the second step on the two lists differ, so their shuffles do too, and most test images are also training images.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from faircl.data.label_index import LabelIndex
from faircl.data.sample import Classes
from faircl.errors import UserError, listed
from faircl.labels import BACKGROUND
from faircl.scenario.class_steps import digest_labels, with_background_presence, with_shares
from faircl.scenario.scenario import Protocol, Scenario, Step
from faircl.seeding import generator

TRAIN_SHARE = 0.8


def build_domain_scenario(
    classes: Classes,
    groups: tuple[tuple[str, ...], ...],
    pool: LabelIndex,
    domains: Sequence[str],
    *,
    task: str,
    protocol: Protocol,
    seed: int = 0,
    joint: bool = False,
    left_out: Collection[str] = (),
) -> Scenario:
    """Divide a pool of images into the steps of a domain protocol; those ``left_out`` are not trained on.

    `groups`: the domains of every step. `domains` (N,): the domain of every image of the pool, in the data set's own
    order, on which the published shuffles depend.
    """
    increments = (tuple(name for group in groups for name in group),) if joint else groups
    held_out = _held_out(pool.ids, domains, seed) if protocol == "clean" else set()
    foreground = classes.foreground
    steps = []
    for t, names in enumerate(increments):
        new, so_far = set(names), {name for group in increments[: t + 1] for name in group}
        own = [id for id, domain in zip(pool.ids, domains, strict=True) if domain in new]
        known = [id for id, domain in zip(pool.ids, domains, strict=True) if domain in so_far]
        if protocol == "clean":
            train = tuple(id for id in own if id not in held_out)
            test = tuple(id for id in known if id in held_out)
        else:
            train, test = _shuffled_parts(own)[0], _shuffled_parts(known)[1]
        train = tuple(id for id in train if id not in left_out)
        if not train:
            raise UserError(
                f"Step {t} ({listed(names)}) has no training image: protocol {protocol} keeps "
                f"{TRAIN_SHARE:.0%} of its images for training, rounded down; add images or join domains in one step."
            )
        if not test:
            raise UserError(
                f"Step {t} ({listed(names)}) has no test image: a domain of one image keeps it for training; add "
                "images or join domains in one step."
            )
        steps.append(Step(foreground if t == 0 else (), train, test, names))
    channel_ids = [BACKGROUND, *foreground] if classes.background else list(foreground)
    scenario = Scenario(
        classes=classes,
        task=task,
        setting="overlapped",
        steps=tuple(steps),
        learned_at=(0,) * len(channel_ids),
        pixels=tuple(int(p) for p in pool.pixels[_rows(pool, steps)].sum(0)[channel_ids]),
        labels_sha256=digest_labels(pool),
        protocol=protocol,
    )
    return with_shares(with_background_presence(scenario, pool), pool, pool)


def _rows(pool: LabelIndex, steps: Sequence[Step]) -> list[int]:
    """Return the rows of all training images."""
    trained = {id for step in steps for id in step.images}
    return [row for row, id in enumerate(pool.ids) if id in trained]


def _held_out(ids: Sequence[str], domains: Sequence[str], seed: int) -> set[str]:
    """Return the test images of the clean protocol: 20 % of every domain, which keeps at least one for training."""
    by_domain: dict[str, list[str]] = {}
    for id, domain in zip(ids, domains, strict=True):
        by_domain.setdefault(domain, []).append(id)
    held_out: set[str] = set()
    for domain, own in by_domain.items():
        order = generator(seed, "domain split", domain).permutation(len(own))
        held_out |= {own[place] for place in order[max(int(TRAIN_SHARE * len(own)), 1) :]}
    return held_out


def _shuffled_parts(ids: list[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Shuffle a list as published; return its first 80 % and the rest."""
    order = np.arange(len(ids))
    np.random.RandomState(1).shuffle(order)  # the published seed, independent of the run's
    shuffled = tuple(ids[place] for place in order)
    length = int(TRAIN_SHARE * len(ids))
    return shuffled[:length], shuffled[length:]
