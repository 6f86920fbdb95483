"""Evaluation of finished runs on the test images, once: results are kept in test.jsonl."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from faircl.errors import UserError
from real_runs.results import Result, Results, evaluated


def on_test_images(out: Path, chosen: Sequence[Result], roots: Mapping[str, Path], jobs: int) -> list[Result]:
    """Return the chosen runs with their evaluations on the test images; those not in test.jsonl are made now."""
    kept = Results(out / "test.jsonl")
    known = kept.runs()
    todo = [result for result in chosen if result["run"] not in known]
    with ThreadPoolExecutor(jobs) as pool:
        for result in pool.map(partial(_evaluate, out, roots), todo):
            kept.append(result)
    wanted = {result["run"] for result in chosen}
    return [result for result in kept.read() if result["run"] in wanted]


def _evaluate(out: Path, roots: Mapping[str, Path], result: Result) -> Result:
    command = [sys.executable, "-m", "faircl", "eval", str(out / "runs" / result["run"]), "--images", "test", "--json"]
    root = roots.get(result["benchmark"].partition("-")[0])
    command += [] if root is None else ["--root", str(root)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        raise UserError(f"Run {result['run']} cannot be evaluated: {done.stderr.strip().splitlines()[-1]}")
    return {**result, **evaluated(json.loads(done.stdout)["runs"][0]["steps"])}
