"""A step's model and method on disk: safetensors for numbers, JSON for what they mean."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from faircl.errors import UserError
from faircl.methods.base import Method, restore_buffers
from faircl.models.segmenter import Segmenter
from faircl.scenario import Scenario


def save_step(path: Path, model: Segmenter, method: Method, scenario: Scenario, step: int) -> None:
    """Write a step's checkpoint into a folder."""
    channels = scenario.channels(step)
    about_model = {
        "format": 1,
        "model": model.name,
        "heads": model.classifier.sizes,
        **({} if model.classifier.unknown is None else {"unknown": True}),
        "background": scenario.background,
        "classes": [{"id": i, "name": n} for i, n in zip(scenario.channel_ids, scenario.names, strict=True)][:channels],
        "step": step,
        "scenario_sha256": scenario.sha256,
    }
    _save(path, "model", model.state_dict(), about_model)
    _save(path, "method", method.state_dict(), {"format": 1, "method": method.name, "step": step})


def load_step(path: Path, model: Segmenter, method: Method | None) -> None:
    """Load a step's checkpoint into a network without classes yet, and into its method."""
    about = _read_json(path / "model.json")
    heads = about.get("heads")
    if not isinstance(heads, list) or not all(isinstance(size, int) and size > 0 for size in heads):
        raise UserError(f"{path / 'model.json'} says nothing sensible of the heads; the file is damaged.")
    if about.get("step") != int(path.name):
        raise UserError(f"{path / 'model.json'} is of step {about.get('step')}, not of step {int(path.name)}.")
    for size in heads:
        model.classifier.grow(size)
    if about.get("unknown") is True:
        model.classifier.add_unknown(about.get("background") is True)
    state = _load(path / "model.safetensors")
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        raise UserError(
            f"{path / 'model.safetensors'} does not fit network '{model.name}': {_first_line(error)}"
        ) from None
    if method is not None:
        try:
            restore_buffers(method, _load(path / "method.safetensors"))
        except ValueError as error:
            raise UserError(f"{path / 'method.safetensors'}: {error}.") from None


def _save(path: Path, name: str, state: dict[str, Tensor], about: dict[str, Any]) -> None:
    save_file({k: v.detach().cpu().contiguous() for k, v in state.items()}, path / f"{name}.safetensors")
    (path / f"{name}.json").write_text(json.dumps(about, indent=1), encoding="utf-8")


def _load(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise UserError(f"Cannot read {path}: {error}; the file is missing or damaged.") from None


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"Cannot read {path}: {error}; the file is missing or damaged.") from None
    if not isinstance(value, dict):
        raise UserError(f"{path} holds no JSON object; the file is damaged.")
    return value


def _first_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
