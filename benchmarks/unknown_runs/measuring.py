"""Scoring the pixels of a case's images: how well every score tells unknown classes from known ones."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from faircl.acceleration.evaluation import evaluation_mode
from faircl.data.sample import SegmentationData
from faircl.deploy.known_features import has_background
from faircl.deploy.unknown import SCORES, UnknownScorer
from faircl.engine.reevaluate import load_network
from faircl.progress import Reporter
from faircl.runs.folder import RunFolder
from faircl.upsampling import upsampled
from unknown_runs.cases import Case
from unknown_runs.pixel_metrics import separation
from unknown_runs.voided import class_ids

ALARM = 0.95


class Variant(NamedTuple):
    """A score, and whether the background class counts as known."""

    score: str
    background: bool


def measure(case: Case, run: Path, data: SegmentationData, split: str, reporter: Reporter) -> list[dict[str, object]]:
    """Return one record per score: AUROC, FPR at 95 % and average precision over all pixels of a split in percent.

    ``alarms``: the share of known pixels whose score is above 0.95, which is meant to be about 5 % for shares.
    Scores are upsampled bilinearly from network stride; void pixels are left out.
    """
    folder = RunFolder(run)
    last = folder.finished_steps() - 1
    network = load_network(folder, folder.config(), last)
    unknown = class_ids(data, case.held_out)
    step = folder.step_path(last)
    kinds = (True, False) if has_background(step) else (True,)
    scorers = {
        Variant(name, kind): UnknownScorer.from_step(step, network, name, kind) for name in SCORES for kind in kinds
    }
    scores: dict[Variant, list[NDArray[np.float32]]] = {variant: [] for variant in scorers}
    labels: list[NDArray[np.bool_]] = []
    ids = data.ids(split)
    with evaluation_mode(network), torch.no_grad(), reporter.task(f"{case.name} {split}", len(ids)) as task:
        for id in ids:
            sample = data.read(split, id)
            output = network(torch.from_numpy(sample.image).permute(2, 0, 1)[None] / 255)
            maps = upsampled(torch.stack([scorer(output) for scorer in scorers.values()], 1), sample.mask.shape)[0]
            valid = sample.mask != np.iinfo(sample.mask.dtype).max
            for variant, values in zip(scorers, maps.numpy(), strict=True):
                scores[variant].append(values[valid])
            labels.append(np.isin(sample.mask[valid], unknown))
            task.advance()
    return _records(case, split, scores, np.concatenate(labels))


def _records(
    case: Case, split: str, scores: dict[Variant, list[NDArray[np.float32]]], unknown: NDArray[np.bool_]
) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for variant in list(scores):
        values = np.concatenate(scores.pop(variant))
        percent = {name: round(100 * value, 2) for name, value in separation(values, unknown)._asdict().items()}
        alarms = {"alarms": round(100 * float((values[~unknown] > ALARM).mean()), 2)}
        shares = {"unknown": round(100 * float(unknown.mean()), 2), "pixels": len(unknown)}
        about = {"case": case.name, "data": case.source, "held_out": list(case.held_out), "images": split}
        found.append(about | variant._asdict() | percent | alarms | shares)
    return found
