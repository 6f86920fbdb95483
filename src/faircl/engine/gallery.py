"""The gallery of a finished run: images chosen by its evaluations, predicted again by the network of every step."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from PIL import Image as Pillow

from faircl.data.masks import palette_of, write_mask
from faircl.engine.evaluate import predict_masks
from faircl.engine.network import build_model, move_to_device
from faircl.engine.plan import Plan
from faircl.fairness.chosen_images import choose_images
from faircl.fairness.record_file import RECORD, load_record
from faircl.files import write_folder
from faircl.progress import Reporter
from faircl.runs.checkpoint import load_step
from faircl.runs.folder import RunFolder
from faircl.runs.gallery import GALLERY, INDEX


def write_gallery(plan: Plan, folder: RunFolder, device: torch.device, reporter: Reporter) -> bool:
    """Choose images by the record of the last step, predict them with every step's network, and write them.

    Nothing is done, and False returned, if the gallery is there, none is wanted, or a step has no record.
    """
    wanted, steps = plan.config.eval.gallery, range(len(plan.scenario.steps))
    files = [folder.step_path(step) / RECORD for step in steps]
    if not wanted or (folder.path / GALLERY / INDEX).is_file() or not all(path.is_file() for path in files):
        return False
    last, *before = (load_record(path) for path in files[::-1][:2])
    chosen = choose_images(last, before[0] if before else None, wanted)
    ids = [last.images[k] for k in chosen]
    numbers = list(steps) if len(steps) > 1 else [last.step]  # joint training's only step is the task's last one

    def write(path: Path) -> None:
        with reporter.task("gallery", len(steps)) as task:
            for step in steps:
                _write_predictions(plan, folder, step, ids, path, numbers[step], device)
                task.advance()
        _write_images(plan, ids, path)
        entries = [{"id": id, "why": why} for id, why in zip(ids, chosen.values(), strict=True)]
        (path / INDEX).write_text(json.dumps({"images": entries}, indent=1, ensure_ascii=False), encoding="utf-8")

    write_folder(folder.path / GALLERY, write)
    return True


def _write_predictions(
    plan: Plan, folder: RunFolder, step: int, ids: Sequence[str], path: Path, number: int, device: torch.device
) -> None:
    network = build_model(plan.config, pretrained=False)
    load_step(folder.step_path(step), network, None)
    scenario, split = plan.evaluated
    masks = predict_masks(move_to_device(network, device), plan.data, split, ids, scenario)
    for k, mask in enumerate(masks):
        write_mask(path / f"{k}.step{number:02d}.png", mask, palette_of(plan.scenario.colours))


def _write_images(plan: Plan, ids: Sequence[str], path: Path) -> None:
    _, split = plan.evaluated
    for k, id in enumerate(ids):
        sample = plan.data.read(split, id)
        Pillow.fromarray(sample.image).save(path / f"{k}.image.png")
        write_mask(path / f"{k}.truth.png", sample.mask, palette_of(plan.scenario.colours))
