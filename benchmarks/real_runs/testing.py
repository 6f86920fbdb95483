"""Evaluation of finished runs on the test images, once: results are kept in test.jsonl."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from faircl.errors import UserError
from real_runs.results import Result, Results, evaluated, only
from real_runs.workers import Command, Workers

POLL_SECONDS = 0.1


def on_test_images(out: Path, chosen: Sequence[Result], roots: Mapping[str, Path], jobs: int) -> list[Result]:
    """Return the chosen runs with their evaluations on the test images.

    Those that were trained with them have them already; of the others, those not in test.jsonl are made now.
    """
    kept = Results(out / "test.jsonl")
    known = kept.runs()
    with_tests = only(chosen, images="test")
    waiting = [result for result in chosen if result["run"] not in known and result["images"] != "test"]
    running: list[tuple[Result, Path, Command]] = []
    with Workers() as workers, TemporaryDirectory() as place:
        while waiting or running:
            while waiting and len(running) < jobs:
                result = waiting.pop(0)
                printed = Path(place) / f"{result['run']}.json"
                running.append(
                    (result, printed, workers.start(_arguments(out, roots, result), printed, _errors(printed)))
                )
            time.sleep(POLL_SECONDS)
            for result, printed, _ in (ended := [one for one in running if one[2].poll() is not None]):
                kept.append(_tested(result, printed))
            running = [one for one in running if one not in ended]
    tested = {result["run"]: result for result in (*kept.read(), *with_tests)}
    return [tested[result["run"]] for result in chosen]


def _arguments(out: Path, roots: Mapping[str, Path], result: Result) -> list[str]:
    """Return the words after ``faircl`` that evaluate a run."""
    root = roots.get(result["benchmark"].partition("-")[0])
    place = [] if root is None else ["--root", str(root)]
    return ["eval", str(out / "runs" / result["run"]), "--images", "test", "--json", *place]


def _errors(printed: Path) -> Path:
    return printed.with_suffix(".errors")


def _tested(result: Result, printed: Path) -> Result:
    """Return a result with what its evaluation has printed."""
    try:
        steps = json.loads(printed.read_text(encoding="utf-8"))["runs"][0]["steps"]
    except ValueError:
        reason = _errors(printed).read_text(encoding="utf-8").strip().splitlines()[-1:]
        raise UserError(f"Run {result['run']} cannot be evaluated: {' '.join(reason)}") from None
    return {**result, **evaluated(steps)}
