"""Run folders with records of every image, made of random counts; any names of classes, any benchmark."""

import json
from pathlib import Path

import numpy as np
import torch
import yaml
from PIL import Image

from faircl.data.masks import write_mask
from faircl.fairness.record import Confusions, EvaluationRecord, RecordedClass
from faircl.fairness.record_file import RECORD, save_record
from faircl.metrics import average_over_steps, forgetting, summarise

SCRIPT = "<script>alert(1)</script>"
MIXED = 'he said "no", twice; 🚗 & 犬'
FORMULA = "=1+1"
HOSTILE = (
    "background",
    SCRIPT,
    MIXED,
    FORMULA,
    "+2",
    "-3",
    "@SUM(1)",
    "\tTab",
    "\\input{x}",
    "50 % $5 #1_a^b~",
    "\x1b[31mred",
)
"""Names that are commands to a browser, LaTeX, a spreadsheet or a terminal."""


def make_recorded_run(
    folder: Path,
    names=("background", "road", "car", "van", "person", "pole"),
    learned=None,
    *,
    right=0.7,
    images=24,
    seed=0,
    method="fair",
    data="toy",
    task="3-2",
    model="tiny",
    setting="overlapped",
    records=True,
    pictures=0,
    size=24,
) -> Path:
    """Write a run; ``right`` is the share of every class's pixels predicted rightly, one number or one per class.

    The images and their truth are the same for all seeds; half of the classes are learned at step 1 by default.
    """
    count = len(names)
    learned = learned or tuple(int(k > count // 2) for k in range(count))
    truths = np.random.default_rng(99).integers(20, 200, (images, count)) // (1 + np.arange(count) // 3)
    shares = np.broadcast_to(np.asarray(right, float), (count,))
    generator = np.random.default_rng(seed + 1)
    folder.mkdir(parents=True)
    config = {"seed": seed, "data": {"name": data}, "scenario": {"task": task, "setting": setting}}
    config |= {"model": {"name": model}, "method": {"name": method}}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    last = max(learned)
    scenario = {"task": task, "setting": setting, "background": True, "sha256": "c0ffee", "labels_sha256": "same"}
    scenario["classes"] = [{"id": k, "name": n, "step": learned[k], "pixels": 9} for k, n in enumerate(names)]
    scenario["steps"] = [{"classes": [], "train": [], "test": []} for _ in range(last + 1)]
    (folder / "scenario.json").write_text(json.dumps(scenario))
    done, lines = [], []
    for step in range(last + 1):
        seen = [k for k in range(count) if learned[k] <= step]
        record = _record(truths[:, seen], shares[seen], generator, [names[k] for k in seen], seen, learned, step)
        counts = torch.from_numpy(record.confusion()[:, : len(seen)].astype(np.int64))
        done.append(
            summarise(
                counts, ids=seen, names=[names[k] for k in seen], learned_at=[learned[k] for k in seen], step=step,
                background=True,
            )
        )  # fmt: skip
        extra = {"seconds": 1.0, "images_per_second": 1.0, "average_over_steps": average_over_steps(done)}
        lines.append({"kind": "eval"} | done[-1].to_json() | forgetting(done).to_json() | extra)
        (folder / "steps" / f"{step:02d}" / "examples").mkdir(parents=True)
        if records:
            save_record(record, folder / "steps" / f"{step:02d}" / RECORD)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for k in range(pictures):
        _pictures(folder, k, size, count, done)
    return folder


def _record(truths, shares, generator, names, ids, learned, step):
    """Counts of every image: hits by a binomial draw, all misses to the next class."""
    images, count = truths.shape
    hits = generator.binomial(truths, shares)
    image, truth = (part.ravel() for part in np.indices(truths.shape))
    missed = (truth + 1) % count
    columns = [np.concatenate(pair) for pair in ((image, image), (truth, truth), (truth, missed))]
    pixels = np.concatenate([hits.ravel(), (truths - hits).ravel()])
    order = np.argsort(columns[0], kind="stable")
    kept = order[pixels[order] > 0]
    entries = Confusions(*(part[kept].astype(np.int64) for part in (*columns, pixels)))
    classes = tuple(RecordedClass(k, n, learned[k], k == 0) for k, n in zip(ids, names, strict=True))
    return EvaluationRecord(classes, tuple(f"image{k}" for k in range(images)), entries, step=step)


def _pictures(folder, k, size, count, done):
    (folder / "examples").mkdir(exist_ok=True)
    shade = np.random.default_rng(k).integers(0, 256, (size, size, 3), dtype=np.uint8)
    Image.fromarray(shade).save(folder / "examples" / f"{k}.image.png")
    mask = (np.indices((size, size)).sum(0) // 4 % count).astype(np.uint8)
    write_mask(folder / "examples" / f"{k}.truth.png", mask)
    for metrics in done:
        target = folder / "steps" / f"{metrics.step:02d}" / "examples" / f"{k}.png"
        write_mask(target, np.where(mask < len(metrics.classes), mask, 0).astype(np.uint8))
