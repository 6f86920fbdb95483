"""Run folders with records and a gallery, as a trained run has them, made of random regions without any network."""

import json
from pathlib import Path

import numpy as np
import torch
import yaml
from PIL import Image

from faircl.data.masks import voc_palette, write_mask
from faircl.fairness.record import BINS, Confusions, EvaluationRecord, RecordedClass, Reliability
from faircl.fairness.record_file import RECORD, save_record
from faircl.metrics import average_over_steps, forgetting, summarise

AWKWARD = ("<script>alert(1)</script>", 'a "quoted", comma\'d name 🚲', "=SUM(A1:A9)")
WORDS = (
    "road",
    "building",
    "sky",
    "pavement",
    "tree",
    "car",
    "fence",
    "pedestrian",
    "column pole",
    "sign",
    "bicyclist",
)
WORDS += ("traffic light", "potted plant", "swimming pool, outdoor", "television receiver", "kitchen island", "bus")


IGNORED = -1


def names_of(count, awkward=True):
    """Background, names that a page must not take for code, and ordinary ones, of so many classes."""
    listed = ["background", *(AWKWARD if awkward else ()), *WORDS]
    return (listed + [f"{WORDS[k % len(WORDS)]} {k}" for k in range(len(listed), count)])[:count]


def learned_in(count, steps):
    """The step that learns each class: half of them the first, the others the later steps in turn."""
    first = count if steps == 1 else max(2, count // 2)
    later = np.array_split(np.arange(first, count), max(1, steps - 1))
    return [0] * first + [k + 1 for k, part in enumerate(later) for _ in part]


def make_report_run(
    folder: Path, classes=5, steps=3, images=8, size=(96, 64), *, records=True, gallery=True, awkward=True, seed=0
) -> Path:
    """Write a run of so many classes and steps, evaluated on so many images of (width, height), all in its gallery."""
    generator = np.random.default_rng(seed)
    names, learned = names_of(classes, awkward), learned_in(classes, steps)
    folder.mkdir(parents=True)
    scenes = [_scene(generator, classes, size) for _ in range(images)]
    ids = [f"city/{k:06d}_leftImg8bit" for k in range(images)]
    _write_about(folder, names, learned, steps, ids, seed)
    lines, done = [], []
    for step in range(steps):
        for i in range(0, 40, 4):
            terms = {"seg": 2 / (1 + i), "cluster": 0.3 * step + 0.01 * float(generator.random())}
            line = {"kind": "train", "step": step, "iteration": i, "iterations": 40, "lr": 0.01}
            lines.append(line | {"loss": sum(terms.values()), "terms": terms})
        known = sum(at <= step for at in learned)
        guesses = [_guess(generator, scene, learned, step) for scene in scenes]
        table = tuple(RecordedClass(k, names[k], learned[k], k == 0) for k in range(known))
        truths = [np.where(scene["mask"] < known, scene["mask"], 0) for scene in scenes]
        record = _record(table, ids, truths, guesses, step, generator)
        place = folder / "steps" / f"{step:02d}"
        place.mkdir(parents=True)
        if records:
            save_record(record, place / RECORD)
        counts = torch.from_numpy(record.confusion()[:, :known]).long()
        about = {"ids": list(range(known)), "names": names[:known], "learned_at": learned[:known]}
        done.append(summarise(counts, **about, step=step, background=True))
        extra = {"seconds": 1.5, "images_per_second": 12.25, "average_over_steps": average_over_steps(done)}
        lines.append({"kind": "eval"} | done[-1].to_json() | forgetting(done).to_json() | extra)
        if gallery:
            (folder / "gallery").mkdir(exist_ok=True)
            for k, guess in enumerate(guesses):
                write_mask(folder / "gallery" / f"{k}.step{step:02d}.png", _stored(guess, classes))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if gallery:
        _write_gallery(folder / "gallery", scenes, ids, names)
    return folder


def _write_about(folder, names, learned, steps, ids, seed):
    config = {"seed": seed, "data": {"name": "toy"}, "scenario": {"task": "5-3", "setting": "overlapped"}}
    (folder / "config.yaml").write_text(
        yaml.safe_dump(config | {"model": {"name": "tiny"}, "method": {"name": "fair"}})
    )
    (folder / "environment.json").write_text(json.dumps({"python": "3.11.9", "torch": "2.11.0"}))
    counts = (4e8 / (1 + np.arange(len(names))) ** 1.4).astype(int).tolist()
    scenario = {"task": "5-3", "setting": "overlapped", "background": True, "sha256": "c0ffee" * 4}
    scenario["classes"] = [
        {"id": k, "name": name, "step": learned[k], "pixels": counts[k]} for k, name in enumerate(names)
    ]
    scenario["steps"] = [
        {"classes": [k for k, at in enumerate(learned) if at == step and k], "train": ["a", "b"], "test": ids}
        for step in range(steps)
    ]
    scenario["colours"] = [f"#{bytes(colour).hex()}" for colour in voc_palette(len(names))]
    (folder / "scenario.json").write_text(json.dumps(scenario))


def _scene(generator, classes, size):
    """An image of regions of long-tailed classes: mask (H, W), photo (H, W, 3), and the region of every pixel."""
    width, height = size
    count = min(60, 10 + 2 * classes)
    seeds = generator.uniform((0, 0), (height, width), (count, 2)).astype(np.float32)
    y, x = np.mgrid[:height, :width].astype(np.float32)
    wobble = 4 * np.sin(x / 9) + 4 * np.cos(y / 7)
    best, region = np.full((height, width), np.inf, np.float32), np.zeros((height, width), np.int64)
    for k, (top, left) in enumerate(seeds):
        distance = (y - top + wobble) ** 2 + (x - left) ** 2
        closer = distance < best
        best, region = np.where(closer, distance, best), np.where(closer, k, region)
    weights = 1 / (1 + np.arange(classes)) ** 0.7
    kinds = generator.choice(classes, count, p=weights / weights.sum())
    shades = generator.integers(40, 220, (classes, 3))
    mask = kinds[region]
    photo = np.clip(shades[mask] + generator.normal(0, 9, (height, width, 3)), 0, 255).astype(np.uint8)
    mask[:2] = IGNORED
    return {"mask": mask, "photo": photo, "region": region, "kinds": kinds}


def _guess(generator, scene, learned, step):
    """Regions of classes known yet, some taken for others, the rarer and the older the more often, moved a bit."""
    at = np.array(learned)
    known = int((at <= step).sum())
    kinds = np.where(at[scene["kinds"]] <= step, scene["kinds"], 0)
    wrong = generator.random(len(kinds)) < 0.05 + 0.45 * kinds / len(at) + 0.06 * (step - at[kinds])
    near = np.clip(kinds + generator.integers(-2, 3, len(kinds)), 0, known - 1)
    kinds = np.where(wrong, np.where(generator.random(len(kinds)) < 0.4, 0, near), kinds)
    return np.roll(kinds[scene["region"]], generator.integers(-2, 3, 2), (0, 1))


def _record(table, ids, truths, guesses, step, generator):
    size = len(table)
    pairs, bins = [], []
    for k, (truth, guess) in enumerate(zip(truths, guesses, strict=True)):
        counted = truth != IGNORED
        truth, guess = truth[counted], guess[counted]
        keys, pixels = np.unique(truth * size + guess, return_counts=True)
        pairs.append(np.stack([np.full(len(keys), k), keys // size, keys % size, pixels]))
        sure = np.clip(generator.normal(0.75, 0.15, len(truth)), 0, 0.999)
        keys, at, pixels = np.unique(guess * BINS + (sure * BINS).astype(int), return_inverse=True, return_counts=True)
        correct, total = np.bincount(at, truth == guess).astype(int), np.bincount(at, sure)
        bins.append(np.stack([np.full(len(keys), k), keys // BINS, keys % BINS, pixels, correct, total]))
    entries, binned = np.concatenate(pairs, axis=1), np.concatenate(bins, axis=1)
    reliability = Reliability(*binned[:5].astype(np.int64), binned[5])
    return EvaluationRecord(table, tuple(ids), Confusions(*entries.astype(np.int64)), reliability, step)


def _stored(mask, classes):
    """The mask as a file holds it: 8 bits up to 254 classes, 16 above; ignored pixels have the largest value."""
    return mask.astype(np.uint8 if classes <= 254 else np.uint16)  # −1 becomes the largest value


def _write_gallery(folder, scenes, ids, names):
    why = ["worst image: mean IoU 12.0", f"worst class: {names[-1]}, IoU 1.0", "median image: mean IoU 40.0"]
    entries = []
    for k, scene in enumerate(scenes):
        Image.fromarray(scene["photo"]).save(folder / f"{k}.image.png", compress_level=1)
        write_mask(folder / f"{k}.truth.png", _stored(scene["mask"], len(names)))
        entries.append({"id": ids[k], "why": [why[k % 3], *([why[0]] if k % 3 == 1 else [])]})
    (folder / "gallery.json").write_text(json.dumps({"images": entries}))
