"""What a step remembers of the classes it knows: their prototypes and some features of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from faircl.errors import UserError
from faircl.labels import BACKGROUND
from faircl.runs.checkpoint import check_whole, load_tensors
from faircl.runs.reading import read_json

_FILE = "method.safetensors"
_STATE = {"prototypes": "bank.prototypes", "features": "memory.features", "filled": "memory.filled"}


@dataclass(frozen=True)
class KnownFeatures:
    """Remembered features of known classes; classes without any are left out.

    Shapes: features (M, D) float32, ordered by class; classes (M,) int64, the row in ``prototypes`` of each feature's
    class; prototypes (K, D) float32.
    """

    features: Tensor
    classes: Tensor
    prototypes: Tensor

    def class_means(self, values: Tensor) -> Tensor:
        """Return the mean of values (M,) or (M, n) of the features over every class, (K,) or (K, n)."""
        count = len(self.prototypes)
        total = values.new_zeros((count, *values.shape[1:])).index_add_(0, self.classes, values)
        filled = self.classes.bincount(minlength=count).to(values)
        return total / filled.view(-1, *[1] * (values.ndim - 1))


def load_known_features(step_folder: Path, background: bool, device: torch.device) -> KnownFeatures | None:
    """Read a step's method state; None if its method remembers no features.

    ``background`` false leaves the background class out, where the network has one.
    """
    check_whole(step_folder, [_FILE])
    state = _find_state(load_tensors(step_folder / _FILE))
    if state is None:
        return None
    filled = state["filled"].clone()
    if not background and has_background(step_folder):
        filled[BACKGROUND] = 0
    if not filled.any():
        return None
    present = torch.arange(state["features"].shape[1]) < filled[:, None]
    rows = torch.repeat_interleave(torch.arange(int((filled > 0).sum())), filled[filled > 0])
    prototypes = state["prototypes"][: len(filled)][filled > 0]
    return KnownFeatures(state["features"][present].float().to(device), rows.to(device), prototypes.float().to(device))


def has_background(step_folder: Path) -> bool:
    """Whether a step's first channel is a background class."""
    return read_json(step_folder / "model.json").get("background") is True


def _find_state(tensors: Mapping[str, Tensor]) -> dict[str, Tensor] | None:
    """Return FairCL's tensors, also where it is the inner method of another; None if there are none."""
    ends = f".{_STATE['features']}"
    prefixes = [name.removesuffix(_STATE["features"]) for name in tensors if f".{name}".endswith(ends)]
    if not prefixes:
        return None
    try:
        return {key: tensors[prefixes[0] + name] for key, name in _STATE.items()}
    except KeyError as error:
        raise UserError(
            f"The method state has {_STATE['features']} but no {error.args[0]}; the file is damaged."
        ) from None
