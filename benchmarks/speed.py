"""Check the claimed speed on one GPU: loss, training step, data loading.

    python benchmarks/speed.py --out runs/speed

Runs ``faircl bench`` for every part, or reads the results that an earlier call left in the folder; prints tables and
every claim with its figures; exits with 1 if a claim fails. Baselines are timed in the same run as the code that is
compared with them. The limits hold for an H200 with 16 cores; batch 24 of 512×512, 151 classes, bf16. ``--part loss``
runs a single part.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

Rows = list[dict[str, Any]]
Claim = tuple[bool, str]

DEEPLAB, SEGFORMER = "{name: deeplabv3, backbone: resnet101, stride: 16}", "{name: segformer, variant: b3}"
CLASSES, SIZES = (
    (151, 21, 1000),
    (512, 256, 768, 1024),
)  # all classes at the first size, and vice versa
GIB = 2**30


def commands(out: Path, rounds: int, workers: int) -> dict[str, list[str]]:
    """Return the arguments of ``faircl bench`` for every part."""
    steps = ["--method", "faircl", "--iterations", "10", "--rounds", str(rounds), "--peer", "eager"]
    blocks = [*steps, "--set", "train.compile=true"]
    steps += ["--method", "plop"]
    sizes = [word for count in CLASSES for word in ("--classes", str(count))]
    sizes += [word for side in SIZES for word in ("--size", str(side))]
    plot = ["--stride", "16", "--rounds", str(rounds), "--no-exact", "--plot", str(out / "cost.png")]
    return {
        "loss": ["loss", "--rounds", str(2 * rounds)],
        "cost": ["loss", *sizes, *plot],
        "deeplab": ["methods", "--model", DEEPLAB, *steps, "--peer", "compiled"],
        "segformer": ["methods", "--model", SEGFORMER, *steps],
        "deeplab-compile": ["methods", "--model", DEEPLAB, *blocks],
        "segformer-compile": ["methods", "--model", SEGFORMER, *blocks],
        "input": ["input", "--workers", str(workers)],
        "evaluation": ["evaluation"],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/speed"))
    parser.add_argument("--part", action="append", choices=list(commands(Path(), 1, 1)), help="default: all")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of every timing")
    parser.add_argument("--workers", type=int, default=16, help="processes of the input side")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("These claims need a GPU, but torch sees none here.", file=sys.stderr)
        return 1
    options.out.mkdir(parents=True, exist_ok=True)
    passed = []
    for part, command in commands(options.out, options.rounds, options.workers).items():
        if options.part and part not in options.part:
            continue
        result = run_bench(options.out / f"{part}.json", command)
        if result is None:
            return 1
        print(f"\n## {part}: faircl bench {' '.join(command)}\n\n{hardware(result['environment'])}\n")
        print(markdown_table(result["rows"]))
        for holds, text in CLAIMS.get(part, no_claims)(result["rows"]):
            print(f"- {'holds' if holds else 'FAILS'}: {text}", flush=True)
            passed.append(holds)
    return 0 if all(passed) else 1


def run_bench(path: Path, command: list[str]) -> dict[str, Any] | None:
    """Run a benchmark and save its JSON, or read the saved one; print a message and return None if it fails."""
    if not path.exists():
        done = subprocess.run(
            [sys.executable, "-m", "faircl", "bench", *command, "--json"], stdout=subprocess.PIPE, text=True
        )
        if done.returncode:
            print(f"faircl bench {command[0]} has failed; see its message above.", file=sys.stderr)
            return None
        path.write_text(done.stdout, encoding="utf-8")
    result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return result


def hardware(environment: dict[str, Any]) -> str:
    parts = [environment["gpu"], environment["cpu"], f"{environment['cores']} cores", f"torch {environment['torch']}"]
    return ", ".join([*parts, f"commit {environment['commit'] or 'unknown'}"])


def markdown_table(rows: Rows) -> str:
    """Return the rows as a Markdown table, without columns that have the same value in all rows."""
    keys = [key for key in rows[0] if len({json.dumps(row[key]) for row in rows}) > 1]
    lines = [keys, ["---"] * len(keys), *([format_value(row[key]) for key in keys] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def format_value(value: object) -> str:
    if isinstance(value, list):
        return " to ".join(format_value(one) for one in value)
    return "–" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


# The claims


def no_claims(rows: Rows) -> Iterator[Claim]:
    yield from ()


def loss_claims(rows: Rows) -> Iterator[Claim]:
    for stride, factor in ((16, 40), (4, 8)):
        fused, plain = (find_row(rows, stride=stride, loss=loss) for loss in ("fused", "interpolate + cross_entropy"))
        ms = fused["milliseconds"], plain["milliseconds"]
        if None in ms:
            yield False, f"stride {stride}: not timed ({fused['note'] or plain['note']})"
            continue
        yield ms[0] <= ms[1] / factor, f"stride {stride}: {ms[0]:.2f} ms are at most 1/{factor} of {ms[1]:.1f} ms"
        for name, limit in (("loss_error", 1e-5), ("gradient_error_fp32", 1e-5), ("gradient_error", 2.5e-3)):
            yield fused[name] <= limit, f"stride {stride}: {name} {fused[name]:.1e} is at most {limit:g}"
        yield fused["repeatable"] is True, f"stride {stride}: the gradient repeats bit for bit"
        if stride == 16:
            extra = fused["extra_gib"]
            yield extra < 0.5, f"stride 16: {extra:.2f} GiB are less than 0.5"


def cost_claims(rows: Rows) -> Iterator[Claim]:
    """Memory of the fused loss: the gradient in bf16 and four float32 parts of it, and a few numbers per pixel."""
    for row in rows:
        if row["loss"] == "fused":
            if row["extra_gib"] is None:
                yield False, f"{row['classes']} classes, {row['size']}×{row['size']}: not timed ({row['note']})"
                continue
            pixels = row["batch"] * row["size"] ** 2
            logits = row["batch"] * row["classes"] * (-(-row["size"] // row["stride"])) ** 2
            limit = (18 * logits + 24 * pixels) / GIB
            used = f"{row['classes']} classes, {row['size']}×{row['size']}: {row['extra_gib']:.3f} GiB"
            yield row["extra_gib"] <= limit, f"{used} are at most 18 bytes per logit and 24 per pixel, {limit:.3f}"


def deeplab_claims(rows: Rows) -> Iterator[Claim]:
    for peer, factor in (("plain eager", 2.8), ("plain compiled", 1.6)):
        yield faster(rows, peer, factor)
    for peer in ("plain eager", "plain compiled"):
        yield within(rows, "peak_gib", peer, 0.6)
    yield from step_claims(rows)


def segformer_claims(rows: Rows) -> Iterator[Claim]:
    yield faster(rows, "plain eager", 1.8)
    yield from step_claims(rows)


def step_claims(rows: Rows) -> Iterator[Claim]:
    # Soft labels and replay have gradients of their own, which on SegFormer's large maps cost a few percent.
    for other, time, memory in (("finetune", 1.08, 1.08), ("plop", 0.78, 0.90)):
        yield within(rows, "milliseconds", other, time)
        yield within(rows, "peak_gib", other, memory)


def input_claims(rows: Rows) -> Iterator[Claim]:
    """Speed with resampling on the GPU, the setting for few cores; the text also gives the speed of the default."""
    speed, default = (find_row(rows, way=way)["crops_per_second"] for way in ("augment device", "decode"))
    text = f"augment device: {speed:.0f} crops per second from JPEGs are at least 2000 (by default {default:.0f})"
    yield speed >= 2000, text


CLAIMS: dict[str, Callable[[Rows], Iterator[Claim]]] = {
    "loss": loss_claims,
    "cost": cost_claims,
    "deeplab": deeplab_claims,
    "segformer": segformer_claims,
    "input": input_claims,
}


def find_row(rows: Rows, **wanted: object) -> dict[str, Any]:
    """Return the only row with these entries."""
    (row,) = (row for row in rows if all(row[key] == value for key, value in wanted.items()))
    return row


def faster(rows: Rows, peer: str, factor: float) -> Claim:
    own, other = (find_row(rows, method=method)["images_per_second"] for method in ("faircl", peer))
    return own >= factor * other, f"FairCL's {own:.1f} images/s are {own / other:.2f}, at least {factor} × {peer}'s"


def within(rows: Rows, key: str, other: str, factor: float) -> Claim:
    own, theirs = (find_row(rows, method=method)[key] for method in ("faircl", other))
    return own <= factor * theirs, f"FairCL's {key} {own:.2f} is {own / theirs:.3f}, at most {factor} × {other}'s"


if __name__ == "__main__":
    sys.exit(main())
