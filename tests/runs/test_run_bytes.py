"""Same seed, same bytes: whatever the workers, and wherever a run was stopped and resumed."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from grids import grid
from run_files import records, states

from faircl.errors import UserError

READING = [f"{what} ({split})" for what in ("counting classes", "digests of images") for split in ("train", "test")]
"""Tasks of a run before it trains."""


def copy(run, to: Path) -> Path:
    return Path(shutil.copytree(run.path, to))


def keep_records(path: Path, steps: int) -> None:
    lines = (path / "metrics.jsonl").read_text().splitlines(keepends=True)
    (path / "metrics.jsonl").write_text("".join(line for line in lines if json.loads(line)["step"] < steps))


def assert_same_run(found, expected) -> None:
    assert states(found) == states(expected)
    assert records(found) == records(expected)
    for file in ("metrics.csv", "scenario.json", "config.yaml", "steps/01/examples/0.png", "steps/01/model.json"):
        assert (found.path / file).read_bytes() == (expected.path / file).read_bytes()


@grid("method", ["faircl", "{name: faircl-paper, reject: 0.1, assign: prototype}"])
def test_workers_do_not_change_a_single_byte(method, tiny_train, tmp_path):
    noisy = ("model.dropout=0.2", "train.jitter=0.3", f"method={method}")
    alone = tiny_train(tmp_path / "a", *noisy, "train.workers=0")
    helped = tiny_train(tmp_path / "b", *noisy, "train.workers=2")
    assert states(alone) == states(helped)
    assert records(alone) == records(helped)


def test_a_run_repeats_whatever_happened_before_in_the_process(tiny_run, tiny_train, tmp_path):
    torch.manual_seed(123)
    torch.rand(7)
    assert_same_run(tiny_train(tmp_path / "again"), tiny_run)


def test_another_seed_gives_another_run_of_the_same_scenario(tiny_run, tiny_train, tmp_path):
    other = tiny_train(tmp_path / "other", "seed=1")
    assert all(a != b for a, b in zip(states(other).values(), states(tiny_run).values(), strict=True))
    assert other.scenario() == tiny_run.scenario()


@grid(
    "stop_at",
    ["step 0 train", "step 0 evaluate", "step 1 scan", "step 1 train", "step 1 evaluate"],
    quick=lambda stop_at: stop_at == "step 1 train",
)
def test_resumed_after_an_interruption_equals_uninterrupted(stop_at, tiny_run, tiny_train, silent, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        tiny_train(tmp_path / "run", reporter=silent(stop_at))
    again = silent()
    assert_same_run(tiny_train(tmp_path / "run", resume=True, reporter=again), tiny_run)
    trained = [task for task in again.tasks if task.endswith("train")]
    assert trained == ["step 0 train", "step 1 train"][int(stop_at[5]) :]  # finished steps are not trained again


def test_killed_while_writing_a_step(tiny_run, tiny_train, tmp_path):
    path = copy(tiny_run, tmp_path / "run")
    (path / "steps/01").rename(path / "steps/.01.part")
    (path / "steps/.01.part/model.safetensors").write_bytes(b"half")
    (path / ".metrics.jsonl.part").write_text("half")
    keep_records(path, 1)
    found = tiny_train(path, resume=True)
    assert_same_run(found, tiny_run)
    assert not list(path.glob("steps/.*"))


@grid("step", [0, 1], quick=lambda step: step == 1)
def test_killed_between_a_steps_model_and_its_records(step, tiny_run, tiny_train, tmp_path):
    path = copy(tiny_run, tmp_path / "run")
    keep_records(path, step)
    if step == 0:
        shutil.rmtree(path / "steps/01")
        (path / "metrics.jsonl").unlink()
    assert_same_run(tiny_train(path, resume=True), tiny_run)


@pytest.mark.slow
def test_killed_before_the_first_step(tiny_run, tiny_train, tmp_path):
    path = copy(tiny_run, tmp_path / "run")
    for left in path.iterdir():
        if left.name not in ("config.yaml",):
            shutil.rmtree(left) if left.is_dir() else left.unlink()
    assert_same_run(tiny_train(path, resume=True), tiny_run)


def test_a_finished_run_is_not_trained_again(tiny_run, tiny_train, silent, tmp_path):
    path = copy(tiny_run, tmp_path / "run")
    before = {file: file.stat().st_mtime_ns for file in path.glob("steps/*/*.safetensors")}
    reporter = silent()
    assert_same_run(tiny_train(path, resume=True, reporter=reporter), tiny_run)
    assert reporter.tasks == READING
    assert {file: file.stat().st_mtime_ns for file in before} == before


def test_a_finished_joint_run_is_not_trained_again(tiny_train, silent, tmp_path):
    first = tiny_train(tmp_path / "run", recipe="demo-joint")
    lines = records(first)
    reporter = silent()
    again = tiny_train(tmp_path / "run", recipe="demo-joint", resume=True, reporter=reporter)
    assert reporter.tasks == READING
    assert records(again) == lines
    assert again.finished_steps() == 1


@pytest.mark.slow
def test_records_of_three_steps_keep_their_order_when_resumed(tiny_train, silent, tmp_path):
    task = ("scenario.task=6-2-2", "method.name=finetune", "train.later_epochs=0.4", "train.batch=6")
    whole = tiny_train(tmp_path / "whole", *task)
    with pytest.raises(KeyboardInterrupt):
        tiny_train(tmp_path / "run", *task, reporter=silent("step 2 train"))
    assert records(tiny_train(tmp_path / "run", *task, resume=True)) == records(whole)


def test_speed_settings_may_change_on_resume_and_others_may_not(tiny_run, tiny_train, tmp_path):
    path = copy(tiny_run, tmp_path / "run")
    shutil.rmtree(path / "steps/01")
    keep_records(path, 1)
    with pytest.raises(UserError, match="was begun with"):
        tiny_train(path, "optim.lr=0.01", resume=True)
    assert states(tiny_train(path, "train.workers=1", resume=True)) == states(tiny_run)
