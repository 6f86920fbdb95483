"""Two steps on CamVid with pretrained networks: fine-tuning, FairCL and joint training.

    python benchmarks/camvid.py --root data/camvid --weights weights --out runs/camvid --jobs 3

``--root`` is CamVid in its 11-class form as a folder data set (images/, masks/, classes.txt with background first);
``--weights`` a folder with resnet50_imagenet.safetensors (a v1 ResNet: stride on the first 1×1) and
mobilenet_v2_imagenet.safetensors, with torchvision's parameter names. The networks are DeepLabV3+; six classes are
learned first, then five; joint training has the epochs of both steps together. No setting was tuned on these results.
Finished runs are read, not trained again. Seconds and images per second are those of training alone, with ``--jobs``
runs at a time.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

TASK = "[[sky, building, pole, road, pavement, tree], [sign, fence, car, pedestrian, bicyclist]]"
NETWORKS = {"mobilenet_v2": "v1.5", "resnet50": "v1"}
METHODS = ("finetune", "faircl", "joint")
SETTINGS = (
    f"scenario.task={TASK}",
    "optim.lr=0.02",
    "optim.later_lr=0.01",
    "train.crop=320",
    "train.scale=[0.7, 1.6]",
    "train.batch=16",
    "train.precision=bf16",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("runs/camvid"))
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=float, nargs=2, default=(40, 20), help="of the first and the later step")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change a setting of all runs")
    options = parser.parse_args()
    jobs = [(network, method) for network in NETWORKS for method in METHODS]
    with ThreadPoolExecutor(options.jobs) as pool:
        runs = list(pool.map(lambda job: run(options, *job), jobs))
    print("| network | method | old | new | all | STD | rarest third | worst class | s per step | images/s |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for (network, method), steps in zip(jobs, runs, strict=True):
        print(row(network, method, steps))


def run(options: argparse.Namespace, network: str, method: str) -> list[dict[str, Any]]:
    first, later = options.epochs
    model = {
        "name": "deeplabv3plus",
        "backbone": network,
        "block": NETWORKS[network],
        "weights": str((options.weights / f"{network}_imagenet.safetensors").resolve()),
    }
    settings = [
        *SETTINGS,
        f"data.root={options.root}",
        f"model={json.dumps(model)}",
        f"method={method}",
        f"train.epochs={first + later if method == 'joint' else first}",
        f"train.later_epochs={later}",
        f"seed={options.seed}",
        *options.set,
    ]
    out = options.out / f"{network}-{method}-{options.seed}"
    command = [sys.executable, "-m", "faircl", "train", "folder", "--out", str(out), "--json"]
    command += ["--resume"] if (out / "config.yaml").exists() else []
    command += [part for setting in settings for part in ("--set", setting)]
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        sys.exit(f"{network} {method}: {done.stderr.strip()}")
    steps: list[dict[str, Any]] = json.loads(done.stdout)["runs"][0]["steps"]
    return steps


def row(network: str, method: str, steps: list[dict[str, Any]]) -> str:
    last = steps[-1]
    numbers = [*last["miou"].values(), last["std"], last["rarest_third"]]
    shown = ["–" if number is None else f"{number:.1f}" for number in numbers]
    seconds = " + ".join(f"{step['seconds']:.0f}" for step in steps)
    images = sum(step["images_per_second"] * step["seconds"] for step in steps)
    speed = images / sum(step["seconds"] for step in steps)
    worst = f"{last['worst']['name']} {last['worst']['iou']:.1f}"
    return f"| {network} | {method} | {' | '.join(shown)} | {worst} | {seconds} | {speed:.0f} |"


if __name__ == "__main__":
    main()
