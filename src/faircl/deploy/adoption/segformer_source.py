"""transformers' SegFormer as a source: a folder with config.json and weights."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stderr
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from faircl.deploy.adoption.source import Forward, Source
from faircl.errors import UserError
from faircl.models.checkpoint_keys import to_segformer_keys
from faircl.models.segformer import SIZES
from faircl.models.segmenter import IMAGENET_MEAN, IMAGENET_STD
from faircl.models.weights import read_weights

_AS_PUBLISHED = (
    "num_attention_heads",
    "sr_ratios",
    "mlp_ratios",
    "patch_sizes",
    "strides",
    "hidden_act",
    "num_channels",
)
"""Settings of a SegFormer that are the same for all published sizes, and that faircl's network does not change."""
_CLASSIFIER = "decode_head.classifier"


def segformer_source(path: Path, saved: dict[str, Any]) -> Source:
    """Read a folder whose config.json, ``saved``, is of a SegFormer."""
    import transformers

    try:
        config = transformers.SegformerConfig.from_dict(saved)
    except Exception as error:  # transformers raises many different errors
        raise UserError(
            f"transformers does not understand {path / 'config.json'}: {' '.join(str(error).split())[:200]}."
        ) from None
    variant = _variant(path, config)
    state = read_weights(str(path))
    if not {f"{_CLASSIFIER}.weight", f"{_CLASSIFIER}.bias"} <= state.keys():
        raise UserError(f"The SegFormer in {path} has no classifier of pixels; give one that was trained to segment.")
    weight, bias = (state.pop(f"{_CLASSIFIER}.{part}").float() for part in ("weight", "bias"))
    renamed = to_segformer_keys(state).items()
    mean, std, notes = _preprocessing(path)
    return Source(
        path=path,
        found=f"transformers' SegFormer {variant}",
        library=f"transformers {transformers.__version__}",
        model={
            "name": "segformer",
            "variant": variant,
            "drop_path": config.drop_path_rate,
            "dropout": config.classifier_dropout_prob,
        },
        state={key if key.startswith("decoder.") else f"backbone.{key}": value for key, value in renamed},
        weight=weight.flatten(1),
        bias=bias,
        names=_names(path, saved, len(weight)),
        forward=_forward(path, mean, std),
        notes=notes,
    )


def _variant(path: Path, config: Any) -> str:
    """Return the published size, b0 to b5, that a configuration has."""
    import transformers

    published = transformers.SegformerConfig()
    settings = {name: (_plain(getattr(config, name)), _plain(getattr(published, name))) for name in _AS_PUBLISHED}
    if other := [f"{name} {found}, not {usual}" for name, (found, usual) in settings.items() if found != usual]:
        raise UserError(f"The SegFormer in {path} has {other[0]} as the published ones, which can be adopted.")
    found = tuple(config.depths), tuple(config.hidden_sizes), config.decoder_hidden_size
    variant = next((name for name, size in SIZES.items() if tuple(size) == found), None)
    if variant is None:
        raise UserError(
            f"The SegFormer in {path} has depths {list(found[0])}, widths {list(found[1])} and a decoder of {found[2]} "
            f"channels; expected one of the published sizes, {', '.join(SIZES)}."
        )
    return variant


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, list | tuple) else value


def _names(path: Path, saved: dict[str, Any], classes: int) -> tuple[str, ...] | None:
    """Return the names of ``id2label``; None where it is missing."""
    labels = saved.get("id2label")
    if labels is None:
        return None
    try:
        names = {int(id): str(name) for id, name in labels.items()}
    except (AttributeError, ValueError):
        raise UserError(f"id2label in {path / 'config.json'} does not map numbers to names; correct it.") from None
    if sorted(names) != list(range(classes)):
        raise UserError(
            f"id2label in {path / 'config.json'} names {len(names)} classes, but the classifier has {classes}; "
            "correct the file, or name them with --classes."
        )
    return tuple(names[id] for id in range(classes))


def _preprocessing(path: Path) -> tuple[Tensor, Tensor, tuple[str, ...]]:
    """Return mean and deviation (3, 1, 1) that images are normalised with, and notes; ImageNet's without a file."""
    file = path / "preprocessor_config.json"
    try:
        saved = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
        found = [saved.get(key, list(own)) for key, own in (("image_mean", IMAGENET_MEAN), ("image_std", IMAGENET_STD))]
        mean, std = (torch.tensor(values, dtype=torch.float32).view(3, 1, 1) for values in found)
    except (OSError, ValueError, TypeError, AttributeError, RuntimeError) as error:
        raise UserError(f"Cannot read {file}: {' '.join(str(error).split())}; correct or remove it.") from None
    own_mean, own_std = (torch.tensor(values).view(3, 1, 1) for values in (IMAGENET_MEAN, IMAGENET_STD))
    if not (torch.allclose(mean, own_mean, atol=1e-4) and torch.allclose(std, own_std, atol=1e-4)):
        raise UserError(
            f"{file} normalises images by mean {found[0]} and deviation {found[1]}; faircl's SegFormer uses those of "
            f"ImageNet, {list(IMAGENET_MEAN)} and {list(IMAGENET_STD)}, and cannot take this network up."
        )
    if not saved.get("do_resize", False):
        return own_mean, own_std, ()
    note = f"the source's image processor resizes images to {saved.get('size')}; faircl segments them at their own size"
    return own_mean, own_std, (note,)


def _forward(path: Path, mean: Tensor, std: Tensor) -> Forward:
    """Return transformers' own network as a function; the network is read when it is first called."""

    @cache
    def network() -> Any:
        from transformers import SegformerForSemanticSegmentation

        try:
            with redirect_stderr(io.StringIO()):  # a bar of its own for less than a second
                read: Any = SegformerForSemanticSegmentation.from_pretrained(
                    path, local_files_only=True, dtype=torch.float32
                )
        except Exception as error:  # transformers raises many different errors
            raise UserError(f"transformers cannot load {path}: {' '.join(str(error).split())[:200]}.") from None
        return read.eval()

    def forward(images: Tensor) -> Tensor:
        logits: Tensor = network()(pixel_values=(images - mean) / std).logits
        return logits

    return forward
