"""The classes that a model knows, and since when."""

from __future__ import annotations

from dataclasses import dataclass

from faircl.deploy.matching import Known
from faircl.runs.folder import RunFolder
from faircl.runs.versions import VersionChain
from faircl.scenario import Scenario


@dataclass(frozen=True)
class KnownClass:
    """A class of a model; ``version``, and ``step`` of it, learned the class from so many training ``pixels``."""

    id: int
    name: str
    version: int
    step: int
    pixels: int


def known_classes(chain: VersionChain) -> tuple[Scenario, list[KnownClass]]:
    """Return the classes of the current version in the order of their ids, and its scenario.

    Ids never change, so a class was learned at the first of a version's ancestors, itself included, that has its id.
    """
    learned: dict[int, tuple[int, int]] = {}
    for number in _lineage(chain):
        scenario, known = _known(RunFolder(chain.folder(number)))
        steps = {id: step for step, one in enumerate(scenario.steps) for id in one.classes}
        for id in known.learned:
            learned.setdefault(id, (number, steps.get(id, 0)))
    pixels = dict(zip(scenario.channel_ids, scenario.pixels, strict=True))
    rows = [KnownClass(id, known.classes.names[id], *learned[id], pixels[id]) for id in sorted(known.learned)]
    return scenario, rows


def current_classes(chain: VersionChain) -> Known:
    """Return what the current version knows."""
    return _known(RunFolder(chain.find(None)))[1]


def _lineage(chain: VersionChain) -> list[int]:
    """Return the numbers of the current version and of all that it was made from, the oldest first."""
    parents = {version.number: version.parent for version in chain.finished()}
    numbers = [chain.current()]
    while numbers[0] > 0:
        numbers.insert(0, parents[numbers[0]])
    return numbers


def _known(folder: RunFolder) -> tuple[Scenario, Known]:
    """Return the scenario of a version and what it knows after its last finished step."""
    last = folder.usable_steps() - 1
    scenario = folder.load_scenario()
    return scenario, Known.of(scenario, last)
