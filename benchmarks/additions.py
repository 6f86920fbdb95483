"""Classes added one by one to a finished model, beside one training that knew all its steps beforehand.

    python benchmarks/additions.py --root data/ccp --weights mobilenet_v2.safetensors --out runs/additions

Both have the same first step and the same images at every later one. The training has a task of five steps; the
additions are four calls of ``faircl.add_classes`` on folders of their own, whose masks label the new class alone.
``--set`` changes settings of both, as in ``--set train.crop=128``.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sys
import time
from pathlib import Path

import numpy as np
from PIL import Image

import faircl
from faircl.data.masks import write_mask
from faircl.errors import UserError
from faircl.runs.environment import environment
from faircl.runs.versions import VersionChain

NEW = ("skirt", "jacket", "hat", "sunglasses")
LEARNED = 10.0
"""IoU in percent from which on a class counts as learned."""


def main(words: list[str] | None = None) -> int:
    options = _options(words)
    data = faircl.open_data("folder", options.root)
    new = options.classes.split(",")
    first = [data.classes.names[id] for id in data.classes.foreground if data.classes.names[id] not in new]
    settings = [f"data.root={options.root}", *options.settings]
    settings += [f"scenario.task={json.dumps([first, *([name] for name in new)], ensure_ascii=False)}"]
    if options.weights:
        settings.append(f"model.weights={options.weights}")
    try:
        known = faircl.train(options.recipe, options.out / "known", settings, resume=(options.out / "known").exists())
        added = options.out / "added"
        if not added.exists():
            copy_first_step(known.folder, added)
        if VersionChain.open(added).unfinished() is not None:
            faircl.add_classes(added, resume=True)
        seconds = []
        for step, name in list(enumerate(new, start=1))[len(faircl.versions(added)) :]:
            folder = write_images(data, known.scenario.steps[step].images, name, options.out / "images" / name)
            began = time.monotonic()
            faircl.add_classes(added, folder, classes=[name])
            seconds.append(round(time.monotonic() - began, 1))
        result = compare(known.folder, added, options.root)
    except UserError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2
    result |= {"new": new, "seconds_per_addition": seconds, "settings": options.settings, "environment": environment()}
    (options.out / "additions.json").write_text(json.dumps(result, indent=1), encoding="utf-8")
    print(table(result))
    return 0


def copy_first_step(run: Path, out: Path) -> None:
    """Copy a run as it was after its first step."""
    out.mkdir(parents=True)
    for name in ("config.yaml", "scenario.json", "environment.json"):
        shutil.copy(run / name, out / name)
    records = [line for line in (run / "metrics.jsonl").read_text().splitlines() if json.loads(line)["step"] == 0]
    (out / "metrics.jsonl").write_text("\n".join(records) + "\n")
    shutil.copytree(run / "steps" / "00", out / "steps" / "00")


def write_images(data: faircl.SegmentationData, ids: tuple[str, ...], name: str, out: Path) -> Path:
    """Write images with masks that label one class alone."""
    if out.exists():
        shutil.rmtree(out)
    for kind in ("images", "masks"):
        (out / kind / "train").mkdir(parents=True)
    (out / "classes.txt").write_text(f"background\n{name}\n", encoding="utf-8")
    label = data.classes.names.index(name)
    for id in ids:
        sample = data.read("train", id)
        mask = np.where(sample.mask == 255, 255, sample.mask == label).astype(np.uint8)
        Image.fromarray(sample.image).save(out / "images" / "train" / f"{id.replace('/', '-')}.png")
        write_mask(out / "masks" / "train" / f"{id.replace('/', '-')}.png", mask)
    return out


def compare(known: Path, added: Path, root: Path) -> dict[str, object]:
    """Evaluate both models on the test images; return the IoU of every class by both, and what differs."""
    before, after = (
        {one.name: one.iou for one in faircl.evaluate(run, step=step, data=root)[0].classes}
        for run, step in ((known, len(faircl.open_run(known).steps) - 1), (added, None))
    )
    both = [name for name in before if not math.isnan(before[name]) and name != "background"]
    means = {key: sum(found[name] for name in both) / len(both) for key, found in (("known", before), ("added", after))}
    learned = {name: after[name] - before[name] for name in both if max(before[name], after[name]) >= LEARNED}
    worst = min(learned, key=lambda name: learned[name])
    return {
        "known": before,
        "added": after,
        "mean": means,
        "difference": means["added"] - means["known"],
        "largest_loss": {"class": worst, "points": -learned[worst]},
        "largest_difference": max(map(abs, learned.values())),
    }


def table(result: dict[str, object]) -> str:
    known, added, mean = result["known"], result["added"], result["mean"]
    lines = ["| class | all steps known | added one by one | difference |", "|---|---|---|---|"]
    lines += [
        f"| {name} | {known[name]:.1f} | {added[name]:.1f} | {added[name] - known[name]:+.1f} |" for name in known
    ]
    lines.append(
        f"| mean without background | {mean['known']:.2f} | {mean['added']:.2f} | {result['difference']:+.2f} |"
    )
    return "\n".join(lines)


def _options(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--root", type=Path, required=True, help="data in the folder layout, with splits train and test"
    )
    parser.add_argument("--weights", type=Path, help="weights of the backbone")
    parser.add_argument("--out", type=Path, required=True, help="folder of both runs; an interrupted call goes on")
    parser.add_argument("--recipe", default="ccp-16-2")
    parser.add_argument("--classes", default=",".join(NEW), help="classes that are added, in order")
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE")
    return parser.parse_args(words)


if __name__ == "__main__":
    sys.exit(main())
