"""Weights of a run's step as the start of another run: backbone and decoder, without the classifier."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path

from faircl.checksums import CHECKSUMS, damaged_file
from faircl.errors import UserError
from faircl.models.segmenter import Segmenter
from faircl.models.weights import RESERVED, load_modules, read_weights

_WEIGHTS, _ABOUT = "model.safetensors", "model.json"
_CLASSIFIER = re.compile(r"classifier\.")


def load_run_step(network: Segmenter, weights: str, label: str) -> bool:
    """Load backbone and decoder of the step that ``weights`` names; False if it names no run and no step.

    ``label`` names the network in errors.
    """
    step = find_step(weights)
    if step is None:
        return False
    if damaged_file(step, (_WEIGHTS,)):
        raise UserError(
            f"{step / _WEIGHTS} is damaged: it does not have the sha256 in {step / CHECKSUMS}; restore it from a copy."
        )
    modules = {"backbone.": network.backbone, "decoder.": network.decoder}
    state = read_weights(str(step / _WEIGHTS))
    load_modules(modules, state, source=str(step), label=label, ignored=_CLASSIFIER)
    return True


def find_step(weights: str) -> Path | None:
    """Return the folder of a step: the one named, or the last finished one of a run; None if it is neither."""
    if weights in RESERVED:
        return None
    with suppress(OSError, RuntimeError):  # too long names, home folders of unknown users
        path = Path(weights).expanduser()
        if path.name == _WEIGHTS and path.is_file():
            path = path.parent
        if (path / _WEIGHTS).is_file() and (path / _ABOUT).is_file():
            return path
        if (path / "config.yaml").is_file() and not (path / _WEIGHTS).is_file():
            return _last_step(path)
    return None


def _last_step(run: Path) -> Path:
    """Return the last step whose evaluation is recorded: such a step is finished."""
    try:
        records = [
            json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines() if line
        ]
        evaluated = {int(record["step"]) for record in records if record["kind"] == "eval"}
    except (OSError, ValueError, KeyError, TypeError):
        evaluated = set()
    if not evaluated:
        raise UserError(f"The run {run} has no finished step whose weights could be taken; let it finish its first.")
    step = run / "steps" / f"{len(evaluated) - 1:02d}"  # joint training saves step 0 and evaluates it as the last
    if not (step / _WEIGHTS).is_file():
        raise UserError(
            f"{step / _WEIGHTS} is missing, though the run has evaluated that step: the run folder is damaged. Restore "
            "it from a copy, or name one of its steps: model.weights=RUN/steps/NN."
        )
    return step
