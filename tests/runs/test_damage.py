"""Files of a run that were damaged: a flipped bit is found, and the last good state is used instead."""

import shutil
import stat
import subprocess
from types import SimpleNamespace

import pytest
from grids import grid
from run_files import records, states

from faircl.checksums import damaged_file
from faircl.engine.in_step_checkpoints import InStepCheckpoints
from faircl.engine.reevaluate import evaluate_again
from faircl.errors import Interrupted, UserError
from faircl.runs.folder import RunFolder


def flip_bit(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


@pytest.fixture
def copied(tiny_run, tmp_path):
    return RunFolder(shutil.copytree(tiny_run.path, tmp_path / "run"))


def stop_after(monkeypatch, updates):
    """Stop at the last of these updates of the second step, and take a checkpoint after each."""
    seen = []

    def due(self):
        seen.append(1)
        self.stop = 15 if len(seen) == 6 + updates else 0
        return True

    monkeypatch.setattr(InStepCheckpoints, "due", due)


@pytest.fixture
def stop(tiny_train, tmp_path, monkeypatch):
    """Return a function that makes a run which stops at the second step after its second update of three."""

    def made(*settings):
        with monkeypatch.context() as patch:
            stop_after(patch, 2)
            with pytest.raises(Interrupted, match="at step 1 after update 2 of 3"):
                tiny_train(tmp_path / "run", *settings)
        return RunFolder(tmp_path / "run")

    return made


@pytest.fixture
def stopped(stop):
    """The run of the recipe, stopped."""
    return stop()


def test_sums_are_those_of_sha256sum(tiny_run):
    folder = tiny_run.step_path(1)
    found = subprocess.run(["sha256sum", "-c", "SHA256SUMS"], cwd=folder, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    listed = {line.removesuffix(": OK") for line in found.stdout.splitlines()}
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert listed == files - {"SHA256SUMS"}


def test_all_files_have_one_mode(tiny_run):
    modes = {stat.S_IMODE(path.stat().st_mode) for path in tiny_run.path.rglob("*") if path.is_file()}
    assert len(modes) == 1


@pytest.mark.parametrize("name", ["model.safetensors", "model.json"])
def test_a_damaged_network_is_not_evaluated(name, copied, silent):
    flip_bit(copied.step_path(1) / name)
    with pytest.raises(
        UserError, match=rf"steps/01/{name} is missing or damaged: it does not have the sha256"
    ) as error:
        evaluate_again(copied, silent())
    assert "\n" not in str(error.value)
    assert len(evaluate_again(copied, silent(), step=0)) == 1


@grid("name", ["model.safetensors", "method.safetensors", "method.json"], quick=lambda name: name[:6] == "method")
def test_a_damaged_step_is_trained_again(name, copied, tiny_run, tiny_train, silent):
    flip_bit(copied.step_path(1) / name)
    reporter = silent()
    tiny_train(copied.path, resume=True, reporter=reporter)
    said = f"warning: {copied.step_path(1) / name} is missing or damaged; step 1 is trained again"
    assert said in reporter.said
    assert states(copied) == states(tiny_run)
    assert records(copied) == records(tiny_run)


def test_two_checkpoints_are_kept(stopped):
    assert sorted(path.name for path in stopped.checkpoints.iterdir()) == ["01-00000001", "01-00000002"]
    assert [damaged_file(path) for path in stopped.checkpoints.iterdir()] == [None, None]


NAMES = ("model", "method", "optimizer", "processes")


@grid("name", [f"{name}.{kind}" for name in NAMES for kind in ("safetensors", "json")] + ["SHA256SUMS"], quick=2)
def test_the_checkpoint_before_a_damaged_one_is_used(name, stopped, tiny_run, tiny_train, silent):
    newest = stopped.checkpoints / "01-00000002"
    flip_bit(newest / name)
    reporter = silent()
    tiny_train(stopped.path, resume=True, reporter=reporter)
    damaged = [line for line in reporter.said if line.startswith("warning: ")]
    assert len(damaged) == 1
    assert damaged[0].endswith("is missing or damaged; the checkpoint before it is used")
    assert str(newest) in damaged[0]
    assert states(stopped) == states(tiny_run)
    assert records(stopped) == records(tiny_run)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["safetensors", "json"])
def test_assigned_labels_may_be_damaged_too(kind, stop, tiny_train, silent, tmp_path):
    whole = tiny_train(tmp_path / "whole", "method=faircl-paper")
    run = stop("method=faircl-paper")
    flip_bit(run.checkpoints / f"01-00000002/assigned.{kind}")
    reporter = silent()
    tiny_train(run.path, "method=faircl-paper", resume=True, reporter=reporter)
    damaged = [line for line in reporter.said if line.startswith("warning: ")]
    assert len(damaged) == 1
    assert damaged[0].endswith("is missing or damaged; the checkpoint before it is used")
    assert states(run) == states(whole)


def test_no_checkpoint_is_whole(stopped, tiny_run, tiny_train, silent):
    for path in stopped.checkpoints.iterdir():
        (path / "optimizer.safetensors").unlink()
    reporter = silent()
    tiny_train(stopped.path, resume=True, reporter=reporter)
    newer, older = (line for line in reporter.said if line.startswith("warning: "))
    assert newer.endswith("01-00000002/optimizer.safetensors is missing or damaged; the checkpoint before it is used")
    assert older.endswith("01-00000001/optimizer.safetensors is missing or damaged; step 1 is trained from its start")
    assert states(stopped) == states(tiny_run)
    assert records(stopped) == records(tiny_run)


def test_a_checkpoint_without_checksums_is_not_used(stopped, tiny_train, silent):
    (stopped.checkpoints / "01-00000002/SHA256SUMS").unlink()
    reporter = silent()
    tiny_train(stopped.path, resume=True, reporter=reporter)
    assert any("01-00000002/SHA256SUMS is missing or damaged" in line for line in reporter.said)


def test_a_new_checkpoint_is_not_taken_for_older_than_damaged_ones(stopped, tiny_run, tiny_train, monkeypatch):
    """The step is trained again from its beginning, and stopped earlier than the damaged checkpoints were taken."""
    (stopped.checkpoints / "01-00000002").rename(stopped.checkpoints / "01-00000003")
    (stopped.checkpoints / "01-00000001").rename(stopped.checkpoints / "01-00000002")
    for path in stopped.checkpoints.iterdir():
        flip_bit(path / "optimizer.safetensors")
    (stopped.checkpoints / ".01-00000004.part").mkdir()
    with monkeypatch.context() as patch:
        stop_after(patch, 1 - 6)
        with pytest.raises(Interrupted, match="at step 1 after update 1 of 3, which is saved"):
            tiny_train(stopped.path, resume=True)
    assert [path.name for path in stopped.checkpoints.iterdir()] == ["01-00000001"]
    tiny_train(stopped.path, resume=True)
    assert states(stopped) == states(tiny_run)


def test_two_damaged_steps_and_a_kill(copied, tiny_run, tiny_train, silent):
    """Steps after the one that is trained again are not taken for steps whose evaluations are lost."""
    for step in (0, 1):
        flip_bit(copied.step_path(step) / "model.safetensors")
    with pytest.raises(KeyboardInterrupt):
        tiny_train(copied.path, resume=True, reporter=silent("step 0 evaluate"))
    tiny_train(copied.path, resume=True)
    assert states(copied) == states(tiny_run)
    assert records(copied) == records(tiny_run)


def test_part_of_a_line_is_dropped(stopped, tiny_run, tiny_train, silent):
    """A process killed while it appends to metrics.jsonl, and another one before its first checkpoint."""
    path = stopped.path / "metrics.jsonl"
    path.write_text(path.read_text() + '{"kind": "tr')
    with pytest.raises(KeyboardInterrupt):
        tiny_train(stopped.path, resume=True, reporter=silent("step 1 evaluate"))
    tiny_train(stopped.path, resume=True)
    assert records(stopped) == records(tiny_run)


def test_what_a_kill_after_the_last_step_left_is_removed(copied, tiny_train, monkeypatch):
    """Also on a full disk: a finished run writes no checkpoints."""
    (copied.checkpoints / "01-00000003").mkdir(parents=True)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=0))
    tiny_train(copied.path, resume=True)
    assert not copied.checkpoints.exists()


def test_a_step_that_finishes_while_the_run_is_read_is_no_damage(copied, monkeypatch):
    lines = (copied.path / "metrics.jsonl").read_text().splitlines(keepends=True)
    last = [line for line in lines if '"step": 1' in line]
    (copied.path / "metrics.jsonl").write_text("".join(line for line in lines if line not in last))
    counted = RunFolder.finished_steps

    def finishing(self):
        done = counted(self)
        (self.path / "metrics.jsonl").write_text("".join(lines))
        return done

    monkeypatch.setattr(RunFolder, "finished_steps", finishing)
    copied.check_recorded()
    assert len(copied.records("eval")) == 2
