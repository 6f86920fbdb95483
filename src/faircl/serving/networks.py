"""Which networks a run offers, and the few of them that are in memory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from faircl.errors import listed
from faircl.serving.limits import Refused

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from faircl.data.images import ImageReading
    from faircl.data.masks import Colour
    from faircl.data.sample import Image
    from faircl.labels import Mask
    from faircl.runs.folder import RunFolder
    from faircl.runs.versions import VersionChain

IN_MEMORY = 2
"""Networks that are kept: the two sides of the page."""
_LABEL = 70


class Segmented(NamedTuple):
    """What a network says of an image: mask (H, W) of class ids, unknown (H, W) in [0, 1]."""

    mask: Mask
    unknown: NDArray[np.float32]


class Network(Protocol):
    """A network that segments images; names and colours are by class id, ``score`` names its unknown map."""

    names: dict[int, str]
    colours: dict[int, Colour]
    background: int | None
    reading: ImageReading
    score: str

    def segment(self, image: Image, tile: int | None) -> Segmented:
        """Segment an image (H, W, 3) uint8, in windows of ``tile`` pixels or as a whole."""
        ...


@dataclass(frozen=True)
class Choice:
    """A network that can be chosen on the page: a step of the run as it was trained, or a later version."""

    version: int
    step: int
    label: str

    @property
    def key(self) -> str:
        """Version and step, as the page names them."""
        return f"{self.version}-{self.step}"


def find_choices(chain: VersionChain) -> tuple[list[Choice], int]:
    """Return all networks of a run, oldest first, and the place of the current one among them.

    They are the saved steps of version 0, and the last step of every later version, rejected ones too.
    """
    from faircl.engine.reevaluate import saved_steps
    from faircl.runs.folder import RunFolder

    trained = RunFolder(chain.folder(0))
    choices = [Choice(0, step, _step_label(trained, step)) for step in saved_steps(trained, None)]
    for version in chain.finished():
        step = saved_steps(RunFolder(chain.find(version.number)), None)[-1]
        status = "" if version.accepted else " (rejected)"
        choices.append(Choice(version.number, step, _short(f"version {version.number}: {version.what}") + status))
    current = chain.current()
    return choices, max(place for place, one in enumerate(choices) if one.version == current)


def _step_label(folder: RunFolder, step: int) -> str:
    """Return "step 1: adds car, bus", or how many classes a step knows if it adds none to an earlier one."""
    scenario = folder.load_scenario()
    known = scenario.channels(step)
    new = scenario.channel_ids[scenario.channels(step - 1) : known] if step else ()
    if new:
        return _short(f"step {step}: adds {', '.join(scenario.classes.names[id] for id in new)}")
    return f"step {step}: {known} classes"


def _short(text: str) -> str:
    return text if len(text) <= _LABEL else text[: _LABEL - 1] + "…"


class Networks:
    """The networks of a run, loaded when they are first used; the two used last stay in memory."""

    def __init__(self, choices: Sequence[Choice], load: Callable[[Choice], Network]) -> None:
        self.choices = {choice.key: choice for choice in choices}
        self._load = load
        self._loaded: OrderedDict[str, Network] = OrderedDict()

    def choice(self, key: str) -> Choice:
        """Return the choice of a key; `Refused` if there is none."""
        if key not in self.choices:
            raise Refused(404, f"There is no network {key!r}; choose one of {listed(list(self.choices))}.")
        return self.choices[key]

    def get(self, key: str) -> Network:
        """Return the network of a choice; the one that was not used for longest makes room for it first."""
        choice = self.choice(key)
        if key not in self._loaded:
            while len(self._loaded) >= IN_MEMORY:
                self._loaded.popitem(last=False)
            self._loaded[key] = self._load(choice)
        self._loaded.move_to_end(key)
        return self._loaded[key]
