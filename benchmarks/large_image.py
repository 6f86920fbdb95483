"""Segment one very large image in tiles, and say how long it takes and how much memory.

    faircl train demo --out runs/first
    python benchmarks/large_image.py runs/first --out runs/large

Makes a picture of 20,000 × 10,000 pixels (a scene of the demo, repeated, with noise) as a PNG, JPEG or TIFF file, runs
``faircl predict --tile`` on it as a process of its own, reading and writing included, and prints seconds, processor
seconds, the largest resident memory of that process, and whether time and memory are within their limits; exits with 1
if not.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from PIL import Image

from faircl.deploy.prediction.png_stripes import PngStripes
from faircl.readers.scenes import SceneData

MOST_SECONDS, MOST_GB = 300.0, 4.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="a run of the network small")
    parser.add_argument("--out", type=Path, default=Path("runs/large"))
    parser.add_argument("--kind", choices=["png", "jpg", "tif"], default="png")
    parser.add_argument("--width", type=int, default=20_000)
    parser.add_argument("--height", type=int, default=10_000)
    parser.add_argument("--tile", type=int, default=1024)
    parser.add_argument("options", nargs="*", help="further options of 'faircl predict', after --")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    picture, found = options.out / f"large.{options.kind}", options.out / "found"
    write_picture(picture, options.width, options.height)
    shutil.rmtree(found, ignore_errors=True)
    command = [sys.executable, "-m", "faircl", "predict", str(options.run), str(picture), "--out", str(found)]
    command += ["--tile", str(options.tile), "--json", *options.options]
    started = time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    seconds = time.perf_counter() - started
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    gb = used.ru_maxrss * 1024 / 1e9
    (entry,) = json.loads(done.stdout)["images"]
    assert (entry["width"], entry["height"]) == (options.width, options.height)
    ok = seconds <= MOST_SECONDS and gb <= MOST_GB
    sizes = {path.parent.name: path.stat().st_size / 1e6 for path in found.glob("*/*")}
    result = {
        "image": f"{options.width}x{options.height} {options.kind}",
        "megabytes": round(picture.stat().st_size / 1e6),
        "tile": options.tile,
        "seconds": round(seconds, 1),
        "processor_seconds": round(used.ru_utime + used.ru_stime, 1),
        "peak_gb": round(gb, 2),
        "written_megabytes": {name: round(size, 1) for name, size in sizes.items()},
        "within_limits": ok,
    }
    print(json.dumps(result, indent=1))
    return 0 if ok else 1


def write_picture(path: Path, width: int, height: int) -> None:
    """Write a scene repeated over the whole picture, with noise of a few grey values, unless the file is there."""
    if path.exists():
        return
    data, random = SceneData(1, 1, 512), np.random.default_rng(0)
    scene = data.read("train", data.ids("train")[0]).image
    repeated = np.tile(scene, (1, -(-width // scene.shape[1]), 1))[:, :width]
    image = np.empty((height, width, 3), np.uint8)
    for top in range(0, height, len(scene)):
        rows = image[top : top + len(scene)]
        noisy = repeated[: len(rows)] + random.integers(-4, 5, rows.shape, np.int16)
        rows[:] = noisy.clip(0, 255)
    if path.suffix == ".png":
        with open(path, "wb") as file:
            png = PngStripes(file, width, height)
            png.write(image)
            png.close()
    else:
        Image.fromarray(image).save(path, quality=90)


if __name__ == "__main__":
    sys.exit(main())
