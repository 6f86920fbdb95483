"""Time of indexing 10,000 masks of 500×375, compared with decoding alone on the same cores.

Both use newly started worker processes that import NumPy and Pillow. Indexing reads and counts; the baselines read each
file and decode it to an array of ids, or only to a Pillow image. All files have been read once before, so the disk
does not matter. The second indexing reads the counts from the cache.

    python benchmarks/index_masks.py
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

from faircl.data.counting_pool import count_in_processes
from faircl.data.mask_coding import MaskCounts
from faircl.data.masks import write_mask
from faircl.data.raster_files import decode_raster
from faircl.readers.folder import FolderData

CLASSES, HEIGHT, WIDTH = 21, 375, 500


class DecodingData(FolderData):
    """A folder data set whose masks are decoded but not counted."""

    def count_mask(self, split: str, id: str, data: bytes) -> MaskCounts:
        """Decode to an array of ids."""
        return MaskCounts(np.array(np.asarray(decode_raster(data, self.root, "mask")).shape), 0, (0, 0))


class LoadingData(FolderData):
    """A folder data set whose masks are only loaded by Pillow."""

    def count_mask(self, split: str, id: str, data: bytes) -> MaskCounts:
        """Load a Pillow image."""
        return MaskCounts(np.array(decode_raster(data, self.root, "mask").size), 0, (0, 0))


def write_masks(root: Path, count: int, seed: int = 0) -> None:
    """Write palette PNGs of wavy regions, of about the file size of Pascal VOC's masks."""
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[:HEIGHT, :WIDTH]
    (root / "masks/train").mkdir(parents=True)
    for k in range(count):
        coarse = rng.integers(0, CLASSES, (6, 8), dtype=np.uint8)
        regions = np.asarray(Image.fromarray(coarse).resize((WIDTH, HEIGHT), Image.Resampling.NEAREST))
        y = (rows + 10 * np.sin(columns / 20 + k)).astype(int).clip(0, HEIGHT - 1)
        x = (columns + 10 * np.cos(rows / 17)).astype(int).clip(0, WIDTH - 1)
        write_mask(root / "masks/train" / f"{k:05d}.png", regions[y, x])
    names = ["background", *(f"class {k}" for k in range(1, CLASSES))]
    (root / "classes.txt").write_text("\n".join(names), encoding="utf-8")


def decode_seconds(kind: str, root: Path) -> float:
    """Return the seconds in which the worker processes read all masks with a baseline class."""
    import index_masks  # this file: classes of __main__ cannot be pickled for another process

    started = time.perf_counter()
    data = getattr(index_masks, kind)(root)
    done = count_in_processes(data, "train", data.ids("train"), (), lambda: None)
    assert done is not None
    assert len(done) == len(data.ids("train"))
    return time.perf_counter() - started


def index(root: Path, cache: Path) -> dict[str, float]:
    """Index as every command does, in a process of its own; return seconds and peak memory, its own and a worker's."""
    program = (
        "import json, resource, sys, time\n"
        "from faircl.readers.folder import FolderData\n"
        "from faircl.data.label_index import index_labels\n"
        "started = time.perf_counter()  # after the imports, as for the baselines\n"
        "index = index_labels(FolderData(sys.argv[1]), 'train')\n"
        "seconds = time.perf_counter() - started\n"
        "own, most = (resource.getrusage(who).ru_maxrss / 1024 for who in (resource.RUSAGE_SELF, "
        "resource.RUSAGE_CHILDREN))\n"
        "print(json.dumps({'seconds': seconds, 'own_mb': own, 'worker_mb': most, 'masks': len(index.ids), "
        "'pixels': int(index.pixels.sum()), 'torch': 'torch' in sys.modules}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(root)],
        env={**os.environ, "FAIRCL_CACHE": str(cache)},
        check=True,
        capture_output=True,
        text=True,
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--masks", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary) / "data"
        write_masks(root, options.masks)
        rows = []
        for _ in range(options.rounds):
            shutil.rmtree(Path(temporary) / "cache", ignore_errors=True)
            first = index(root, Path(temporary) / "cache")
            second = index(root, Path(temporary) / "cache")
            rows.append((first, second, decode_seconds("DecodingData", root), decode_seconds("LoadingData", root)))
        report(rows)


def report(rows: list[tuple[dict[str, float], dict[str, float], float, float]]) -> None:
    """Print the medians and the ratios."""
    first, second = (float(np.median([row[k]["seconds"] for row in rows])) for k in (0, 1))  # type: ignore[index]
    decode, load = (float(np.median([row[k] for row in rows])) for k in (2, 3))  # type: ignore[arg-type]
    cores = os.cpu_count() or 1
    memory = max(row[0]["own_mb"] + cores * row[0]["worker_mb"] for row in rows)
    print(f"{int(rows[0][0]['masks'])} masks of {WIDTH}x{HEIGHT}, {cores} cores, medians of {len(rows)} rounds")
    print(f"decoding to arrays  {decode:6.2f} s    (to Pillow pictures only {load:.2f} s)")
    print(f"indexing, first     {first:6.2f} s    {first / decode:.2f} × decoding ({first / load:.2f} × loading)")
    print(f"indexing, again     {second:6.2f} s")
    print(f"memory              {memory:6.0f} MB   (this process and {cores} workers at their peaks)")
    print(f"torch imported      {bool(rows[0][0]['torch'])}; peak of this script {peak_mb():.0f} MB")


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
