"""Check the claims of the demo on three seeds.

    python benchmarks/demo_claims.py --out runs/claims

Trains the demo's four runs on seeds 0, 1 and 2, or reads them if they are finished; fits a linear classifier of pixel
colours to the same scenes; prints the table and every claim with its figures; exits with 1 if a claim fails.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch

from faircl.metrics import ConfusionMatrix, iou
from faircl.readers.scenes import SceneData

NAMES = ("fine-tune", "FairCL", "FairCL without fairness", "joint")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/claims"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    options = parser.parse_args()
    colour = colour_classifier_miou()
    table, claims = [], []
    for seed in options.seeds:
        final = {run["name"]: run["steps"][-1] for run in demo(options.out / str(seed), seed)}
        table += [row(seed, name, final[name]) for name in NAMES]
        claims += [(seed, *claim) for claim in check(*(final[name] for name in NAMES), colour)]
    print("| seed | method | old | new | all | STD | rarest third | worst class |\n|---|---|---|---|---|---|---|---|")
    print("\n".join(table))
    for seed, text, holds in claims:
        print(f"{'ok  ' if holds else 'FAIL'} seed {seed}: {text}")
    return 0 if all(holds for *_, holds in claims) else 1


def demo(out: Path, seed: int) -> list[dict]:
    command = [sys.executable, "-m", "faircl", "demo", "--out", str(out), "--seed", str(seed), "--json"]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)["runs"]


def row(seed: int, name: str, step: dict) -> str:
    numbers = (*step["miou"].values(), step["std"], step["rarest_third"])
    shown = " | ".join(f"{number:.1f}" for number in numbers)
    return f"| {seed} | {name} | {shown} | {step['worst']['name']} {step['worst']['iou']:.1f} |"


def check(tune: dict, fair: dict, unfair: dict, joint: dict, colour: float) -> list[tuple[str, bool]]:
    a, t, u, j = (step["miou"]["all"] for step in (fair, tune, unfair, joint))
    std, unfair_std, rare, unfair_rare = fair["std"], unfair["std"], fair["rarest_third"], unfair["rarest_third"]
    return [
        (f"FairCL's all {a:.1f} is at least twice fine-tune's {t:.1f}", a >= 2 * t),
        (f"FairCL's all {a:.1f} is at least 0.8 of joint's {j:.1f}", a >= 0.8 * j),
        (f"with the fairness terms STD {std:.1f} is below {unfair_std:.1f}", std < unfair_std),
        (f"with the fairness terms the rarest third's {rare:.1f} is above {unfair_rare:.1f}", rare > unfair_rare),
        (f"with the fairness terms all {a:.1f} is at most a point below {u:.1f}", a >= u - 1),
        (f"a linear colour classifier's {colour:.1f} is below 0.4 of joint's {j:.1f}", colour < 0.4 * j),
    ]


def colour_classifier_miou(iterations: int = 300) -> float:
    """mIoU in percent of multinomial logistic regression on RGB, trained and tested on the demo's scenes."""
    data = SceneData(images=240, test_images=80, size=96, seed=0)
    classes = len(data.classes.names)
    images, labels = pixels(data, "train")
    chosen = torch.from_numpy(np.random.default_rng(0).choice(len(labels), 200_000, replace=False))
    mean, std = images.mean(0), images.std(0)
    linear = torch.nn.Linear(3, classes)
    optimizer = torch.optim.Adam(linear.parameters(), lr=0.1)
    inputs, targets = (images[chosen] - mean) / std, labels[chosen]
    for _ in range(iterations):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(linear(inputs), targets).backward()
        optimizer.step()
    images, labels = pixels(data, "test")
    confusion = ConfusionMatrix(classes)
    confusion.update(linear((images - mean) / std).argmax(1), labels)
    return float(100 * iou(confusion.counts).nanmean())


def pixels(data: SceneData, split: str) -> tuple[torch.Tensor, torch.Tensor]:
    samples = [data.read(split, id) for id in data.ids(split)]
    images = np.concatenate([sample.image.reshape(-1, 3) for sample in samples])
    labels = np.concatenate([sample.mask.ravel() for sample in samples])
    return torch.from_numpy(images).float() / 255, torch.from_numpy(labels).long()


if __name__ == "__main__":
    sys.exit(main())
