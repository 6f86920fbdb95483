"""Disturb training and check that nothing is lost: kills, simultaneous resumes, power cuts.

    python benchmarks/durability.py kills --times 10
    python benchmarks/durability.py pairs --times 40
    sudo python benchmarks/durability.py power-cuts --times 10
    python benchmarks/durability.py cost

A small run on the CPU is trained undisturbed first. Then

* ``kills`` sends SIGKILL at random moments, ``--times`` times, and resumes;
* ``pairs`` resumes a stopped run twice at the same time: one process must work, the other must leave with a sentence;
* ``power-cuts`` trains on a file system in a file, mounted without any spontaneous flushing, and copies that file at
  random moments: a copy holds what a disk holds when its power is cut. Each copy is mounted and resumed. Needs root.

Weights, method state and records of every resumed run must equal the undisturbed run's bit by bit, and no run may lose
more than ``train.checkpoint_minutes``.

``cost`` times checkpoints of DeepLabV3-ResNet101 on a GPU: at the default of one every five minutes they must take less
than 1 % of the training time. The run is also stopped and resumed.

Exits with 1 if a check fails.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

CHECKPOINT_SECONDS = 0.5
WRITING_SECONDS = 0.2
"""What writing a checkpoint may take: an update that was done meanwhile is not in it."""
SETTINGS = [
    *("data.images=24", "data.test_images=8", "data.size=32", "train.crop=32", "train.batch=8", "train.log_every=1"),
    *("model.width=8", "model.embedding=8", "eval.batch=4", "eval.examples=2"),
    *("method.period=5", f"train.checkpoint_minutes={CHECKPOINT_SECONDS / 60}"),
]


def start(*words: object) -> subprocess.Popen[str]:
    """Start ``faircl train``, single-threaded."""
    command = [sys.executable, "-m", "faircl", "train", *map(str, words)]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=env)


def begin(run: Path, epochs: int) -> subprocess.Popen[str]:
    """Start the run of this script."""
    flags = [word for setting in SETTINGS for word in ("--set", setting)]
    return start("demo", "--out", run, "--epochs", epochs, *flags)


def finish(process: subprocess.Popen[str]) -> None:
    """Wait for the end of a process that must succeed."""
    _, err = process.communicate()
    if process.returncode != 0:
        raise SystemExit(f"exit code {process.returncode}:\n{err}")


def result(run: Path) -> dict[str, object]:
    """Return what a finished run holds, without times: tensors and numbers of every step, all records."""
    found: dict[str, object] = {}
    for path in sorted((run / "steps").glob("*/m*")):
        found[str(path.relative_to(run))] = path.read_bytes()
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    found["records"] = [{key: value for key, value in line.items() if "second" not in key} for line in lines]
    return found


def training_time(run: Path) -> tuple[float, float]:
    """Return the seconds of all updates of a finished run, and of one of them."""
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    seconds = sum(record.get("seconds", 0.0) for record in records)
    return seconds, seconds / sum(record["kind"] == "train" for record in records)


def updates_done(run: Path) -> tuple[int, int]:
    """Return the step and the update of the last record: how far a killed run had come."""
    last = (0, 0)
    text = (run / "metrics.jsonl").read_text(errors="replace") if (run / "metrics.jsonl").exists() else ""
    for line in text.splitlines():
        try:
            record = json.loads(line)
        except ValueError:  # cut off
            break
        last = (record["step"], record.get("iteration", 0)) if record["kind"] == "train" else (record["step"] + 1, 0)
    return last


def updates_saved(run: Path) -> tuple[int, int]:
    """Return the step and the update that the newest checkpoint or finished step holds."""
    names = [path.name.split("-") for path in (run / "checkpoints").glob("[0-9]*")]
    within = [(int(step), int(update)) for step, update in names]
    return max([(len(list((run / "steps").glob("[0-9]*"))), 0), *within])


def half_written(run: Path) -> list[str]:
    """Return the files and folders that are being written."""
    return [str(path.relative_to(run)) for path in (*run.glob(".*.part"), *run.glob("*/.*.part"))]


def wait_until_training(run: Path, process: subprocess.Popen[str]) -> None:
    """Wait until a process that was started just now has trained or saved something."""
    before = updates_done(run)
    while updates_done(run) == before and process.poll() is None:
        time.sleep(0.01)


def kills(work: Path, times: int, epochs: int, seed: int) -> bool:
    """Kill a run at random moments and resume it."""
    whole, run, draw = work / "whole", work / "killed", random.Random(seed)
    started = time.monotonic()
    finish(begin(whole, epochs))
    seconds = time.monotonic() - started
    training, per_update = training_time(whole)
    print(f"undisturbed: {seconds:.1f} s, {training:.1f} s of it training, a checkpoint every {CHECKPOINT_SECONDS} s")
    process, lost, writing = begin(run, epochs), 0.0, 0
    for number in range(1, times + 1):
        wait_until_training(run, process)
        time.sleep(draw.random() * 0.8 * training / times)
        while number % 2 == 0 and not half_written(run) and process.poll() is None:
            time.sleep(0.0005)  # every other kill comes while a file or folder is being written
        time.sleep(draw.random() * 0.02)
        process.kill()
        process.communicate()
        done, saved, parts = updates_done(run), updates_saved(run), half_written(run)
        behind = (done[1] - saved[1]) * per_update if done[0] == saved[0] else 0.0
        lost, writing = max(lost, behind), writing + bool(parts)
        during = f"; while writing {', '.join(parts)}" if parts else ""
        print(f"kill {number:2}: after update {done[1]} of step {done[0]}; lost {max(behind, 0):.2f} s{during}")
        process = start("--resume", run) if (run / "config.yaml").exists() else begin(run, epochs)
    finish(process)
    equal = result(run) == result(whole)
    print(f"{times} kills, {writing} while writing: equal to the undisturbed run: {equal}; most lost: {lost:.2f} s")
    return equal and lost <= CHECKPOINT_SECONDS + WRITING_SECONDS


def pairs(work: Path, times: int, epochs: int, seed: int) -> bool:
    """Resume a stopped run twice at the same time."""
    whole, stopped = work / "whole", work / "stopped"
    finish(begin(whole, epochs))
    process = begin(stopped, epochs)
    while not list((stopped / "checkpoints").glob("[0-9]*")):
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    process.communicate()
    good = 0
    for number in range(1, times + 1):
        run = Path(shutil.copytree(stopped, work / f"pair-{number}"))
        both = [start("--resume", run) for _ in range(2)]
        errors = [one.communicate()[1] for one in both]
        codes = [one.returncode for one in both]
        sentence = " is training into " in "".join(errors)
        equal = result(run) == result(whole)
        # One may also begin once the other has finished, and then finds nothing left to do.
        fine = equal and ((sorted(codes) == [0, 2] and sentence) or codes == [0, 0])
        good += fine
        print(f"pair {number:2}: exit codes {codes}, {'one refused in a sentence' if sentence else ''}, equal: {equal}")
        if not fine:
            print("\n".join(errors))
        shutil.rmtree(run)
    print(f"{good} of {times} pairs: one works, the other leaves with a sentence; results equal the undisturbed run's")
    return good == times


@contextmanager
def mounted(image: Path, place: Path) -> Iterator[Path]:
    """Mount a file system in a file; its journal is committed only when something is flushed."""
    place.mkdir(exist_ok=True)
    subprocess.run(["mount", "-o", "loop,commit=3600", str(image), str(place)], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def power_cuts(work: Path, times: int, epochs: int, seed: int) -> bool:
    """Copy the file system of a running run at random moments; resume every copy."""
    whole, draw = work / "whole", random.Random(seed)
    started = time.monotonic()
    finish(begin(whole, epochs))
    seconds = time.monotonic() - started
    training, per_update = training_time(whole)
    image, moments = work / "disk.img", sorted(seconds - training * draw.uniform(-0.2, 1.2) for _ in range(times))
    subprocess.run(["truncate", "-s", "256M", str(image)], check=True)
    subprocess.run(["mkfs.ext4", "-q", str(image)], check=True)
    had = []
    with mounted(image, work / "disk") as disk:
        process, started = begin(disk / "run", epochs), time.monotonic()
        for number, moment in enumerate(moments):
            time.sleep(max(moment - (time.monotonic() - started), 0))
            process.send_signal(signal.SIGSTOP)  # the copy takes a moment, and must be of one
            subprocess.run(["cp", "--sparse=always", str(image), str(work / f"cut-{number}.img")], check=True)
            had.append(updates_done(disk / "run"))
            process.send_signal(signal.SIGCONT)
        finish(process)
    good = 0
    for number, (moment, done) in enumerate(zip(moments, had, strict=True), 1):
        copy = work / f"cut-{number - 1}.img"
        with mounted(copy, work / "disk") as disk:
            run = disk / "run"
            begun = (run / "config.yaml").exists()
            saved = updates_saved(run) if begun else (0, 0)
            finish(start("--resume", run) if begun else begin(run, epochs))
            equal = result(run) == result(whole)
        lost = (done[1] - saved[1]) * per_update if done[0] == saved[0] else 0.0
        fine = equal and lost <= CHECKPOINT_SECONDS + WRITING_SECONDS
        good += fine
        where = f"update {done[1]} of step {done[0]}, on the disk {saved[1]} of step {saved[0]}" if begun else "no run"
        print(f"cut {number:2} after {moment:4.1f} s: {where}; lost {max(lost, 0):.2f} s; equal after resume: {equal}")
        copy.unlink()
    print(f"{good} of {times} power cuts: resumed, equal to the undisturbed run, at most {CHECKPOINT_SECONDS} s lost")
    return good == times


def cost(work: Path, times: int, epochs: int, seed: int) -> bool:
    """Time checkpoints of a large network."""
    import faircl
    from faircl.config.schema import TrainConfig
    from faircl.engine.in_step_checkpoints import InStepCheckpoints

    settings = {"model": {"name": "deeplabv3", "backbone": "resnet101", "stride": 16, "weights": "none"}}
    settings |= {"data.images": 48, "data.test_images": 8, "data.size": 512, "train.crop": 512, "train.batch": 24}
    settings |= {"train.precision": "bf16", "train.cache": "gpu", "train.augment": "device", "train.epochs": epochs}
    settings |= {"train.later_epochs": 4, "eval.batch": 4}
    minutes = TrainConfig().checkpoint_minutes
    seconds: list[float] = []
    due, save = InStepCheckpoints.due, InStepCheckpoints.save

    def due_sometimes(self: InStepCheckpoints) -> bool:
        return due(self) or time.monotonic() - self._last > 2

    def timed_save(self: InStepCheckpoints, *given: Any) -> None:
        torch.cuda.synchronize()
        begun = time.monotonic()
        if len(seconds) == times:
            self.stop = signal.SIGTERM
        try:
            save(self, *given)
        finally:
            seconds.append(time.monotonic() - begun)

    InStepCheckpoints.due, InStepCheckpoints.save = due_sometimes, timed_save  # type: ignore[method-assign]
    try:
        faircl.train("demo", work / "run", settings)
    except KeyboardInterrupt as stop:
        print(stop)
    InStepCheckpoints.due, InStepCheckpoints.save = due, save  # type: ignore[method-assign]
    size = sum(path.stat().st_size for path in (work / "run/checkpoints").glob("*/*")) / 2
    run = faircl.resume(work / "run")
    speed = ", ".join(f"{images:.0f}" for images in run.images_per_second.values())
    slowest = max(seconds)
    share = slowest / (60 * minutes)
    mean = sum(seconds) / len(seconds)
    print(f"{torch.cuda.get_device_name()}; images/s by step: {speed}")
    print(f"{len(seconds)} checkpoints of {size / 1e9:.2f} GB took {mean:.2f} s each, {slowest:.2f} s at most")
    print(f"one every {minutes:g} minutes is {share:.2%} of the training time")
    return share < 0.01


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = {"kills": kills, "pairs": pairs, "power-cuts": power_cuts, "cost": cost}
    parser.add_argument("part", choices=list(parts))
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=200, help="of both steps; 3 updates each")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="durability-") as work:
        return 0 if parts[options.part](Path(work), options.times, options.epochs, options.seed) else 1


if __name__ == "__main__":
    sys.exit(main())
