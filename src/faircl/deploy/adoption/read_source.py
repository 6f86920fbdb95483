"""Finding out what a file or folder of weights holds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import faircl
from faircl.deploy.adoption.checks import KINDS, check_source
from faircl.deploy.adoption.source import Source
from faircl.errors import UserError
from faircl.models.weights import State, read_weights

_HUB_FILES = ("model.safetensors", "pytorch_model.bin")


def read_source(path: Path, model: Mapping[str, Any] | None) -> Source:
    """Read a network; ``model`` are the settings of faircl's network that weights with its own keys belong to."""
    check_source(path)
    if path.is_file() and path.name in _HUB_FILES and (path.parent / "config.json").is_file():
        path = path.parent
    if path.is_dir():
        return _hugging_face(path, model)
    state = read_weights(str(path))
    if "classifier.heads.0.weight" in state:
        return _own(path, state, model)
    _refuse_settings(path, model)
    if {"classifier.0.convs.0.0.weight", "classifier.4.weight", "classifier.4.bias"} <= state.keys():
        from faircl.deploy.adoption.torchvision_source import torchvision_source

        return torchvision_source(path, state)
    if any(key.startswith(("decode_head.", "segformer.")) for key in state):
        raise UserError(
            f"{path} holds weights of a SegFormer alone; give the folder in which they lie beside config.json, which "
            "names its size and its classes."
        )
    first = ", ".join(list(state)[:2])
    raise UserError(f"The weights {path} are of a network that is not known here ({first}, …); give {KINDS}.")


def _hugging_face(path: Path, model: Mapping[str, Any] | None) -> Source:
    _refuse_settings(path, model)
    try:
        config = json.loads((path / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"Cannot read {path / 'config.json'}: {error}; copy the folder again.") from None
    kind = config.get("model_type") if isinstance(config, dict) else None
    if kind != "segformer":
        raise UserError(f"{path} holds a network of type {kind!r}; of Hugging Face folders SegFormers can be adopted.")
    if not any((path / name).is_file() for name in _HUB_FILES):
        raise UserError(f"The folder {path} has no weights; expected {' or '.join(_HUB_FILES)} beside config.json.")
    from faircl.deploy.adoption.segformer_source import segformer_source

    return segformer_source(path, config)


def _own(path: Path, state: State, model: Mapping[str, Any] | None) -> Source:
    """Return one of faircl's networks; heads of several steps become one."""
    import torch

    if model is None:
        raise UserError(
            f"The weights {path} are of one of faircl's networks, but do not say of which; add --model NAME and its "
            "settings, as in --model deeplabv3plus --set model.backbone=resnet50."
        )
    if any(key.startswith("classifier.unknown.") for key in state):
        raise UserError(
            f"The classifier in {path} has a head for unknown pixels, which methods other than SSUL do not have; it "
            "cannot be adopted."
        )
    heads = sum(key.startswith("classifier.heads.") and key.endswith(".weight") for key in state)
    weights = [state[f"classifier.heads.{k}.weight"].flatten(1) for k in range(heads)]
    biases = [state[f"classifier.heads.{k}.bias"] for k in range(heads)]
    return Source(
        path=path,
        found=f"faircl's network '{model.get('name')}'",
        library=f"faircl {faircl.__version__}",
        model=dict(model),
        state={key: value for key, value in state.items() if not key.startswith("classifier.")},
        weight=torch.cat(weights).float(),
        bias=torch.cat(biases).float(),
    )


def _refuse_settings(path: Path, model: Mapping[str, Any] | None) -> None:
    if model is not None:
        raise UserError(
            f"--model and settings of model describe weights of faircl's own networks, but {path} is of another "
            "library and says itself what it is; leave them out."
        )
