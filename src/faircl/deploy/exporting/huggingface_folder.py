"""Folders for the Hugging Face hub: what transformers loads, where it has the network, a model card and a slim run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from faircl.deploy.exporting.contract import Masks, Source, metadata
from faircl.deploy.exporting.model_card import model_card
from faircl.deploy.exporting.slim_run import write_slim_run
from faircl.models.segformer import SIZES, SegFormer
from faircl.runs.reading import EXPORTED_RUN


def write_huggingface(source: Source, path: Path) -> str:
    """Write the folder; return why transformers cannot load it, or nothing where it can."""
    path.mkdir()
    write_slim_run(source, path / EXPORTED_RUN)
    obstacle = _write_transformers(source, path)
    (path / "README.md").write_text(model_card(source, transformers=not obstacle), encoding="utf-8")
    return obstacle


def _write_transformers(source: Source, path: Path) -> str:
    """Write model.safetensors, config.json and preprocessor_config.json; return why there is no such network."""
    from transformers import SegformerConfig, SegformerForSemanticSegmentation, SegformerImageProcessor

    network = source.network
    if not isinstance(network, SegFormer):
        return f"transformers has no counterpart of network '{network.name}'"
    lacking = {
        "bare decoder": network.decoder.bare,
        "head for unknown pixels": network.classifier.unknown is not None,
        "merged classes": network.classifier.merged is not None,
    }
    if any(lacking.values()):
        part = next(name for name, has in lacking.items() if has)
        return f"transformers' SegFormer has no {part}, as this network has"
    state = network.export_state_dict()
    size, ids = SIZES[network.config.variant], list(source.names)
    # Labels of transformers are numbered in the order of class ids: label i is the i-th smallest id, so that the two
    # are the same once all classes are learned.
    order = [source.channels.index(id) for id in ids]
    for part in ("weight", "bias"):
        state[f"decode_head.classifier.{part}"] = state[f"decode_head.classifier.{part}"][order]
    config = SegformerConfig(
        depths=list(size.depths),
        hidden_sizes=list(size.widths),
        decoder_hidden_size=size.decoder,
        id2label=dict(enumerate(source.names.values())),
        label2id={name: label for label, name in enumerate(source.names.values())},
    )
    config.faircl = {**metadata(source), "labels": ids}
    for key in ("input", "output", "channels"):  # of the other formats
        del config.faircl[key]
    model = SegformerForSemanticSegmentation(config)
    model.load_state_dict(state)
    with _without_bars():
        model.save_pretrained(path)
    for file in path.glob("*.safetensors"):
        shutil.copymode(path / "config.json", file)  # safetensors makes files that nobody else may read
    mean, std = ([round(value, 6) for value in stat.flatten().tolist()] for stat in (network.mean, network.std))
    processor = SegformerImageProcessor(
        do_resize=False, do_rescale=True, do_normalize=True, image_mean=mean, image_std=std, do_reduce_labels=False
    )
    processor.save_pretrained(path)
    return ""


def transformers_masks(path: Path) -> Masks:
    """Return a function that runs the folder by transformers alone, as its model card shows."""
    from transformers import AutoImageProcessor, AutoModelForSemanticSegmentation

    processor: Any = AutoImageProcessor.from_pretrained(path, local_files_only=True)
    with _without_bars():
        model: Any = AutoModelForSemanticSegmentation.from_pretrained(path, local_files_only=True).eval()
    ids = np.asarray(json.loads((path / "config.json").read_text(encoding="utf-8"))["faircl"]["labels"])

    @torch.no_grad()
    def run(images: NDArray[Any]) -> NDArray[Any]:
        inputs = processor(images=list(images), return_tensors="pt", input_data_format="channels_first")
        labels = processor.post_process_semantic_segmentation(model(**inputs), [images.shape[-2:]] * len(images))
        masks: NDArray[Any] = ids[torch.stack(labels).numpy()]
        return masks

    return run


@contextmanager
def _without_bars() -> Iterator[None]:
    """Keep transformers' progress bars off the terminal."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
