"""Results of a trained step: its evaluation, its files, and the files of the run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from PIL import Image as Pillow

from faircl.data.masks import palette_of, write_mask
from faircl.engine.evaluate import evaluate, predict_masks
from faircl.engine.plan import Plan
from faircl.errors import UserError
from faircl.fairness.record import EvaluationRecord
from faircl.fairness.record_file import RECORD, save_record
from faircl.files import writing
from faircl.labels import Mask
from faircl.methods.base import Method
from faircl.metrics import average_over_steps, forgetting
from faircl.models.segmenter import Segmenter
from faircl.progress import Reporter
from faircl.report.page import write_run_page
from faircl.runs.checkpoint import save_step
from faircl.runs.folder import RunFolder
from faircl.runs.reading import Record, step_metrics
from faircl.scenario import CONVENTIONS


def check_finite(model: Segmenter, step: int) -> None:
    """Raise a UserError if a weight or buffer is not finite: such a network is not saved."""
    broken = [name for name, value in model.state_dict().items() if not value.isfinite().all()]
    if broken:
        raise UserError(
            f"The network is not finite after step {step}: {', '.join(broken[:3])}; lower optim.lr or set "
            "optim.clip. Finished steps are kept."
        )


def evaluate_step(
    plan: Plan, model: Segmenter, step: int, records: list[Record], reporter: Reporter
) -> tuple[Record, EvaluationRecord]:
    """Evaluate a step; return its line of metrics.jsonl and what was counted in every image.

    The line has forgetting and averages over the steps in ``records`` before it.
    """
    config = plan.config
    scenario, split = plan.evaluated
    metrics, counted = evaluate(
        model,
        plan.data,
        split,
        scenario,
        step,
        convention=CONVENTIONS[config.eval.convention],
        size=config.eval.size,
        batch=config.eval.batch,
        workers=config.train.workers,
        reporter=reporter,
        kind=config.eval.images,
    )
    history = [*step_metrics(records), metrics]
    record = {"kind": "eval", **metrics.to_json(), **forgetting(history).to_json()}
    record["leaked"] = scenario.steps[step].leaked
    return record | {"average_over_steps": average_over_steps(history)}, counted


def write_step(
    plan: Plan, model: Segmenter, method: Method, folder: RunFolder, step: int, counted: EvaluationRecord
) -> None:
    """Save a step: network, method state, its evaluation, the next replay memory, predictions for example images."""
    # Every step predicts the same images, those that step 0 is evaluated on, so that predictions can be compared.
    scenario, split = plan.evaluated
    ids = scenario.steps[0].test_images[: plan.config.eval.examples]
    _write_example_images(plan, folder, split, ids)
    examples = predict_masks(model, plan.data, split, ids, scenario)
    save = partial(_save, plan=plan, model=model, method=method, step=step, examples=examples, counted=counted)
    folder.write_step(step, save)


def write_results(folder: RunFolder, records: list[Record]) -> None:
    """Write metrics.jsonl and the report page of a run."""
    folder.write_records(records)
    write_run_page(folder.path)


def _write_example_images(plan: Plan, folder: RunFolder, split: str, ids: Sequence[str]) -> None:
    path = folder.path / "examples"
    with writing(path):
        path.mkdir(exist_ok=True)
        for k, id in enumerate(ids):
            sample = plan.data.read(split, id)
            Pillow.fromarray(sample.image).save(path / f"{k}.image.png")
            write_mask(path / f"{k}.truth.png", sample.mask, palette_of(plan.scenario.colours))


def _save(
    path: Path,
    plan: Plan,
    model: Segmenter,
    method: Method,
    step: int,
    examples: list[Mask],
    counted: EvaluationRecord,
) -> None:
    save_step(path, model, method, plan.scenario, step)
    save_record(counted, path / RECORD)
    if plan.config.memory.images and step + 1 < len(plan.scenario.steps):
        memory = {id: list(steps) for id, steps in plan.memories[step + 1].images.items()}
        (path / "memory.json").write_text(json.dumps(memory, indent=1), encoding="utf-8")
    (path / "examples").mkdir()
    for k, mask in enumerate(examples):
        write_mask(path / "examples" / f"{k}.png", mask, palette_of(plan.scenario.colours))
