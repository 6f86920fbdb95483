"""Ablation of FairCL's default and readings of the paper on the demo's scenes: one change at a time, several seeds.

    python benchmarks/readings.py --out runs/readings --jobs 2

Finished runs are read, not trained again. Prints a Markdown table: means over the seeds, and the standard deviation of
``all`` between them. One thread per run, so that the numbers do not depend on the number of cores.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

DEFAULT: dict[str, list[str]] = {
    "faircl": [],
    "faircl, without soft labels": ["method.unlabelled=assigned"],
    "faircl, without replay": ["method.lambda_replay=0"],
    "faircl, with L_cons": ["method.lambda_cons=1"],
}
"""Changes of the default."""

PAPER: dict[str, list[str]] = {
    "faircl-paper": [],
    "unlabelled: paper": ["method.unlabelled=paper"],
    "assign by prototype": ["method.assign=prototype"],
    "unlabelled: teacher": ["method.unlabelled=teacher"],
    "unlabelled: online": ["method.unlabelled=online"],
    "unlabelled: unbiased": ["method.unlabelled=unbiased"],
    "unlabelled: ignore": ["method.unlabelled=ignore"],
    "unlabelled: background": ["method.unlabelled=background"],
    "fairness: adjust": ["method.fairness=adjust"],
    "fairness: kl": ["method.fairness=kl"],
    "fairness: literal, λ 0.1": ["method.fairness=literal", "method.lambda_class=0.1"],
    "without L_class": ["method.lambda_class=0"],
    "without L_cluster": ["method.lambda_cluster=0"],
    "without L_cons": ["method.lambda_cons=0"],
    "L_cons literal": ["method.consistency=literal"],
    "λ_cluster 0.1": ["method.lambda_cluster=0.1"],
    "λ_cluster 1": ["method.lambda_cluster=1"],
    "reject 10 %": ["method.reject=0.1"],
    "cap on assigned pixels": ["method.cap_assigned=true"],
    "init from background": ["method.init=background"],
    "init random": ["method.init=random"],
    "embedding of the backbone": ["method.embedding=backbone"],
    "unit features, margin 1": ["method.normalise=true", "method.margin=1", "method.scale_margin=false"],
}
"""Readings of the paper: changes of faircl-paper."""

READINGS = DEFAULT | {name: ["method=faircl-paper", *settings] for name, settings in PAPER.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/readings"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time")
    parser.add_argument("--only", nargs="+", choices=list(READINGS), metavar="READING", help="some of the readings")
    options = parser.parse_args()
    names = options.only or list(READINGS)
    jobs = [(name, seed) for seed in options.seeds for name in names]
    with ThreadPoolExecutor(options.jobs) as pool:
        finals = dict(zip(jobs, pool.map(lambda job: run(options.out, *job), jobs), strict=True))
    print("| reading | old | new | all | ± | STD | rarest third |\n|---|---|---|---|---|---|---|")
    for name in names:
        print(row(name, [finals[name, seed] for seed in options.seeds]), flush=True)


def run(out: Path, name: str, seed: int) -> dict:
    """Train one reading and return its last step."""
    folder = out / f"{list(READINGS).index(name):02d}-{seed}"
    command = [sys.executable, "-m", "faircl", "train", "demo", "--json", "--out", str(folder)]
    command += ["--resume"] if (folder / "config.yaml").exists() else []
    for setting in (f"seed={seed}", "train.threads=1", "eval.examples=0", *READINGS[name]):
        command += ["--set", setting]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    if done.returncode != 0:
        sys.exit(f"{name}, seed {seed}: {done.stderr.strip().splitlines()[-1]}")
    return json.loads(done.stdout)["runs"][0]["steps"][-1]


def row(name: str, steps: list[dict]) -> str:
    columns = [[step["miou"][group] for step in steps] for group in ("old", "new", "all")]
    spread = statistics.pstdev(columns[2])
    columns += [[step[key] for step in steps] for key in ("std", "rarest_third")]
    old, new, every, std, rare = (f"{statistics.fmean(values):.1f}" for values in columns)
    return f"| {name} | {old} | {new} | {every} | {spread:.1f} | {std} | {rare} |"


if __name__ == "__main__":
    main()
