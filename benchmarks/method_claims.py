"""Every method on the built-in scenes in three steps, on three seeds.

    python benchmarks/method_claims.py --out runs/methods --jobs 2

Trains every recipe ``demo-steps…``, or reads its run if it is finished, several at a time on one thread each; prints
the table of ``faircl compare`` and every claim with its figures; exits with 1 if a claim fails.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from faircl.config.recipes import recipe_names

REFERENCES = ("finetune", "joint")
WITH_SEGFORMER = ("sats", "segformer-finetune", "segformer-joint")
HALF_OF_JOINT = ("mib", "plop", "rcil", "ssul", "faircl", "faircl-paper")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/methods"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time, one thread each")
    parser.add_argument("--only", nargs="*", help="methods; all by default")
    options = parser.parse_args()
    known = {recipe.removeprefix("demo-steps").removeprefix("-") or "faircl": recipe for recipe in recipes()}
    chosen = {name: recipe for name, recipe in known.items() if not options.only or name in options.only}
    todo = [(recipe, options.out / f"{name}-{seed}", seed) for seed in options.seeds for name, recipe in chosen.items()]
    todo.sort(key=lambda one: not any(word in one[0] for word in ("sats", "segformer", "rcil")))  # longest runs first
    with ThreadPoolExecutor(options.jobs) as pool:
        failed = [text for text in pool.map(lambda one: train(*one), todo) if text]
    print("\n".join(failed))
    if failed:
        return 1
    groups = [WITH_SEGFORMER, [name for name in chosen if name not in WITH_SEGFORMER]]
    holds = []
    for group in groups:
        names = [name for name in chosen if name in group]
        if names:
            holds += table(names, options)
    return 0 if all(holds) else 1


def recipes() -> list[str]:
    return [name for name in recipe_names() if name.startswith("demo-steps")]


def train(recipe: str, out: Path, seed: int) -> str:
    """Train a run unless it is finished; return the error message, or an empty string."""
    command = [sys.executable, "-m", "faircl", "train", recipe, "--out", str(out)]
    command += ["--resume"] if (out / "config.yaml").exists() else []
    settings = [f"seed={seed}", "train.threads=1", "train.accelerator=cpu"]
    done = subprocess.run(
        [*command, *(word for setting in settings for word in ("--set", setting))], capture_output=True, text=True
    )
    return "" if done.returncode == 0 else f"{out.name}: {done.stderr.strip()}"


def table(names: list[str], options: argparse.Namespace) -> list[bool]:
    """Print the table of some methods and the claims about them; return for each claim whether it holds."""
    runs = [f"{name}={options.out / f'{name}-{seed}'}" for name in names for seed in options.seeds]
    compare = [sys.executable, "-m", "faircl", "compare", *runs]
    print(subprocess.run(compare, capture_output=True, text=True, check=True).stdout)
    rows = json.loads(subprocess.run([*compare, "--json"], capture_output=True, text=True, check=True).stdout)["rows"]
    old = {row["label"]: row["mean"]["old"] for row in rows}
    claims = []
    prefix = "segformer-" if names[0] in WITH_SEGFORMER else ""
    for name in names:
        if name.removeprefix(prefix) in REFERENCES:
            continue
        if (lower := old.get(f"{prefix}finetune")) is not None:
            claims.append((f"{name}'s old {old[name]:.1f} is twice fine-tune's {lower:.1f}", old[name] >= 2 * lower))
        if name in HALF_OF_JOINT and (upper := old.get("joint")) is not None:
            claims.append((f"{name}'s old {old[name]:.1f} is half of joint's {upper:.1f}", old[name] >= 0.5 * upper))
    for text, holds in claims:
        print(f"{'ok  ' if holds else 'FAIL'} {text}")
    return [holds for _, holds in claims]


if __name__ == "__main__":
    sys.exit(main())
