"""Domain increments: every step brings new domains (cities, sites, cameras) and labels all classes in them.

A domain's images come from one pool, of which a part is held out for testing:

clean: every domain is split once, 80 % for training, 20 % for testing, by a seed. After a step the test images of all
domains seen so far are scored. No image is ever on both sides.

plop: as the published Cityscapes tables were made. A step trains on the first 80 % of its domains' images, shuffled by
NumPy's RandomState(1); it tests on the last 20 % of the images of all domains so far, shuffled by the same state. The
two lists differ from the second step on, so the shuffles do too, and most test images have been trained on.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from faircl.data.index import LabelIndex
from faircl.data.sample import BACKGROUND, Classes
from faircl.errors import UserError
from faircl.scenario.build import digest_labels, with_shares
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
) -> Scenario:
    """Split a pool into the steps of a domain protocol.

    `groups` names the domains of every step; `domains` (N,) is the domain of every image of the pool, in the data set's
    own order, which the published shuffles start from.
    """
    increments = (tuple(name for group in groups for name in group),) if joint else groups
    split = _clean if protocol == "clean" else _plop
    ids = tuple(range(len(classes.names)))
    foreground = classes.foreground
    steps = []
    for t, names in enumerate(increments):
        so_far = {name for group in increments[: t + 1] for name in group}
        train, test = split(pool.ids, domains, set(names), so_far, seed)
        if not train:
            raise UserError(
                f"Step {t} ({', '.join(names)}) has no training image: protocol {protocol} keeps "
                f"{TRAIN_SHARE:.0%} of its images for training, rounded down; add images or join domains in one step."
            )
        if not test:
            raise UserError(
                f"Step {t} ({', '.join(names)}) has no test image: a domain of one image keeps it for training; add "
                "images or join domains in one step."
            )
        steps.append(Step(foreground if t == 0 else (), train, test, names))
    channel_ids = [BACKGROUND, *foreground] if classes.background else list(ids)
    scenario = Scenario(
        classes=classes,
        task=task,
        setting="overlapped",
        steps=tuple(steps),
        learned_at=(0,) * len(channel_ids),
        pixels=tuple(int(p) for p in pool.pixels.sum(0)[channel_ids]),
        labels_sha256=digest_labels(pool),
        protocol=protocol,
    )
    return with_shares(scenario, pool, pool)


def _clean(
    ids: Sequence[str], domains: Sequence[str], new: set[str], so_far: set[str], seed: int
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    training: set[str] = set()
    for name in so_far:
        own = [id for id, domain in zip(ids, domains, strict=True) if domain == name]
        order = generator(seed, "domain split", name).permutation(len(own))
        training |= {own[place] for place in order[: max(int(TRAIN_SHARE * len(own)), 1)]}
    train = tuple(id for id, domain in zip(ids, domains, strict=True) if domain in new and id in training)
    test = tuple(id for id, domain in zip(ids, domains, strict=True) if domain in so_far and id not in training)
    return train, test


def _plop(
    ids: Sequence[str], domains: Sequence[str], new: set[str], so_far: set[str], seed: int
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    train, _ = _halves([id for id, domain in zip(ids, domains, strict=True) if domain in new])
    _, test = _halves([id for id, domain in zip(ids, domains, strict=True) if domain in so_far])
    return train, test


def _halves(ids: list[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    order = np.arange(len(ids))
    np.random.RandomState(1).shuffle(order)  # the published state, whatever the run's seed
    shuffled = tuple(ids[place] for place in order)
    length = int(TRAIN_SHARE * len(ids))
    return shuffled[:length], shuffled[length:]
