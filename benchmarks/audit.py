"""Time `faircl audit` on many masks beside decoding them alone, and measure its memory.

    python benchmarks/audit.py                       # 2,000 pairs of 1024×512 with 19 classes, two cores
    python benchmarks/audit.py --images 200 --rounds 5 --most 1.5 --most-mb 1000

Writes street-like label masks and predictions with wrong borders and wrong regions as 8-bit PNGs into a temporary
folder. Decoding is what any audit must do: Pillow decodes all files of both folders into arrays, in one thread per
core. The audit is the whole command, from the start of Python to the JSON, as a process of its own; its memory is the
most that the process held (resident set). Both take turns, round by round; the best round of each counts, which other
work on the machine disturbs least. ``--clock cpu`` counts processor time instead, of all threads together: that
compares the work of both on a machine that is busy with something else. Prints the table, then JSON; exits with 1 where
the audit takes more than --most times the decoding or more than --most-mb megabytes.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from PIL import Image

from faircl.tables import Column, Table

SITES = 160
"""Regions of a mask, each nearest to its own point."""
DRAWN = 64
"""Pairs that are drawn; further ones are copies of their files."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--height", type=int, default=512)
    parser.add_argument("--classes", type=int, default=19)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall")
    parser.add_argument("--most", type=float, default=1.5, help="most time of the audit over that of decoding")
    parser.add_argument("--most-mb", type=float, default=1000, help="most megabytes of the audit")
    options = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.cores])
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write_masks(root, options)
        decoding, audits, memory, miou = [], [], [], 0.0
        for _ in range(options.rounds):
            decoding.append(decode_all(root, options))
            seconds, megabytes, miou = audit(root, options.clock)
            audits.append(seconds)
            memory.append(megabytes)
    ratio, peak = min(audits) / min(decoding), max(memory)
    columns = [Column("images"), Column("decoding, s", 2), Column("audit, s", 2), Column("ratio", 2), Column("MB", 0)]
    print(Table(columns, [[options.images, min(decoding), min(audits), ratio, peak]]).text("markdown"))
    print(
        json.dumps(
            {
                "images": options.images,
                "size": [options.width, options.height],
                "classes": options.classes,
                "cores": options.cores,
                "clock": options.clock,
                "ratio": ratio,
                "peak_mb": peak,
                "miou": miou,
                "seconds": {"decoding": decoding, "audit": audits},
            },
            indent=1,
        )
    )
    return 0 if ratio <= options.most and peak <= options.most_mb else 1


def write_masks(root: Path, options: argparse.Namespace) -> None:
    for name in ("labels", "predictions"):
        (root / name).mkdir()
    (root / "classes.txt").write_text("\n".join(f"class {k}" for k in range(options.classes)), encoding="utf-8")
    with ThreadPoolExecutor(options.cores) as pool:
        list(pool.map(lambda number: _write_pair(root, number, options), range(min(DRAWN, options.images))))
    for number in range(DRAWN, options.images):
        for name in ("labels", "predictions"):
            shutil.copyfile(root / name / f"{number % DRAWN:05}.png", root / name / f"{number:05}.png")


def _write_pair(root: Path, number: int, options: argparse.Namespace) -> None:
    """Write a label, and a prediction whose borders differ and of whose regions a tenth have another class."""
    random = np.random.default_rng(number)
    share = 1 / np.arange(1, options.classes + 1)
    sites = random.choice(options.classes, SITES, p=share / share.sum()).astype(np.uint8)
    guesses = np.where(random.random(SITES) < 0.1, random.integers(0, options.classes, SITES), sites).astype(np.uint8)
    shape = options.height // 4, options.width // 4
    places = random.random((SITES, 2)) * shape
    grid = np.stack(np.meshgrid(np.arange(shape[0]), np.arange(shape[1]), indexing="ij"), -1)[:, :, None]
    nearest = np.empty(shape, np.int64)
    moved = np.empty(shape, np.int64)
    for row in range(shape[0]):
        nearest[row] = ((grid[row] - places) ** 2).sum(-1).argmin(-1)
        moved[row] = ((grid[row] - places - random.normal(0, 0.5, (SITES, 2))) ** 2).sum(-1).argmin(-1)
    for name, values in (("labels", sites[nearest]), ("predictions", guesses[moved])):
        image = Image.fromarray(values).resize((options.width, options.height), Image.Resampling.NEAREST)
        image.save(root / name / f"{number:05}.png")


def decode_all(root: Path, options: argparse.Namespace) -> float:
    """Return the seconds that Pillow takes to decode all masks into arrays, in one thread per core."""

    def decode(path: Path) -> int:
        return int(np.asarray(Image.open(path)).size)

    files = [path for name in ("labels", "predictions") for path in sorted((root / name).iterdir())]
    clock = time.perf_counter if options.clock == "wall" else time.process_time
    started = clock()
    with ThreadPoolExecutor(options.cores) as pool:
        list(pool.map(decode, files))
    return clock() - started


def audit(root: Path, clock: str) -> tuple[float, float, float]:
    """Return the seconds and megabytes of the command, and the mean IoU that it found."""
    command = [sys.executable, "-m", "faircl", "audit", "--json"]
    command += [part for name in ("labels", "predictions") for part in (f"--{name}", str(root / name))]
    command += ["--classes", str(root / "classes.txt")]
    started = time.perf_counter()
    with open(root / "audit.json", "wb") as found:
        process = subprocess.Popen(command, stdout=found)
        _, status, used = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - started if clock == "wall" else used.ru_utime + used.ru_stime
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"the audit failed with exit code {process.returncode}")
    kilobytes = used.ru_maxrss / (1024 if sys.platform == "darwin" else 1)
    return seconds, kilobytes * 1024 / 1e6, json.loads((root / "audit.json").read_text(encoding="utf-8"))["miou"]


if __name__ == "__main__":
    sys.exit(main())
