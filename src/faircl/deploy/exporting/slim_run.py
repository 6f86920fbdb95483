"""A run folder with one step's network alone, which faircl loads, evaluates and continues."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from faircl.checksums import write_checksums
from faircl.deploy.exporting.contract import Masks, Source
from faircl.engine.evaluate import channels_to_class_ids, predict
from faircl.engine.reevaluate import load_network
from faircl.runs.checkpoint import check_whole
from faircl.runs.folder import RunFolder
from faircl.runs.reading import CONFIG, ENVIRONMENT, METRICS, SCENARIO, STEP_FILES, evaluations


def write_slim_run(source: Source, path: Path) -> None:
    """Write the run as it was after the step: its settings, scenario, evaluations so far, network and method state.

    Networks of earlier steps, losses, examples and checkpoints are left out.
    """
    run = source.folder
    step = run.step_path(source.step)
    check_whole(step, STEP_FILES)
    copied = RunFolder(path).step_path(source.step)
    copied.mkdir(parents=True)
    for name in STEP_FILES:
        shutil.copy(step / name, copied)
    write_checksums(copied)
    for name in (CONFIG, SCENARIO, ENVIRONMENT):
        if (run.path / name).is_file():
            shutil.copy(run.path / name, path)
    # Joint training saves its only step as 0 and reports it as the task's last one, so that records are counted.
    kept = list(evaluations(run.records()).values())[: source.step + 1]
    (path / METRICS).write_text("".join(json.dumps(record) + "\n" for record in kept), encoding="utf-8")


def slim_run_masks(path: Path, source: Source) -> Masks:
    """Return a function that runs the network of the folder."""
    folder = RunFolder.open(path)
    network = load_network(folder, folder.config(), source.step).eval()
    scenario = folder.load_scenario()

    def run(images: NDArray[Any]) -> NDArray[Any]:
        channels = predict(network, torch.from_numpy(images))
        return np.stack([channels_to_class_ids(one, scenario) for one in channels.numpy()])

    return run
