"""What a run leaves on disk, and what happens where it cannot be written."""

import csv
import errno
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml
from grids import grid
from PIL import Image
from safetensors import SafetensorError
from safetensors.torch import load_file

from faircl.config.run import parse_config
from faircl.errors import UserError
from faircl.files import writing
from faircl.registry import METHODS, MODELS
from faircl.runs.folder import RunFolder

CONTRACT = {"step", "miou", "std", "gap", "error_gap", "worst", "classes"}


def test_every_file_of_the_issue_is_there(tiny_run):
    root = tiny_run.path
    step = ["model.safetensors", "model.json", "method.safetensors", "method.json", "evaluation.npz"]
    step += ["examples/0.png", "examples/1.png"]
    expected = {"config.yaml", "environment.json", "scenario.json", "data.json", "train.log", ".lock"}
    expected |= {"metrics.jsonl", "metrics.csv", "report.html", "steps/00/SHA256SUMS", "steps/01/SHA256SUMS"}
    expected |= {f"steps/{number}/{name}" for number in ("00", "01") for name in step}
    expected |= {f"examples/{k}.{kind}.png" for k in (0, 1) for kind in ("image", "truth")}
    expected |= {"gallery/gallery.json", "gallery/SHA256SUMS"}
    kinds = ("image", "truth", "step00", "step01")
    expected |= {f"gallery/{k}.{kind}.png" for k in range(8) for kind in kinds}  # there are eight test images
    found = {file.relative_to(root).as_posix() for file in root.rglob("*") if file.is_file()}
    assert found == expected  # and nothing half-written beside them


def test_config_resolves_to_itself(tiny_run, tiny_config):
    saved = parse_config(yaml.safe_load((tiny_run.path / "config.yaml").read_text()))
    assert saved == tiny_config() == tiny_run.config()


def test_scenario_and_models_agree(tiny_run):
    saved = json.loads((tiny_run.path / "scenario.json").read_text())
    assert [len(step["classes"]) for step in saved["steps"]] == [6, 4]
    assert all(len(step["test"]) == 8 for step in saved["steps"])
    for step, (heads, seen) in enumerate([([7], 7), ([7, 4], 11)]):
        about = json.loads((tiny_run.step_path(step) / "model.json").read_text())
        assert about["heads"] == heads
        assert about["scenario_sha256"] == saved["sha256"]
        assert about["classes"] == [{"id": c["id"], "name": c["name"]} for c in saved["classes"]][:seen]
        weights = load_file(tiny_run.step_path(step) / "model.safetensors")
        assert [weights[f"classifier.heads.{k}.weight"].shape[0] for k in range(len(heads))] == heads
        assert all(bool(value.isfinite().all()) for value in weights.values())


def test_environment_says_what_ran_and_tells_no_secrets(tiny_run):
    facts = json.loads((tiny_run.path / "environment.json").read_text())
    assert {"faircl", "commit", "python", "torch", "torchvision", "numpy", "platform", "cpu", "gpu"} <= set(facts)
    assert all(isinstance(value, str) for value in facts.values())


def test_records_of_training_and_evaluation(tiny_run):
    train, evals = tiny_run.records("train"), tiny_run.records("eval")
    images = [len(step["train"]) for step in tiny_run.scenario()["steps"]]
    assert images == [24, 24]
    assert [(r["step"], r["iteration"]) for r in train] == [(0, i) for i in range(1, 7)] + [(1, i) for i in range(1, 4)]
    for record in train:
        assert record["loss"] == pytest.approx(sum(record["terms"].values()))
        assert record["terms"].keys() >= {"seg", "cluster"}
    assert [r["step"] for r in evals] == [0, 1]
    for record in evals:
        assert set(record) >= CONTRACT | {"seconds", "images_per_second", "average_over_steps"}
        assert set(record["miou"]) == {"old", "new", "all"}
    assert evals[0]["miou"]["old"] is None
    assert len(evals[0]["classes"]) == 7
    assert len(evals[1]["classes"]) == 11


def test_metrics_csv_holds_the_same_numbers(tiny_run):
    rows = list(csv.DictReader((tiny_run.path / "metrics.csv").open()))
    expected = [(r["step"], c) for r in tiny_run.records("eval") for c in r["classes"]]
    assert len(rows) == len(expected) == 7 + 11
    for row, (step, of_class) in zip(rows, expected, strict=True):
        assert int(row["step"]) == step
        assert (int(row["id"]), row["name"]) == (of_class["id"], of_class["name"])
        assert (float(row["iou"]) if row["iou"] else None) == of_class["iou"]
        assert int(row["pixels"]) == of_class["pixels"]
        assert int(row["learned_at"]) == of_class["learned_at"]


def test_examples_are_images_truth_and_predictions_of_the_same_size(tiny_run):
    for k in (0, 1):
        image = np.array(Image.open(tiny_run.path / f"examples/{k}.image.png"))
        truth = np.array(Image.open(tiny_run.path / f"examples/{k}.truth.png"))
        assert image.shape == (32, 32, 3)
        for step, most in ((0, 6), (1, 10)):
            prediction = np.array(Image.open(tiny_run.step_path(step) / f"examples/{k}.png"))
            assert prediction.shape == truth.shape == (32, 32)
            assert prediction.max() <= most


def test_no_examples_when_none_are_wanted(tiny_train, tmp_path):
    folder = tiny_train(tmp_path / "run", "eval.examples=0", "scenario.task=offline", "train.epochs=0.3", page=True)
    assert not list(folder.path.glob("examples/*"))
    assert not list(folder.step_path(0).glob("examples/*"))
    assert (folder.path / "report.html").is_file()


# ---- writing whole or not at all


def test_a_text_is_replaced_whole(tmp_path, monkeypatch):
    folder = RunFolder(tmp_path)
    folder.write_text("a.txt", "old")
    monkeypatch.setattr("os.replace", _full_disk)
    with pytest.raises(UserError, match=r"Cannot write .*a\.txt: No space left on device"):
        folder.write_text("a.txt", "new")
    assert [file.name for file in tmp_path.iterdir()] == ["a.txt"]
    assert (tmp_path / "a.txt").read_text() == "old"


def test_a_step_appears_only_when_complete(tmp_path):
    folder = RunFolder(tmp_path)

    def half(path):
        (path / "model.safetensors").write_bytes(b"x")
        _full_disk()

    with pytest.raises(UserError, match=r"Cannot write .*steps/00: No space left"):
        folder.write_step(0, half)
    assert folder.finished_steps() == 0
    assert not list((tmp_path / "steps").iterdir())


def _full_disk(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(
    ("error", "found"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device"),
        (OSError("no reason given"), "no reason given"),
        (SafetensorError("I/O error: No space left on device"), "I/O error: No space left on device"),
    ],
)
def test_a_failed_write_is_one_sentence(error, found, tmp_path):
    cleaned = []
    with pytest.raises(UserError) as caught, writing(tmp_path / "a", lambda: cleaned.append(1)):
        raise error
    advice = "fix that and try again (train with --resume: finished steps are safe)."
    expected = f"Cannot write {tmp_path / 'a'}: {found}; {advice}"
    assert str(caught.value) == expected
    assert cleaned == [1]


def test_a_mistake_of_ours_is_no_failed_write(tmp_path):
    with pytest.raises(KeyError), writing(tmp_path / "a"):
        raise KeyError("a bug")


@grid("function", ["save_step", "write_mask"])
def test_a_disk_that_fills_up_at_a_later_step(function, tiny_run, tiny_train, tmp_path, monkeypatch):
    import faircl.engine.step_results as results

    true, root = getattr(results, function), tmp_path / "run"

    def full(path, *args):
        if (root / "steps/00").exists():
            _full_disk()
        return true(path, *args)

    with monkeypatch.context() as patch:
        patch.setattr(results, function, full)
        with pytest.raises(UserError, match=r"Cannot write .*: No space left on device; fix that and try again"):
            tiny_train(root)
    assert [step.name for step in (root / "steps").iterdir()] == ["00"]
    resumed = tiny_train(root, resume=True)
    for part in ("model", "method"):
        saved = (folder.step_path(1) / f"{part}.safetensors" for folder in (resumed, tiny_run))
        assert next(saved).read_bytes() == next(saved).read_bytes()


# ---- folders that cannot be used


def test_damaged_run_folders_are_reported(tiny_run, tmp_path):
    with pytest.raises(UserError, match="is not a run folder"):
        RunFolder.open(tmp_path)
    for text in ("", "- a\n- b\n", "[x", "seed: 3", "\x00"):
        (tmp_path / "config.yaml").write_text(text)
        with pytest.raises(UserError):
            RunFolder.open(tmp_path).config()
    (tmp_path / "config.yaml").write_bytes(b"\xff\xfe\x80")
    with pytest.raises(UserError):
        RunFolder.open(tmp_path).config()
    for text in ("", "{", "[1]"):
        (tmp_path / "scenario.json").write_text(text)
        with pytest.raises(UserError, match="damaged"):
            RunFolder.open(tmp_path).scenario()
    (tmp_path / "metrics.jsonl").write_text("{nonsense\n")
    with pytest.raises(UserError, match="damaged"):
        RunFolder.open(tmp_path).records("eval")


def other(value: object) -> object:
    """Any valid value but this one."""
    choices = {"fp32": "bf16", "auto": "cpu", "never": "later", "sgd": "adamw", "poly": "cosine", "full": "plop"}
    choices |= {"workers": "device", "none": "memory", "last": "best", "test": "validation"}
    if isinstance(value, str):
        return choices[value]
    if isinstance(value, bool):
        return not value
    if value == ():
        return ("tensorboard",)
    if isinstance(value, tuple):
        return (value[0] / 2, *value[1:])
    return 0.5 if value is None else value / 2 if isinstance(value, float) and value else value + 1


@pytest.mark.parametrize("section", ["train", "optim", "eval"])
def test_a_run_is_another_run_unless_only_its_speed_differs(section, tiny_run):
    config = tiny_run.config()
    part = getattr(config, section)
    for key in type(part).model_fields.keys() - {"parts"}:
        changed = part.model_copy(update={key: other(getattr(part, key))})
        assert changed != part
        candidate = config.model_copy(update={section: changed})
        speed = ("workers", "cache", "graphs", "log_every", "loggers", "checkpointing", "checkpoint_minutes")
        if key in speed or (section == "eval" and key in ("batch", "gallery")):
            tiny_run.check_free(candidate, resume=True)
            continue
        with pytest.raises(UserError, match="was begun with"):
            tiny_run.check_free(candidate, resume=True)


def test_starting_weights_may_move_once_a_step_is_done(tiny_run, tmp_path):
    def config(weights):
        model = MODELS.parse_config({"name": "deeplabv3", "backbone": "mobilenet_v2", "weights": weights})
        return tiny_run.config().model_copy(update={"model": model})

    folder = RunFolder(Path(shutil.copytree(tiny_run.path, tmp_path / "run")))
    folder.write_text("config.yaml", config("here.pth").to_yaml())
    folder.check_free(config("there.pth"), resume=True)
    with pytest.raises(UserError, match=r"method\.name faircl, not joint"):
        folder.check_free(config("there.pth").model_copy(update={"method": METHODS.parse_config("joint")}), resume=True)
    (folder.path / "metrics.jsonl").unlink()
    shutil.rmtree(folder.path / "steps")
    with pytest.raises(UserError, match=r"model\.weights here\.pth, not there\.pth"):
        folder.check_free(config("there.pth"), resume=True)


def test_a_damaged_checkpoint_is_reported(tiny_run, tiny_train, tmp_path):

    path = shutil.copytree(tiny_run.path, tmp_path / "run")
    shutil.rmtree(path / "steps/01")
    weights = path / "steps/00/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    (path / "steps/00/SHA256SUMS").unlink()  # as in folders that were written before there were checksums
    with pytest.raises(UserError, match=r"Cannot read .*model.safetensors"):
        tiny_train(path, resume=True)
