"""A run folder as the engine writes it, made of random confusion matrices and tiny pictures."""

import json
from pathlib import Path

import numpy as np
import torch
import yaml
from PIL import Image

from faircl.data.masks import write_mask
from faircl.metrics import average_over_steps, forgetting, summarise

NASTY = "<b>&"


def class_names(num_classes):
    common = ["background", "road", NASTY, "cat $x$", "traffic light", "pole"]
    return (common + [f"class {k}" for k in range(len(common), num_classes)])[:num_classes]


def random_counts(num_classes, rng):
    """Long-tailed class sizes, rarer classes missed more often; half the misses go to the background."""
    size = (200_000 / (1 + np.arange(num_classes)) ** 1.3).astype(int)
    counts = np.zeros((num_classes, num_classes), dtype=np.int64)
    for c, n in enumerate(size):
        missed = int(n * min(0.9, 0.05 + 0.6 * (c / num_classes) + 0.2 * rng.random()))
        counts[c, c] += n - missed
        counts[c, 0] += missed - missed // 2
        counts[c, (c + 1) % num_classes] += missed // 2
    return torch.from_numpy(counts)


def make_run(
    folder: Path, learned=(0, 0, 0, 1, 1, 2), *, joint=False, examples=2, seed=0, method="fair", size=32, iterations=40
) -> Path:
    rng = np.random.default_rng(seed)
    names, last = class_names(len(learned)), max(learned)
    folder.mkdir(parents=True)
    config = {"seed": seed, "data": {"name": "toy"}, "scenario": {"task": "2-2-1", "setting": "overlapped"}}
    config |= {"model": {"name": "tiny"}, "method": {"name": method, "note": NASTY}}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    (folder / "environment.json").write_text(json.dumps({"python": "3.11.9", "torch": "2.11.0"}))
    scenario = {"task": "2-2-1", "setting": "overlapped", "background": True, "sha256": "c0ffee" * 4}
    scenario["classes"] = [{"id": k, "name": n, "step": learned[k], "pixels": 1000 + k} for k, n in enumerate(names)]
    scenario["steps"] = [
        {"classes": [k for k, s in enumerate(learned) if s == t and k], "train": ["a", "b"], "test": ["c"]}
        for t in range(last + 1)
    ]
    (folder / "scenario.json").write_text(json.dumps(scenario))
    lines, done = [], []
    for step in [last] if joint else range(last + 1):
        for i in range(0, iterations, 4):
            terms = {"seg": 2 / (1 + i), "cluster": 0.3 * step + 0.01 * rng.random()}
            line = {"kind": "train", "step": step, "iteration": i, "iterations": iterations, "lr": 0.01}
            lines.append(line | {"loss": sum(terms.values()), "terms": terms})
        seen = [k for k, s in enumerate(learned) if s <= step]
        counts = random_counts(len(seen), rng)
        done.append(
            summarise(
                counts, ids=seen, names=[names[k] for k in seen], learned_at=[learned[k] for k in seen], step=step,
                background=True,
            )
        )  # fmt: skip
        extra = {"seconds": 1.5, "images_per_second": 12.25, "average_over_steps": average_over_steps(done)}
        lines.append({"kind": "eval"} | done[-1].to_json() | forgetting(done).to_json() | extra)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for k in range(examples):
        (folder / "examples").mkdir(exist_ok=True)
        shade = np.random.default_rng(k).integers(0, 256, (size, size, 3), dtype=np.uint8)
        Image.fromarray(shade).save(folder / "examples" / f"{k}.image.png")
        mask = (np.indices((size, size)).sum(0) // 6 % len(names)).astype(np.uint8)
        mask[:3] = 255
        write_mask(folder / "examples" / f"{k}.truth.png", mask)
        for metrics in done:
            target = folder / "steps" / f"{metrics.step:02d}" / "examples"
            target.mkdir(parents=True, exist_ok=True)
            write_mask(target / f"{k}.png", np.where(mask < len(metrics.classes), mask, 0).astype(np.uint8))
    return folder
