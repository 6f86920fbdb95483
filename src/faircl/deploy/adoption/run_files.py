"""Writing an adopted network as a run: whole or not at all."""

from __future__ import annotations

import json
import os
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from faircl.checksums import sha256
from faircl.config.run import RunConfig
from faircl.deploy.adoption.checks import check_output
from faircl.deploy.adoption.source import Source
from faircl.errors import UserError
from faircl.fairness.record import EvaluationRecord
from faircl.fairness.record_file import RECORD, save_record
from faircl.files import flush, writing
from faircl.methods.base import Method
from faircl.metrics import StepMetrics, average_over_steps, forgetting
from faircl.models.segmenter import Segmenter
from faircl.report.page import write_run_page
from faircl.runs.checkpoint import save_step
from faircl.runs.environment import environment
from faircl.runs.folder import RunFolder
from faircl.runs.reading import ADOPTED, CONFIG, ENVIRONMENT, SCENARIO
from faircl.scenario import Scenario


def write_run(
    out: Path,
    config: RunConfig,
    scenario: Scenario,
    network: Segmenter,
    method: Method,
    metrics: StepMetrics,
    counted: EvaluationRecord | None,
    about: dict[str, Any],
) -> None:
    """Write the files of a run with one finished step, beside its place, and move it there."""
    check_output(out)
    out = Path(os.path.abspath(out))
    part = out.with_name(f".{out.name}.part")

    def clean_up() -> None:
        shutil.rmtree(part, ignore_errors=True)

    def save(path: Path) -> None:
        save_step(path, network, method, scenario, 0)
        if counted is not None:
            save_record(counted, path / RECORD)

    clean_up()
    try:
        part.mkdir(parents=True)
    except OSError as error:
        raise UserError(f"Cannot make the output folder {out}: {error.strerror}; choose another with --out.") from None
    try:
        with writing(out, clean_up):
            folder = RunFolder(part)
            folder.write_text(CONFIG, config.to_yaml())
            folder.write_text(SCENARIO, json.dumps(scenario.to_json(), indent=1))
            folder.write_text(ENVIRONMENT, json.dumps(environment(), indent=1))
            folder.write_text(ADOPTED, json.dumps(about, indent=1, ensure_ascii=False))
            folder.write_step(0, save)
            folder.write_records([_record(metrics)])
            write_run_page(part)
            flush(part)
            os.replace(part, out)
            flush(out.parent)
    except BaseException:
        clean_up()
        raise


def source_facts(source: Source) -> dict[str, Any]:
    """Return where a network comes from: name, digest of its weights, library, date, version of this code."""
    path = source.path
    if path.is_dir():
        path = next(path / name for name in ("model.safetensors", "pytorch_model.bin") if (path / name).is_file())
    env = environment()
    return {
        "source": os.path.basename(os.path.abspath(source.path)),
        "found": source.found,
        "library": source.library,
        "weights": path.name,
        "weights_sha256": sha256(path),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "faircl": env["faircl"],
        "commit": env["commit"],
    }


def _record(metrics: StepMetrics) -> dict[str, Any]:
    """Return the line of metrics.jsonl; every score is null where no image was evaluated."""
    average = average_over_steps([metrics])
    return {
        "kind": "eval",
        **metrics.to_json(),
        **forgetting([metrics]).to_json(),
        "leaked": 0.0,
        "average_over_steps": None if average != average else average,
    }
