"""Validation images: those of splits of their own, and training images that no step trains on: a share, or by name."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from faircl.data.label_index import LabelIndex
from faircl.errors import UserError
from faircl.progress import Reporter
from faircl.scenario.class_steps import file_identities, with_background_presence, with_shares, with_test_images
from faircl.scenario.conventions import Convention
from faircl.scenario.scenario import Scenario


@dataclass(frozen=True)
class Validation:
    """The validation images of a scenario.

    ``scenario`` is that of training, with validation images in place of test images: after every step those that its
    evaluation would use. ``index`` counts the images, which lie in ``split``.
    """

    scenario: Scenario
    split: str
    index: LabelIndex


def held_out_ids(ids: Collection[str], share: float, seed: int) -> tuple[str, ...]:
    """Return about a share of ids, at least one.

    Each is chosen by a digest of seed and id, so that the choice stays when others are added or removed.
    """
    return tuple(id for id in ids if _draw(seed, id) < share) or (min(ids, key=lambda id: _draw(seed, id)),)


def held_out_of_domains(domains: Mapping[str, str], share: float, seed: int) -> tuple[str, ...]:
    """Return about a share of the images of every domain; ``domains`` maps ids to domains.

    A domain of several images has at least one chosen and one left.
    """
    images: dict[str, list[str]] = {}
    for id, domain in domains.items():
        images.setdefault(domain, []).append(id)
    chosen: list[str] = []
    for own in images.values():
        last = max(own, key=lambda id: _draw(seed, id))
        chosen += [id for id in held_out_ids(own, share, seed) if id != last]
    return tuple(chosen)


def matching_ids(ids: Collection[str], patterns: Sequence[str]) -> tuple[str, ...]:
    """Return the ids that match a pattern, in order; * and ? also stand for the / between folder and name.

    A UserError if a pattern matches no id, or if all of them together match every id.
    """
    for pattern in patterns:
        if not any(fnmatchcase(id, pattern) for id in ids):
            raise UserError(
                f"data.validation: pattern '{pattern}' matches none of the {len(ids)} training images; their ids are "
                f"like '{min(ids)}' and '{max(ids)}'."
            )
    chosen = tuple(id for id in ids if any(fnmatchcase(id, pattern) for pattern in patterns))
    if len(chosen) == len(ids):
        raise UserError(
            f"data.validation: {' and '.join(patterns)} match all {len(ids)} training images, so that none is left to "
            "train on; choose narrower patterns."
        )
    return chosen


def check_classes_remain(scenario: Scenario, train: LabelIndex, held_out: Collection[str], advice: str) -> None:
    """Raise a UserError if a step of class increments would be left without an image of one of its classes."""
    rows = {id: row for row, id in enumerate(train.ids) if id not in held_out}
    for t, step in enumerate(scenario.steps):
        left = train.pixels[[rows[id] for id in step.images if id in rows]]
        if lost := [scenario.classes.names[i] for i in step.classes if not left[:, i].any()]:
            raise UserError(
                f"data.validation holds out {len(held_out)} of {len(train.ids)} training images, which leaves step {t} "
                f"none with {', '.join(lost)}; {advice}."
            )


def check_images_remain(scenario: Scenario, held_out: Collection[str]) -> None:
    """Raise a UserError if a step of domain increments would be left without an image."""
    for t, step in enumerate(scenario.steps):
        if set(step.images) <= set(held_out):
            raise UserError(
                f"data.validation holds out all {len(step.images)} training images of step {t} "
                f"({', '.join(step.domains)}); choose narrower patterns, or leave the domain out of scenario.task."
            )


def of_class_steps(
    scenario: Scenario, split: str, train: LabelIndex, index: LabelIndex, convention: Convention
) -> Validation:
    """Return the validation images of a scenario of class increments, chosen for every step as test images are."""
    made = with_test_images(scenario, index, convention, "validation")
    return Validation(with_shares(made, train, index), split, index)


def of_domain_steps(
    scenario: Scenario, split: str, train: LabelIndex, index: LabelIndex, domains: Mapping[str, str | None]
) -> Validation:
    """Return the validation images of a scenario of domain increments: for every step those of all domains so far."""
    steps, so_far = [], set[str]()
    for t, step in enumerate(scenario.steps):
        so_far |= set(step.domains)
        images = tuple(id for id in index.ids if domains[id] in so_far)
        if not images:
            raise UserError(
                f"After step {t} there is no validation image of the domains so far ({', '.join(sorted(so_far))}); add "
                "some, or set data.validation to a share of the training images, as in 0.1."
            )
        steps.append(replace(step, test_images=images))
    made = with_background_presence(replace(scenario, steps=tuple(steps)), index)
    return Validation(with_shares(made, train, index), split, index)


def warn_of_shared_images(validation: Validation, scenario: Scenario, test: LabelIndex, reporter: Reporter) -> None:
    """Report how many validation images are also training images, or test images."""
    trained = validation.scenario.steps[-1].leaked
    if trained > 0:
        reporter.say(
            f"warning: {trained:.1%} of the validation images have been trained on after the last step, so their "
            "scores are too good"
        )
    tested = tested_share(validation, scenario, test)
    if tested > 0:
        reporter.say(
            f"warning: {tested:.1%} of the validation images are also test images, so what is chosen by validation is "
            "chosen on the test images"
        )


def tested_share(validation: Validation, scenario: Scenario, test: LabelIndex) -> float:
    """Return the share of the validation images that are also test images of any step."""
    test_files, own = file_identities(test), file_identities(validation.index)
    tested = {test_files[id] for step in scenario.steps for id in step.test_images}
    used: Sequence[str] = validation.scenario.steps[-1].test_images
    return sum(own[id] in tested for id in used) / len(used)


def _draw(seed: int, id: str) -> float:
    """Return a number in [0, 1) that depends on seed and id alone."""
    text = f"{seed}/validation/{id}".encode(errors="surrogateescape")  # file names may hold any bytes
    return int.from_bytes(hashlib.blake2b(text, digest_size=6).digest(), "big") / 2**48
