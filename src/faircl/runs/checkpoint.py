"""A step's model and method on disk: tensors as safetensors, plain values as JSON."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from faircl.checksums import CHECKSUMS, damaged_file
from faircl.errors import UserError
from faircl.methods.base import Method
from faircl.methods.state import MethodState, load_method_state, method_state
from faircl.models.segmenter import Segmenter
from faircl.runs.reading import MODEL_FILES, STEP_FILES, read_json
from faircl.scenario import Scenario

METHOD_FORMAT = 2


def save_step(path: Path, model: Segmenter, method: Method, scenario: Scenario, step: int) -> None:
    """Write a step's checkpoint into a folder."""
    channels = scenario.channels(step)
    about_model = {
        "format": 1,
        "model": model.name,
        "heads": model.classifier.sizes,
        **({} if model.classifier.merged is None else {"groups": model.classifier.merged.groups}),
        **({} if model.classifier.unknown is None else {"unknown": True}),
        "background": scenario.background,
        "classes": [{"id": i, "name": n} for i, n in zip(scenario.channel_ids, scenario.names, strict=True)][:channels],
        "step": step,
        "scenario_sha256": scenario.sha256,
    }
    save_tensors(path, "model", model.state_dict(), about_model)
    state = method_state(method)
    about_method = {"format": METHOD_FORMAT, "method": method.name, "step": step, "numbers": state.numbers}
    save_tensors(path, "method", state.tensors, about_method)


def load_step(path: Path, model: Segmenter, method: Method | None) -> None:
    """Load a step's checkpoint into a network that has no classes yet and, unless it is None, into its method."""
    check_whole(path, MODEL_FILES if method is None else STEP_FILES)
    about = read_json(path / "model.json")
    heads = about.get("heads")
    if not isinstance(heads, list) or not all(isinstance(size, int) and size > 0 for size in heads):
        raise UserError(f"{path / 'model.json'} has no valid list of heads; the file is damaged.")
    if about.get("step") != int(path.name):
        raise UserError(f"{path / 'model.json'} is of step {about.get('step')}, not of step {int(path.name)}.")
    for size in heads:
        model.classifier.grow(size)
    if "groups" in about:
        model.classifier.set_groups(_channel_groups(about["groups"], sum(heads), path / "model.json"))
    if about.get("unknown") is True:
        model.classifier.add_unknown(about.get("background") is True)
    state = load_tensors(path / "model.safetensors")
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        raise UserError(
            f"{path / 'model.safetensors'} does not fit network '{model.name}': {_first_line(error)}"
        ) from None
    if method is not None:
        _load_method(path, method)


def _channel_groups(groups: Any, channels: int, path: Path) -> list[list[int]]:
    """Return the channels of merged classes; a UserError unless each of the first channels is in one group."""
    lists = isinstance(groups, list) and all(isinstance(group, list) and group for group in groups)
    found = [channel for group in groups for channel in group] if lists else []
    if not found or set(map(type, found)) != {int} or sorted(found) != list(range(min(len(found), channels))):
        raise UserError(f"{path} has no valid groups of channels; the file is damaged.")
    checked: list[list[int]] = groups
    return checked


def _load_method(path: Path, method: Method) -> None:
    about = read_json(path / "method.json")
    if about.get("format") == 1:
        raise UserError(
            f"{path} was saved by an earlier version of faircl, whose method state this version cannot load; finish "
            "the run with that version, or start a new run in another folder. Its finished steps can be evaluated."
        )
    if about.get("format") != METHOD_FORMAT or not isinstance(about.get("numbers"), dict):
        raise UserError(
            f"{path / 'method.json'} is not of format {METHOD_FORMAT} or has no numbers; a newer version of faircl has "
            "saved it, or the file is damaged."
        )
    try:
        load_method_state(method, MethodState(load_tensors(path / "method.safetensors"), about["numbers"]))
    except ValueError as error:
        raise UserError(f"The method state in {path} cannot be loaded: {error}; the files are damaged.") from None


def save_tensors(path: Path, name: str, tensors: Mapping[str, Tensor], about: dict[str, Any]) -> None:
    """Write NAME.safetensors and NAME.json into a folder."""
    text, file = path / f"{name}.json", path / f"{name}.safetensors"
    text.write_text(json.dumps(about, indent=1), encoding="utf-8")
    save_file({key: value.detach().cpu().contiguous() for key, value in tensors.items()}, file)
    shutil.copymode(text, file)  # safetensors makes files that nobody else may read


def load_tensors(path: Path) -> dict[str, Tensor]:
    """Read a file of tensors."""
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise UserError(f"Cannot read {path}: {error}; the file is missing or damaged.") from None


def check_whole(path: Path, names: Sequence[str] = ()) -> None:
    """Raise a UserError if one of these files of a folder, or of all, does not have its checksum."""
    if found := damaged_file(path, names):
        version = path.parents[2].name == "versions"  # RUN/versions/NN/steps/MM
        again = "remove the version with 'faircl versions undo'", "train the step again with 'faircl train --resume'"
        remedy = again[0] if version else again[1]
        raise UserError(
            f"{path / found} is missing or damaged: it does not have the sha256 in {path / CHECKSUMS}; restore it from "
            f"a copy, or {remedy}."
        )


def _first_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
