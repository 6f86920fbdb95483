"""Training a network that does not know a case's held-out classes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from faircl.errors import UserError
from faircl.progress import Reporter
from faircl.readers.write_folder import write_folder
from unknown_runs.cases import Case, open_data, training_settings
from unknown_runs.voided import VoidedData

RECIPES = {"scenes": "folder", "scenes-two-steps": "folder", "camvid": "camvid-6-5"}


def train(case: Case, out: Path, camvid: Path | None, weights: Path | None, seed: int, reporter: Reporter) -> Path:
    """Return the run of a case, trained unless it is there: OUT/runs/NAME, on a copy of the data in OUT/data/NAME."""
    run, root = out / "runs" / case.name, out / "data" / case.name
    data = open_data(case.source, camvid)
    if not root.exists():
        write_folder(VoidedData(data, case.held_out), ("train", "val"), root, reporter)
    settings = training_settings(case, data, root.resolve(), weights)
    if (run / "report.html").exists():
        return run
    flags = [word for setting in settings for word in ("--set", setting)]
    words = [RECIPES[case.source], "--out", str(run), "--seed", str(seed), *flags]
    if run.exists():  # stopped on its way
        words = ["--resume", str(run)]
    if subprocess.run([sys.executable, "-m", "faircl", "train", *words]).returncode != 0:
        raise UserError(f"Training of the case {case.name} has failed, as said above.")
    return run
