"""Checkpoints within a step: what continues its training with the next update.

    checkpoints/01-00000420/model.* method.* optimizer.* processes.* assigned.* best_*.* SHA256SUMS

Step 1 after 420 updates. The teacher, and whatever else a method makes when the step begins, is made again from the
saved step before. The learning rate and the order of the images follow from the number of the update.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from faircl.checksums import CHECKSUMS, damaged_file
from faircl.errors import UserError
from faircl.files import write_folder
from faircl.loading.assigned_labels import AssignedLabels, PackedArray
from faircl.methods.state import MethodState
from faircl.runs.checkpoint import check_whole, load_tensors, save_tensors
from faircl.runs.reading import read_json

FORMAT = 1
KEPT = 2
"""Checkpoints of a step that are kept: if the newest is damaged, the one before it is used."""
_NAME = re.compile(r"(\d+)-(\d{8})")


class Best(NamedTuple):
    """The network and the method's state with the best validation score of a step."""

    model: Mapping[str, Tensor]
    method: MethodState


class ValidationState(NamedTuple):
    """The best validation of a step so far: its score, its update, how many were not better since, what was kept."""

    score: float = -1.0
    iteration: int = 0
    stale: int = 0
    best: Best | None = None


@dataclass(frozen=True)
class InStepState:
    """The state of a step after ``iteration`` updates.

    ``optimizer`` holds the optimiser's state by the number of the parameter, ``scaler`` the state of fp16's loss
    scaler, ``processes`` for each process the states of its random generators and the buffers that are its own.
    ``seconds`` is the training time so far.
    """

    step: int
    iteration: int
    model: Mapping[str, Tensor]
    method: MethodState
    optimizer: Mapping[int, Mapping[str, Any]]
    scaler: Mapping[str, Any]
    processes: list[dict[str, Tensor]]
    assigned: AssignedLabels | None
    validation: ValidationState
    seconds: float


def save_in_step(folder: Path, state: InStepState) -> None:
    """Write a checkpoint into the folder of checkpoints, then remove all but it and the KEPT - 1 before it.

    Newer ones are damaged, or the run would have continued from them. What a killed process was writing goes as well.
    """
    newest = folder / f"{state.step:02d}-{state.iteration:08d}"
    write_folder(newest, partial(_write, state=state))
    found = in_step_checkpoints(folder, state.step)
    kept = found[found.index(newest) :][:KEPT]
    for path in folder.iterdir():
        if path not in kept:
            shutil.rmtree(path, ignore_errors=True)


def load_in_step(path: Path) -> InStepState:
    """Read a checkpoint."""
    check_whole(path)
    about = read_json(path / "model.json")
    if about.get("format") != FORMAT:
        raise UserError(
            f"{path} has format {about.get('format')}; expected {FORMAT}: another version of faircl has saved it. "
            "Continue with that version, or remove the folder to train the step from its beginning."
        )
    optimizer: dict[int, dict[str, Any]] = {}
    state = {**load_tensors(path / "optimizer.safetensors"), **read_json(path / "optimizer.json")["numbers"]}
    for key, value in state.items():
        parameter, _, name = key.partition(".")
        optimizer.setdefault(int(parameter), {})[name] = value
    processes: list[dict[str, Tensor]] = [{} for _ in range(about["processes"])]
    for key, value in load_tensors(path / "processes.safetensors").items():
        process, _, name = key.partition(".")
        processes[int(process)][name] = value
    return InStepState(
        step=about["step"],
        iteration=about["iteration"],
        model=load_tensors(path / "model.safetensors"),
        method=_load_method(path, "method"),
        optimizer=optimizer,
        scaler=about["scaler"],
        processes=processes,
        assigned=_load_assigned(path) if (path / "assigned.json").exists() else None,
        validation=_load_validation(path, about["validation"]),
        seconds=about["seconds"],
    )


def in_step_checkpoints(folder: Path, step: int) -> list[Path]:
    """Return the checkpoints of a step, newest first."""
    with suppress(FileNotFoundError):
        names = {path: _NAME.fullmatch(path.name) for path in folder.iterdir()}
        found = {path: int(match[2]) for path, match in names.items() if match and int(match[1]) == step}
        return sorted(found, key=found.__getitem__, reverse=True)
    return []


def whole_in_step_checkpoints(folder: Path, step: int) -> Iterator[tuple[Path, str | None]]:
    """Yield the checkpoints of a step, newest first, with the first damaged file of each; end with a whole one."""
    for path in in_step_checkpoints(folder, step):
        damaged = damaged_file(path) if (path / CHECKSUMS).exists() else CHECKSUMS
        yield path, damaged
        if damaged is None:
            return


def _write(path: Path, state: InStepState) -> None:
    about = {"format": FORMAT, "step": state.step, "iteration": state.iteration, "scaler": dict(state.scaler)}
    about |= {"seconds": state.seconds, "processes": len(state.processes), "validation": state.validation[:3]}
    save_tensors(path, "model", state.model, about)
    save_tensors(path, "method", state.method.tensors, {"numbers": state.method.numbers})
    flat = {f"{number}.{name}": value for number, entry in state.optimizer.items() for name, value in entry.items()}
    tensors = {key: value for key, value in flat.items() if isinstance(value, Tensor)}
    save_tensors(path, "optimizer", tensors, {"numbers": {k: v for k, v in flat.items() if k not in tensors}})
    own = {f"{rank}.{name}": value for rank, entry in enumerate(state.processes) for name, value in entry.items()}
    save_tensors(path, "processes", own, {})
    if state.validation.best is not None:
        save_tensors(path, "best_model", state.validation.best.model, {})
        tensors, numbers = state.validation.best.method
        save_tensors(path, "best_method", tensors, {"numbers": numbers})
    if state.assigned is not None:
        masks = dict(state.assigned.packed())
        parts = (torch.frombuffer(bytearray(one.data), dtype=torch.uint8) for one in masks.values())
        tensors = {str(k): part for k, part in enumerate(parts)}
        save_tensors(path, "assigned", tensors, {"masks": [[id, one.shape, one.dtype] for id, one in masks.items()]})


def _load_method(path: Path, name: str) -> MethodState:
    return MethodState(load_tensors(path / f"{name}.safetensors"), read_json(path / f"{name}.json")["numbers"])


def _load_validation(path: Path, numbers: tuple[float, int, int]) -> ValidationState:
    best = None
    if (path / "best_model.safetensors").exists():
        best = Best(load_tensors(path / "best_model.safetensors"), _load_method(path, "best_method"))
    return ValidationState(*numbers, best)


def _load_assigned(path: Path) -> AssignedLabels:
    data = load_tensors(path / "assigned.safetensors")
    masks = read_json(path / "assigned.json")["masks"]
    return AssignedLabels(
        {
            id: PackedArray(tuple(shape), dtype, data[str(k)].numpy().tobytes())
            for k, (id, shape, dtype) in enumerate(masks)
        }
    )
