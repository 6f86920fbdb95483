"""The life of a model: trained, handed on without its data, taught two more classes, checked, undone.

    python examples/life_of_a_model.py runs/life      # a few minutes on two cores; the folder must be new

Every command is printed before it runs, as it would be typed. The data are built-in street scenes: one folder that
labels eight classes, one that labels kiosks alone, one that labels cyclists alone, on different images, and one that
labels all ten, to check on.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

OLD = "road,building,tree,car,van,pedestrian,pavement,fence"


def main() -> None:
    """Run the example."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="a new folder")
    parser.add_argument("--epochs", type=float, default=16, help="passes of training")
    parser.add_argument("--images", type=int, default=200, help="training images of the first eight classes")
    options = parser.parse_args()
    out = options.out
    out.mkdir(parents=True)

    print("\n# Eight classes, learned in two steps.")
    faircl("data", "synth", "--out", out / "street", "--images", options.images, "--classes", OLD, "--seed", 1)
    small = ("--set", "train.crop=64", "--device", "cpu")
    train = ("train", "folder", "--root", out / "street", "--task", "5-3", "--out", out / "trained")
    faircl(*train, "--epochs", options.epochs, *small)

    print("\n# The model is handed on, and the data it was trained on are gone.")
    faircl("export", out / "trained", "--to", "huggingface", "--out", out / "model")
    shutil.rmtree(out / "street")
    shutil.rmtree(out / "trained")

    print("\n# Kiosks: new images, which label kiosks alone, and others to check on.")
    faircl("data", "synth", "--out", out / "kiosks", "--images", 60, "--classes", "kiosk", "--seed", 2)
    faircl("data", "synth", "--out", out / "checked", "--images", 1, "--seed", 3)
    add = ("--holdout", out / "checked", "--epochs", options.epochs / 2, "--device", "cpu", "--json")
    kiosks = added(faircl("add-classes", out / "model", "--data", out / "kiosks", "--out", out / "model-2", *add))

    print("\n# Cyclists: a limit that is too strict rejects the version; undone, nothing of it is left.")
    faircl("data", "synth", "--out", out / "cyclists", "--images", 60, "--classes", "cyclist", "--seed", 4)
    before = digests(out / "model-2")
    cyclists = ("add-classes", out / "model-2", "--data", out / "cyclists", *add)
    faircl(*cyclists, "--max-drop", 0, code=1)
    faircl("versions", "undo", out / "model-2")
    if digests(out / "model-2") != before:
        sys.exit("the undone version left its traces")
    last = added(faircl(*cyclists))

    print("\n# The model now.")
    faircl("versions", "list", out / "model-2")
    faircl("eval", out / "model-2", "--data", out / "checked")
    faircl("predict", out / "model-2", out / "checked" / "images" / "test", "--out", out / "predicted")
    print(f"\nold classes lost {kiosks['drop']:.1f} and {last['drop']:.1f} points on average, at most 3 were allowed")


def faircl(*words: object, code: int = 0) -> str:
    """Run a command; return what it printed. Leave if its exit code is not ``code``."""
    typed = ["faircl", *map(str, words)]
    print(f"\n$ {shlex.join(typed)}", flush=True)
    done = subprocess.run([sys.executable, "-m", *typed], stdout=subprocess.PIPE, text=True)
    print(done.stdout, end="", flush=True)
    if done.returncode != code:
        sys.exit(f"exit code {done.returncode}, expected {code}")
    return done.stdout


def added(printed: str) -> dict[str, float]:
    """Return the version that 'faircl add-classes --json' printed."""
    version: dict[str, float] = json.loads(printed)
    return version


def digests(folder: Path) -> dict[Path, str]:
    """Return the digest of every file of a folder, locks left out."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


if __name__ == "__main__":
    main()
